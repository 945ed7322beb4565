"""A guest in a network goes live from host to host, and is reached there as before.

Each host has its network, its libvirtd and its agent in namespaces that the test makes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.compute.drivers.libvirt.options import Options
from skep.contracts.eventually import eventually
from skep.domain.host_networks import HostNetworks, versioned
from skep_lab.libvirt_daemons import LibvirtDaemon, make_passable
from skep_lab.pki import Authority
from tests.functional.libvirt.test_bridged_guests import SSH, Agent, agent
from tests.functional.libvirt.test_bridged_networks import OPEN, PING, give_address, group, port, segment, wanted
from tests.support import bridged_hosts, tiny_guests
from tests.support.bridged_guest import GuestTask
from tests.support.bridged_hosts import TRANSIT, BridgedHost, bridged_host, join
from tests.support.libvirt_daemons import DAEMON_PARTS
from tests.support.libvirt_hosts import is_root
from tests.support.tiny_guests import make_key

pytestmark = [
    *DAEMON_PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_root(), reason="networks of a host are made by root"),
]

ADDRESSES = ("198.51.100.1", "198.51.100.2")
GUEST, PROBE = port(1, "10.7.0.11", OPEN), port(2, "10.7.0.12", OPEN)
GROUPS = (group(OPEN, SSH, PING),)
HERE, THERE = ((address,) for address in ADDRESSES)


@contextmanager
def daemon(host: BridgedHost, directory: Path, number: int, cache: Path | None) -> Iterator[LibvirtDaemon]:
    """Run a libvirtd in the namespaces of a host; `cache`: of one that has asked QEMU what it can do."""
    address = ADDRESSES[number]
    certificates = directory / f"certificates-{number}"
    home = directory / f"h{number}"
    make_passable(home)
    if cache is not None:
        shutil.copytree(cache, home / "cache")
    ports = range(49400 + 40 * number, 49440 + 40 * number)
    one = LibvirtDaemon(home, ports, certificates, address=address, within=host.command())
    one.start()
    try:
        yield one
    finally:
        one.stop()


def write_certificates(directory: Path) -> None:
    """Have certificates of both hosts, which one authority has signed."""
    authority = Authority("of both")
    for number, address in enumerate(ADDRESSES):
        where = directory / f"certificates-{number}"
        authority.write(where, address=address)
        for file in where.iterdir():
            shutil.chown(file, Options(virt_type="qemu").user)


@contextmanager
def two_hosts(tmp_path: Path) -> Iterator[list[tuple[BridgedHost, LibvirtDaemon]]]:
    """Have two hosts, joined by a cable, each with a libvirtd."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-", dir="/tmp"))
        directory = Path(name)
        directory.chmod(0o711)
        write_certificates(directory)
        options = (BridgeOptions(transit=TRANSIT, tunnel_address=address) for address in ADDRESSES)
        hosts = [stack.enter_context(bridged_host(tmp_path / str(one.tunnel_address), one)) for one in options]
        join(*hosts)
        daemons: list[LibvirtDaemon] = []
        for number, host in enumerate(hosts):
            cache = daemons[0].root / "cache" if daemons else None
            daemons.append(stack.enter_context(daemon(host, directory, number, cache)))
        yield list(zip(hosts, daemons, strict=True))


@contextmanager
def two_agents(tmp_path: Path) -> Iterator[tuple[tuple[BridgedHost, Agent], tuple[BridgedHost, Agent]]]:
    """Have two hosts, each with an agent that brings networks."""
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        agents = []
        for (host, its), address in zip(hosts, ADDRESSES, strict=True):
            bridged = {"networks": "bridge", "tunnel_address": address, "transit": str(TRANSIT)}
            agents.append((host, stack.enter_context(agent(host, {**its.options, **bridged}))))
        first, second = agents
        yield first, second


async def test_a_guest_goes_on_in_its_network_on_another_host(tmp_path: Path) -> None:
    key, place = tmp_path / "key", str(tmp_path / "place")
    public = make_key(key)

    with two_agents(tmp_path) as ((source, leaving), (target, taking)):
        source.add_guest("probe", PROBE)
        give_address(source, "probe", "10.7.0.12", "10.7.0.1")

        async def says(command: str) -> str:
            """Run a command in the guest, from another guest of its network on the first host."""
            words = tiny_guests.ssh_command(key, 22, command)
            words[words.index("root@127.0.0.1")] = "root@10.7.0.11"
            said = ""

            async def let_in() -> bool:
                nonlocal said
                status, said = source.ask(*words, guest="probe")
                return status == 0

            await eventually(let_in, f"the guest runs {command}", seconds=120)
            return said

        leaving.do(GuestTask(do="boot", port=GUEST, key=public))
        leaving.do(GuestTask(do="networks", networks=wanted(segment(GUEST, PROBE), groups=GROUPS)))
        await says("echo here > /tmp/mark")
        taking.do(GuestTask(do="await", port=GUEST, key=public, place=place))
        # What is wanted of the target before the port is bound to it, too, leaves the link that awaits the guest.
        taking.do(GuestTask(do="networks", networks=versioned(HostNetworks())))
        taking.do(GuestTask(do="networks", networks=wanted(segment(GUEST, peers=HERE), groups=GROUPS)))
        leaving.do(GuestTask(do="leave", port=GUEST, place=place))
        link = f"tap{GUEST.id}"[:14]
        assert link not in source.run("ip", "-br", "link"), "its link went with it"
        leaving.do(GuestTask(do="networks", networks=wanted(segment(PROBE, peers=THERE), groups=GROUPS)))
        taking.do(GuestTask(do="take", port=GUEST, place=place))
        assert await says("cat /tmp/mark /state/boots") == "here\n1\n"
        [plugged] = json.loads(target.run("ip", "-json", "link", "show", link))
        assert plugged["master"].startswith("sk-b")
