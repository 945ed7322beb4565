"""What an operator sets of networks on hosts, as values that are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TypeVar

import msgspec

from skep.compute.drivers.libvirt.bridged.metadata import MetadataService
from skep.compute.drivers.libvirt.bridged.names import address
from skep.compute.drivers.libvirt.options import Options

T = TypeVar("T")

RESOLVERS = Path("/etc/resolv.conf")


class BridgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Of one host."""

    transit: IPv4Network
    """Addresses between the host and the namespaces of its routers and networks, which nothing else on the host has."""
    tunnel_address: str = ""
    """Where other hosts reach this one by VXLAN. Empty: networks end at this host."""
    tunnel_port: int = 4789
    """UDP; the same on all hosts."""
    outside_interface: str = ""
    """On which the host answers for floating addresses. Empty: others know that they lead to this host."""
    closed_to_guests: tuple[IPv4Network, ...] = ()
    """Blocks of addresses that guests do not reach by way of the host."""
    resolvers: tuple[str, ...] = ()
    """Who resolves names for guests."""
    metadata: MetadataService | None = None
    """None: guests ask in vain."""
    spaces: str = ""
    """How the names of network namespaces begin."""

    @property
    def gateway(self) -> IPv4Address:
        """The host's own address towards its namespaces."""
        return self.transit[1]


def bridge_options(options: Options) -> BridgeOptions:
    """Return the options of a host's networks. Raises ValueError, which begins with the name of the option; OSError."""
    [transit] = _read("transit", IPv4Network, [options.transit])
    if transit.num_addresses < 16:
        raise ValueError(f"transit: {transit} is too small")
    local = [
        str(one) for one in _read("tunnel_address", address, [options.tunnel_address] if options.tunnel_address else [])
    ]
    named = [str(one) for one in _read("resolvers", address, options.resolvers)]
    return BridgeOptions(
        transit=transit,
        tunnel_address=next(iter(local), ""),
        tunnel_port=options.tunnel_port,
        outside_interface=options.outside_interface,
        closed_to_guests=tuple(_read("closed_to_guests", IPv4Network, options.closed_to_guests)),
        resolvers=tuple(named) or resolvers_of_host(),
        metadata=MetadataService(url=options.metadata_url, secret=options.metadata_secret)
        if options.metadata_url
        else None,
        spaces=options.spaces,
    )


def _read(name: str, kind: Callable[[str], T], told: Iterable[str]) -> list[T]:
    try:
        return [kind(one) for one in told]
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def resolvers_of_host(file: Path = RESOLVERS) -> tuple[str, ...]:
    """Return who resolves names for the host, but for what only the host's own loopback reaches. Raises OSError."""
    words = [line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    named = (word[1] for word in words if len(word) > 1 and word[0] == "nameserver")
    return tuple(one for one in named if _is_reached(one))


def _is_reached(text: str) -> bool:
    try:
        found = IPv4Address(text)
    except ValueError:
        return False
    return not found.is_loopback
