"""The networks of one host: what is wanted of them is kept, so that a host that boots has them before its guests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import dnsmasq
from skep.compute.drivers.libvirt.bridged.host import (
    KERNEL,
    Link,
    dnsmasq_texts,
    ensure_taps,
    links_of,
    make_so,
    numbers_of,
    open_taps,
    ours,
    remove_taps,
    rules_in_force,
)
from skep.compute.drivers.libvirt.bridged.metadata import MetadataProxy
from skep.compute.drivers.libvirt.bridged.names import tap
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.compute.drivers.libvirt.bridged.plan import most_numbers, numbered, owners, plan, with_possible_addresses
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.host_networks import HostNetworks
from skep.domain.ids import InstanceUuid

log = structlog.get_logger("skep.compute")

WANTED = "wanted.json"
LEASES = "dnsmasq"
CLAIM = b"\0skep-networks"
"""An address of sockets that the kernel has once in each network namespace, and frees when its process dies."""
_decoder = json_decoder(HostNetworks)


class Made(msgspec.Struct, frozen=True):
    """What the host was made to last."""

    version: str
    links: frozenset[tuple[Any, ...]]
    """As `ours` told them of then."""
    rules: Mapping[str, int] | None
    """As `rules_in_force` told them of then."""
    texts: Mapping[str, str]
    """Namespaces, and the configurations of the dnsmasq in them."""


class BridgedNetworks:
    """Of one host. Everything here may block, and any thread may ask for it."""

    def __init__(self, options: BridgeOptions, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._lock = threading.Lock()
        """Held while links are looked at and changed."""
        self._claim = socket.socket(socket.AF_UNIX)
        self._servers: Mapping[str, str] = {}
        """Taps of ports, and the servers that have these."""
        self._made: Made | None = None
        """None: not known to be whole."""
        self._proxy = None if options.metadata is None else MetadataProxy(options.metadata, options.spaces)

    def claim(self) -> None:
        """Have the networks of this machine, which one host at a time has. Raises OSError where another has them."""
        self._claim.bind(CLAIM)

    def close(self) -> None:
        """Let go of the networks; they stay as they are, but for what answered guests."""
        if self._proxy is not None:
            self._proxy.close()
        self._claim.close()

    @property
    def tunnel_address(self) -> str:
        """Where other hosts reach this one; empty: they do not."""
        return self._options.tunnel_address

    def make_so(self, wanted: HostNetworks, kept: Callable[[], Collection[str]]) -> None:
        """Make the host so, and keep what is wanted; nothing was said yet: leave it.

        `kept` returns the taps of the guests that are there: they stay. A host that was made so, and has all of its
        links and rules still, is looked at only for a dnsmasq that has died. Raises DriverError.
        """
        if not wanted.version:
            return
        with self._lock:
            made, self._made = self._made, None
            try:
                links = links_of()
                if made is None or (made.version, made.links) != (wanted.version, ours(links)) or _has_lost_rules(made):
                    made = self._apply(wanted, links, kept())
                else:
                    dnsmasq.make_so(made.texts, self._directory / LEASES)
                self._made = made
            except ValueError as error:
                raise DriverError("NetworksRefused", f"networks: {error}") from error
            except OSError as error:
                raise DriverError("NetworksUnavailable", f"networks: {error}") from error

    async def answer(self, wanted: HostNetworks) -> None:
        """Answer guests who ask for metadata in these networks, which are there. Raises DriverError."""
        if wanted.version and self._proxy is not None:
            await self._proxy.follow(wanted)

    def restore(self) -> None:
        """Make the host as it was when it was last told; taps that are there stay. Raises DriverError."""
        try:
            wanted = _decoder.decode((self._directory / WANTED).read_bytes())
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            raise DriverError("NetworksUnavailable", f"networks: {WANTED}: {error}") from error
        self.make_so(wanted, lambda: links_of().keys())

    def of_others(self, server: InstanceUuid) -> frozenset[str]:
        """Return the taps of the ports that other servers have here, as was said last."""
        return frozenset(name for name, owner in self._servers.items() if owner != server)

    def plug(self, taps: Sequence[str], *, anew: Collection[str] = ()) -> None:
        """Make the taps of a guest that is about to start; until its network is known nothing goes through them.

        The guest is among those of `kept` already. `anew`: those of which one that is open is that of a guest whose
        server has lost the port since, for this one has it not open; it is made anew, in its network. Raises
        DriverError.
        """
        if not taps:
            return
        with self._lock:
            held = open_taps([tap for tap in taps if tap in anew]) if anew else []
            remove_taps(held)
            ensure_taps(taps)
        if held:
            try:
                self.restore()
            except DriverError as error:
                # What failed may be a router of others; the next time that the host is told all is tried again.
                log.warning("taps that were made anew follow later", error=str(error))

    def unplug(self, taps: Sequence[str]) -> None:
        """Remove the taps of a guest that is gone. Raises DriverError."""
        if taps:
            with self._lock:
                remove_taps(taps)

    def _apply(self, wanted: HostNetworks, links: Mapping[str, Link], kept: Collection[str]) -> Made:
        self._servers = {tap(port.id): port.server for segment in wanted.segments for port in segment.ports}
        numbers = numbered(owners(wanted), numbers_of(links), most_numbers(self._options))
        possible = with_possible_addresses(wanted, ipv6=Path(KERNEL, "ipv6").exists())
        state = plan(possible, self._options, numbers)
        # What of it cannot be made is the matter of one network or router, and no reason to forget the others.
        self._keep(wanted)
        make_so(state, links, kept, self._options.outside_interface, self._directory / LEASES)
        return Made(wanted.version, ours(links_of()), rules_in_force(), dnsmasq_texts(state))

    def _keep(self, wanted: HostNetworks) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._directory / WANTED, msgspec.json.encode(wanted))


def _has_lost_rules(made: Made) -> bool:
    found = rules_in_force()
    if found is None or found != made.rules:
        log.warning("rules of networks were removed by others, and are made anew")
        return True
    return False
