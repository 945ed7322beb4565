"""A cloud for the suite whose guests are virtual machines in networks of their hosts, which the suite logs into.

It is what `skep up --processes` starts as root, with a libvirtd for each of its two hosts: guests go live from one to
the other. Neither sees the disks of the other, as on machines of their own.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from skep.compute.drivers.libvirt.bridged import programs
from skep.config import load
from skep.config.sections import Config
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import signed_in
from skep.processes.directory import StateDirectory
from skep.processes.supervisor.cloud import SupervisedCloud
from skep.processes.supervisor.host_spaces import TABLE, HostSpaces
from skep.processes.supervisor.hosts_apart import HostsApart
from skep.processes.supervisor.plan import ProcessNumbers
from skep.processes.supervisor.real_hosts import guests_directory
from skep.processes.supervisor.servers import OPEN_TO_OTHERS
from skep_lab.libvirt_daemons import LibvirtDaemon, make_passable
from skep_lab.pki import Authority
from skep_lab.tempest.cloud import Furniture, furnished
from skep_lab.tempest.settings import Surroundings

IMAGE = "tiny.qcow2"
"""In the folder of the run's work: it is made before, where Debian's packages are reached."""
PROGRAMS = Path(__file__).with_name("guest")
"""What the suite calls in guests, and the tiny one has not."""
PROPERTIES = {"disk_format": "qcow2", "hw_qemu_guest_agent": "yes"}
FLAVORS = (("tempest.nano", 192, 1), ("tempest.micro", 256, 2))
HOSTS = ("cell1-host1", "cell1-host2")
PORTS = range(49152, 49216)
"""Of a host, where its QEMUs take guests and disks."""
PINGED = f"insert rule inet {TABLE} input icmp type echo-request accept\n"
"""The machine is the gateway of the external network, which the suite pings; else it takes nothing from guests."""
HIDDEN = 'mount -t tmpfs none "$0" && exec "$@"'
SECONDS = 400
"""So long the suite waits for a server, in software."""
HOSTS_SECONDS = 180
SETTINGS = """
[state]
directory = "{work}/state"
[api]
port = 0
[identity]
port = 0
scrypt_cost = 10
[images]
port = 0
first_image = "{work}/{image}"
[networks]
port = 0
quota_security_group = 100
quota_router = 100
[quota]
instances = 100
cores = 200
ram = 512000
server_groups = 100
[metadata]
port = 0
force_config_drive = true
service_metadata_proxy = true
metadata_proxy_shared_secret = "known to hosts of the suite"
[compute]
driver = "libvirt"
[compute.driver_options]
virt_type = "qemu"
"""


def prepare(work: Path) -> None:
    """Make the image. Raises Misconfigured for what the machine lacks, OSError."""
    from skep.compute.drivers.libvirt.tiny.image import make  # it imports what may not be installed

    make(work / IMAGE, {path.name: path.read_bytes() for path in PROGRAMS.iterdir()})


class HostsWithDaemons(HostsApart):
    """Hosts with a libvirtd each, which reach each other by TLS."""

    def __init__(self, spaces: HostSpaces, directory: StateDirectory) -> None:
        super().__init__(spaces, directory)
        self._guests = {host: guests_directory(directory.root, host) for host in HOSTS}
        self._authority = Authority("of both hosts")
        self._daemons: dict[str, LibvirtDaemon] = {}

    async def add(self, host: str, ports: Sequence[int]) -> None:
        """Make the namespaces of a host, and start its libvirtd there."""
        await super().add(host, ports)
        if host in self._daemons:
            return
        if not self._daemons:
            await asyncio.to_thread(programs.nft, PINGED)
        for one in self._guests.values():
            make_passable(one.parent)
            make_passable(one)
        beside = self._guests[host].parent
        certificates, root = beside / f"certificates-{host}", beside / f"libvirtd-{host}"
        self._authority.write(certificates, address=self.address(host))
        make_passable(root)
        daemon = LibvirtDaemon(root, PORTS, certificates, address=self.address(host), within=self.within(host))
        self._daemons[host] = daemon
        await asyncio.to_thread(daemon.start)

    def within(self, host: str) -> tuple[str, ...]:
        """Return the words before a command of a host: there the guests of the other host are not seen."""
        [hidden] = (directory for name, directory in self._guests.items() if name != host)
        # What the host names of network namespaces is to be known outside, too.
        return (
            *super().within(host),
            *("unshare", "--mount", "--propagation", "unchanged", "sh", "-c", HIDDEN, str(hidden)),
        )

    def settings(self, config: Config, host: str, *, metadata_url: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return the variables of the agent of a host, with how its libvirtd is reached."""
        options = {**config.compute.driver_options, **self._daemons[host].options}
        compute = structs.replace(config.compute, driver_options=options)
        return super().settings(structs.replace(config, compute=compute), host, metadata_url=metadata_url)

    async def stop(self) -> None:
        """End the guests that the suite has left, and remove everything."""
        for daemon in self._daemons.values():
            await asyncio.to_thread(daemon.stop)
        await super().stop()


@asynccontextmanager
async def guest_surroundings(work: Path) -> AsyncIterator[Surroundings]:
    """Run a cloud with hosts of QEMU, and services of its own, as long as the block lasts."""
    furniture = Furniture((work / IMAGE).read_bytes(), PROPERTIES, FLAVORS)
    file = work / "skep.toml"
    file.write_text(SETTINGS.format(work=work, image=IMAGE))
    cloud = SupervisedCloud(
        load(file, {}).config,
        ProcessNumbers(scheduler=1),
        cells=1,
        hosts=len(HOSTS),
        config_file=file,
        apart=HostsWithDaemons,
    )
    try:
        await cloud.start()
        extensions = await _extensions(cloud)
        async with furnished(cloud, furniture, hosts=len(HOSTS)) as found:
            yield replace(found, network_extensions=extensions, logs_in=True, seconds=SECONDS)
    finally:
        await cloud.stop()
        for path in OPEN_TO_OTHERS.iterdir():
            shutil.rmtree(path)


async def _extensions(cloud: SupervisedCloud) -> tuple[str, ...]:
    """Wait for the hosts, and return what the network service says that it has."""
    async with signed_in(cloud) as admin:

        async def up() -> bool:
            answer = await admin.ask("GET", "/os-services?binary=nova-compute")
            answer.raise_for_status()
            return sorted(one["host"] for one in answer.json()["services"] if one["state"] == "up") == [*HOSTS]

        await eventually(up, "the hosts are up", seconds=HOSTS_SECONDS)
        answer = await admin.client.get(f"{cloud.networks_url}/v2.0/extensions", headers={"X-Auth-Token": admin.token})
        answer.raise_for_status()
        return tuple(one["alias"] for one in answer.json()["extensions"])
