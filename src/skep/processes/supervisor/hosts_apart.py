"""Whether the hosts of `skep up` have networks: as root each is in namespaces of its own.

A cloud keeps what it began with: its guests have interfaces of one kind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from urllib.parse import urlsplit

from msgspec.structs import replace

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.networks import LEASES
from skep.compute.drivers.libvirt.setup import NETWORKS
from skep.config.sections import LOOPBACK, Config
from skep.domain.errors import Misconfigured
from skep.processes.directory import StateDirectory, write_private
from skep.processes.supervisor.host_spaces import BLOCK, OUTER, HostSpace, HostSpaces
from skep.processes.supervisor.real_hosts import guests_directory, has_real_hosts, host_settings
from skep.processes.supervisor.relays import Relays
from skep.telemetry.logs import get_logger

BRIDGE, USER = "bridge", "user"
"""Values of the driver's option `networks`, and what the cloud's directory says."""
CHOSEN = ("networks", "directory")
"""Options with which a user chooses where guests are."""
EXTERNAL = "100.125.0.0/24"
"""Addresses of the external network, on this machine alone: shared ones (RFC 6598), as those of the hosts. A laboratory
may have the addresses for documentation, and the machine would lose its way to them."""

log = get_logger(__name__)


class HostsApart:
    """The hosts of one cloud, each in namespaces of its own."""

    def __init__(self, spaces: HostSpaces, directory: StateDirectory) -> None:
        self._spaces = spaces
        self._directory = directory
        self._relays: list[Relays] = []
        self._made: dict[str, HostSpace] = {}
        """Those that were added, by name."""

    async def add(self, host: str, ports: Sequence[int]) -> None:
        """Make the namespaces of a host, in which loopback `ports` of this machine are. Raises Misconfigured."""
        if host in self._made:
            return
        relays = Relays()
        try:
            space = await asyncio.to_thread(self._spaces.add, host)
            await relays.start(space.file, ports)
        except (DriverError, OSError) as error:
            await relays.stop()
            raise Misconfigured(f"the networks of {host} cannot be made: {error}") from error
        self._relays.append(relays)
        self._made[host] = space

    def inside(self, host: str) -> str:
        """Return how the names of the network namespaces begin that a host has itself; empty for another's host."""
        return self._made[host].inside if host in self._made else ""

    def address(self, host: str) -> str:
        """Return the address of a host, by which this machine and the other hosts reach it."""
        return str(self._made[host].address)

    def within(self, host: str) -> tuple[str, ...]:
        """Return the words before the command of the agent of a host."""
        return ("nsenter", f"--net={self._made[host].file}")

    def settings(self, config: Config, host: str, *, metadata_url: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return the variables of the agent of a host; it asks the metadata service there. Raises Misconfigured."""
        address = self.address(host)
        options = {
            "networks": BRIDGE,
            "tunnel_address": address,
            "outside_interface": OUTER,
            "closed_to_guests": [str(BLOCK)],
            "spaces": self._made[host].inside,
        }
        said = host_settings(config, self._directory, host, options, metadata_url=metadata_url)
        return (*said, ("SKEP_COMPUTE__CONSOLE_ADDRESS", address))

    async def stop(self) -> None:
        """Remove all of it, but for hosts in which guests run: those, and the way to them, stay."""
        for relays in self._relays:
            await relays.stop()
        self._relays = []
        await asyncio.to_thread(_remove, self._spaces, self._directory)


def with_external_network(config: Config) -> Config:
    """Return the configuration of a cloud whose hosts are apart: what its external network has, unless it is set."""
    cidr = config.networks.external_cidr or EXTERNAL
    return replace(config, networks=replace(config.networks, external_cidr=cidr))


def open_hosts(
    config: Config, directory: StateDirectory, kind: type[HostsApart] = HostsApart
) -> tuple[HostsApart | None, str]:
    """Have what the hosts of a cloud share, where they are apart; say why not, if that is not as was to be expected.

    `kind`: what each of them has. Blocks. Raises Misconfigured where the cloud has guests in such networks, and this
    machine cannot have them now.
    """
    if not has_real_hosts(config) or os.geteuid() != 0 or any(one in config.compute.driver_options for one in CHOSEN):
        return None, ""
    file = directory.root / "networks-of-hosts"
    began = file.read_text(encoding="ascii").strip() if file.exists() else ""
    if began == USER or (not began and directory.clouds_yaml.exists()):
        return None, ""
    spaces = HostSpaces(directory.root, IPv4Network(config.networks.external_cidr or EXTERNAL))
    try:
        _check(config)
        spaces.open()
    except (DriverError, OSError) as error:
        _remove(spaces, directory)
        if began == BRIDGE:
            raise Misconfigured(f"the guests of this cloud are in networks of its hosts: {error}") from error
        write_private(file, f"{USER}\n".encode())
        return None, f"guests have no networks here, but a port of the loopback each: {error}"
    write_private(file, f"{BRIDGE}\n".encode())
    return kind(spaces, directory), ""


def _remove(spaces: HostSpaces, directory: StateDirectory) -> None:
    try:
        spaces.close(lambda host: guests_directory(directory.root, host) / NETWORKS / LEASES)
    except (DriverError, OSError) as error:
        log.error("networks of hosts not removed", error=str(error))


def loopback_ports(config: Config, ports: Mapping[str, int]) -> tuple[int, ...]:
    """Return what agents connect to on this machine; `ports`: those of the services, by name."""
    messaging = urlsplit(config.transport.url).port
    services = (ports[name] for name in ("images", "metadata") if name in ports)
    return tuple(one for one in (messaging, *services) if one is not None)


def _check(config: Config) -> None:
    """Raise DriverError for a cloud that its hosts would not reach."""
    apart = (
        ("transport.kind", config.transport.kind != "memory"),
        ("images.kind", config.images.kind != "embedded"),
        ("networks.kind", config.networks.kind != "embedded"),
        ("api.bind_host", config.api.bind_host != LOOPBACK),
    )
    for name, is_other in apart:
        if is_other:
            raise DriverError("NetworksUnavailable", f"{name} is not that of a cloud on one machine")
