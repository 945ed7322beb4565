"""`skep up --processes --driver libvirt` as root: hosts with networks, and a first server at addresses of its own.

The machine, and the namespace that plays what is outside of it, are namespaces that the test makes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.bridged import dnsmasq
from skep.compute.drivers.libvirt.bridged.networks import LEASES
from skep.compute.drivers.libvirt.setup import NETWORKS
from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.supervisor.host_spaces import BLOCK
from skep.processes.supervisor.hosts_apart import EXTERNAL
from skep.processes.supervisor.real_hosts import guests_directory
from tests.functional.libvirt.test_bridged_cloud import shell
from tests.functional.libvirt.test_up import UpWithGuests
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.supervised_cloud import new_open_folder
from tests.support.tiny_guests import run, tiny_image

pytestmark = [
    *libvirt_hosts.PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.timeout(900),
]

HOSTS = ("cell1-host1", "cell1-host2")
MACHINE, OUTSIDE = "192.0.2.1", "192.0.2.2"
PORT = 8080
OF_THE_MACHINE = (MACHINE, BLOCK[1], IPv4Network(EXTERNAL)[1])
FIRST_BOOT = 90
ANOTHER = (
    "openstack --os-compute-api-version 2.74 server create --image tiny --flavor m1.tiny --security-group first "
    "--host {} -f value -c id two"
)


class UpWithNetworks(UpWithGuests):
    """The command with two hosts in one cell, whose guests have networks."""

    ARGUMENTS = (*UpWithGuests.ARGUMENTS, "--hosts", "2")
    GREETS_WITHIN = 3 * PATIENCE

    def leases(self, host: str) -> Path:
        return guests_directory(self.state, host) / NETWORKS / LEASES


@pytest.fixture
async def placed() -> AsyncIterator[tuple[BridgedHost, UpWithNetworks]]:
    """A machine, and the command that is to be run on it."""
    with new_open_folder() as folder:
        up = UpWithNetworks(folder)
        with bridged_host(up.leases(HOSTS[0]).parent) as machine:
            up.within = machine.command()
            options = {"virt_type": "qemu", "resolvers": [OUTSIDE]}
            up.settings = {
                "SKEP_IMAGES__FIRST_IMAGE": str(tiny_image()),
                "SKEP_COMPUTE__DRIVER_OPTIONS": json.dumps(options),
            }
            with outside(machine, folder):
                yield machine, up
            if up.process.returncode is None:
                await up.end(signal.SIGTERM)
            dnsmasq.make_so({}, up.leases(HOSTS[1]))
        up.remove_guests()


@contextmanager
def outside(machine: BridgedHost, folder: Path) -> Iterator[None]:
    """Have what is outside: it knows the name `there.example`, and has a page there; the machine has another page."""
    machine.run("ip", "netns", "add", "outside")
    machine.run("ip", "link", "add", "out", "type", "veth", "peer", "name", "eth0", "netns", "outside")
    machine.run("ip", "address", "add", f"{MACHINE}/24", "dev", "out")
    machine.run("ip", "link", "set", "out", "up")
    machine.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "eth0", guest="outside")
    machine.run("ip", "link", "set", "eth0", "up", guest="outside")
    names = ("--no-resolv", "--no-hosts", "--pid-file", f"--address=/there.example/{OUTSIDE}", "--conf-file=/dev/null")
    commands = [machine.command("dnsmasq", "--keep-in-foreground", *names, "--user=root", guest="outside")]
    for name, space in (("outside", "outside"), ("machine", None)):
        (folder / name).mkdir()
        (folder / name / "name").write_text(f"{name}\n")
        commands.append(machine.command("busybox", "httpd", "-f", "-p", str(PORT), "-h", folder / name, guest=space))
    with ExitStack() as stack:
        for command in commands:
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.terminate)
        yield


def ways_in(greeting: str) -> list[str]:
    """Return the commands of a greeting that a user would type to log in."""
    lines = [line.strip().removeprefix("$ ") for line in greeting.splitlines()]
    return [line for line in lines if line.startswith(("ssh ", "ip netns exec "))]


def left_on(machine: BridgedHost) -> list[str]:
    """Return what of hosts is on the machine: links, network namespaces, rules, and that it forwards packets."""
    links = [one["ifname"] for one in json.loads(machine.run("ip", "-json", "link"))]
    spaces = [line.split()[0] for line in machine.run("ip", "netns", "list").splitlines()]
    forwards = machine.run("cat", "/proc/sys/net/ipv4/ip_forward").strip()
    rules = machine.run("nft", "list", "tables").split()
    return [*(one for one in (*links, *spaces, *rules) if "skep" in one), *(["forwards"] if forwards != "0" else [])]


async def test_the_greeting_leads_to_the_first_server_by_both_of_its_addresses(
    placed: tuple[BridgedHost, UpWithNetworks],
) -> None:
    machine, up = placed
    machine.run("sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward")
    greeting = await up.start("first")
    assert "Its guest has booted." in greeting, greeting
    floating, fixed = ways_in(greeting)
    assert "root@100.125.0." in floating
    for line in (floating, fixed):
        assert await run(machine.command("sh", "-c", line)) == (0, "one\n")
    with shell(machine, up.folder, up.state / "clouds.yaml") as user:
        [other_host] = [host for host in HOSTS if f"skep-{host}." not in fixed]
        user.run("export OS_CLOUD=skep", ANOTHER.format(other_host))

        async def asked(question: str) -> str:
            _, said = await run(machine.command("sh", "-c", floating.replace(" hostname", f" '{question}'")))
            return said

        assert await asked(f"timeout 10 wget -q -O - http://there.example:{PORT}/name") == "outside\n"
        questions = (f"timeout 1 wget -q -O - http://{one}:{PORT}/name" for one in OF_THE_MACHINE)
        assert "machine" not in await asked("; ".join(questions)), "a guest does not reach the machine"
        skep = Path(sys.executable).with_name("skep")
        entered = user.run(f"{skep} server ssh -i {up.state / 'first-key'} one hostname </dev/null")
        assert entered.splitlines()[-1] == "one"
        said = json.loads(user.run("openstack server show -f json -c addresses two"))["addresses"]
        [[address]] = said.values()

        async def reaches_the_other() -> bool:
            return "SSH-" in await asked(f"timeout 3 nc {address} 22 </dev/null | head -n 1")

        await eventually(reaches_the_other, "guests of two hosts reach each other", seconds=FIRST_BOOT)
        user.run("openstack server delete --wait one two")
    assert await up.end(signal.SIGINT) == 0
    assert up.running() == []
    assert left_on(machine) == []
