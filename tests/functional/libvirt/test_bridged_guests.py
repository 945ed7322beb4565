"""A real guest of QEMU in a network of its host: what it has, what it reaches, and what it does not.

Host, guest and the machine outside are in namespaces that the test makes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.contracts.eventually import eventually
from skep.domain.host_networks import FloatingAddress, GroupRule, HostRouter, PluggedPort
from skep.domain.questions import GuestDiagnostics
from tests.functional.libvirt.test_bridged_networks import (
    FLOATING,
    LEGS,
    OPEN,
    ROUTER,
    SERVICE,
    group,
    leave_outside,
    port,
    segment,
    wanted,
)
from tests.functional.libvirt.test_metadata_on_hosts import service
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.bridged_guest import GuestTask
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.libvirt_hosts import other_directory
from tests.support.metadata_stub import URL
from tests.support.tiny_guests import make_key, tiny_image

pytestmark = [*libvirt_hosts.PARTS, *tiny_guests.PARTS, *bridged_hosts.PARTS, pytest.mark.timeout(300)]

OUTSIDE = "192.0.2.2"
SECRET = "of agents and service"
OPTIONS = {
    "networks": "bridge",
    "outside_interface": "out",
    "resolvers": [OUTSIDE],
    "transit": "100.127.0.0/24",
    "metadata_url": URL,
    "metadata_secret": SECRET,
}
OF_THE_HOST = ("192.0.2.1", "100.127.0.1", SERVICE)
SSH = GroupRule(direction="ingress", ethertype="IPv4", protocol="tcp", port_range_min=22, port_range_max=22)


class Agent:
    """The process with the driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, task: GuestTask) -> str:
        """Have a task done; return the last line that the driver said before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task).decode() + "\n")
        self._process.stdin.flush()
        # Before that the driver may have said what it logs.
        said = [""]
        for line in self._process.stdout:
            if line == "done\n":
                return said[-1]
            said.append(line)
        raise AssertionError(f"the driver ended: {said}")


@contextmanager
def agent(host: BridgedHost, options: Mapping[str, Any] = OPTIONS) -> Iterator[Agent]:
    """Have the driver on the host; the guest ends with it."""
    with other_directory() as directory:
        words = ("-m", "tests.support.bridged_guest", directory, tiny_image(), json.dumps(options))
        command = host.command(sys.executable, *words)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Agent(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                status = process.wait(timeout=60)
            assert status == 0


@contextmanager
def running(host: BridgedHost, *words: str | Path, guest: str | None = None) -> Iterator[None]:
    """Have a program that runs on the host, or in a namespace of it."""
    with subprocess.Popen(host.command(*words, guest=guest), stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def inside(host: BridgedHost, key: Path) -> Callable[[str], Awaitable[str]]:
    """Return what runs a command in the guest, by its floating address and from outside, and returns what it says."""

    async def says(command: str) -> str:
        words = tiny_guests.ssh_command(key, 22, f"{command}; echo status=$?")
        words[words.index("root@127.0.0.1")] = f"root@{FLOATING}"
        said = ""

        async def let_in() -> bool:
            nonlocal said
            status, said = host.ask(*words, guest="outside")
            return status == 0

        await eventually(let_in, f"the guest runs {command}", seconds=120)
        return said

    return says


def asking(address: str) -> str:
    """Return what asks for a page with the programs of the guest."""
    return f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 3 nc {address} 8080"


LOOKS = (
    "hostname",
    "cat /sys/class/net/eth0/mtu",
    "ip -o addr show eth0",
    "nslookup name.example",
    asking(OUTSIDE),
    "ping -c 1 -W 2 10.7.0.1 && echo gateway answers",
    "ip addr add 10.7.0.99/24 dev eth0",
    "ping -c 1 -W 2 -I 10.7.0.99 10.7.0.1 && echo sent as another",
)


async def test_a_guest_is_in_a_network_of_its_host(tmp_path: Path) -> None:
    key = tmp_path / "key"
    public = make_key(key)
    one = msgspec.structs.replace(port(1, "10.7.0.11", OPEN), project="mine")
    floating = (FloatingAddress(address=FLOATING, fixed_address="10.7.0.11", port=one.id),)
    router = HostRouter(id=ROUTER, legs=LEGS[:1], outside=True, floating=floating)
    networks = wanted(segment(one), groups=(group(OPEN, SSH),), routers=(router,))
    (tmp_path / "index.html").write_text("reached\n")
    with bridged_host(tmp_path / "host") as host:
        leave_outside(host)
        names = ("--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file")
        with (
            running(host, "dnsmasq", *names, f"--address=/name.example/{OUTSIDE}", guest="outside"),
            running(host, sys.executable, "-m", "http.server", "-d", tmp_path, "8080", guest="outside"),
            running(host, sys.executable, "-m", "http.server", "-d", tmp_path, "8080"),
            service(host),
            agent(host) as driver,
        ):
            driver.do(GuestTask(do="boot", port=one, key=public))
            driver.do(GuestTask(do="networks", networks=networks))
            says = inside(host, key)
            said = await says("; ".join(LOOKS))
            assert said.startswith("guest-1\n1400\n")
            assert "10.7.0.11/24" in said
            assert f"Address: {OUTSIDE}\n" in said, "names are resolved"
            assert "\nreached\n" in said, "by NAT"
            assert "gateway answers" in said
            assert "sent as another" not in said
            # Not by a name: BusyBox, which is linked statically, looks none up.
            told = await says(f"wget -q -O - http://{SERVICE}/openstack/latest/meta_data.json")
            assert '"path": "/openstack/latest/meta_data.json"' in told
            assert f'"x-instance-id": "{one.server}", "x-tenant-id": "mine"' in told
            closed = await says("; ".join(map(asking, OF_THE_HOST)))
            assert "reached" not in closed, "a guest reaches its host"
            # The host's loopback is heard from the host, so that the test could fail.
            assert host.run("busybox", "wget", "-q", "-O", "-", "http://192.0.2.1:8080/") == "reached\n"
            measured = msgspec.json.decode(driver.do(GuestTask(do="measure", port=one)), type=GuestDiagnostics)
            [nic] = measured.nics
            assert nic.mac_address == one.mac_address
            link, figures = f"tap{one.id}"[:14], (nic.rx_octets, nic.tx_packets)
            assert figures == (measured.raw[f"{link}_rx"], measured.raw[f"{link}_tx_packets"])
            assert 0 not in figures
            assert None not in figures
            driver.do(GuestTask(do="reboot", port=one))
            assert await says("cat /state/boots") == "2\nstatus=0\n"
        assert "tap" not in host.run("ip", "-br", "link"), "its link went with it"


GETS = (
    "while ! [ -e /sys/class/net/eth1 ]; do sleep 1; done",
    "cat /sys/class/net/eth1/address",
    "ip link set eth1 up",
    "udhcpc -n -q -t 10 -i eth1 -s /usr/share/udhcpc/default.script >/dev/null 2>&1",
    "ip -o addr show eth1",
)
"""Has the guest take an interface that it got while it ran."""


async def test_a_guest_that_runs_gets_an_interface_and_loses_it(tmp_path: Path) -> None:
    """With the address of its port. It is asked for it as long as it takes, and has it not after a boot either."""
    key = tmp_path / "key"
    public = make_key(key)
    one = port(1, "10.7.0.11", OPEN)
    more = msgspec.structs.replace(port(2, "10.7.0.12", OPEN), server=one.server)
    floating = (FloatingAddress(address=FLOATING, fixed_address="10.7.0.11", port=one.id),)
    router = HostRouter(id=ROUTER, legs=LEGS[:1], outside=True, floating=floating)
    networks = wanted(segment(one, more), groups=(group(OPEN, SSH),), routers=(router,))
    tap = f"tap{more.id}"[:14]
    options = {**OPTIONS, "detach_seconds": 30}
    with bridged_host(tmp_path / "host") as host:
        leave_outside(host)
        with agent(host, options) as driver:
            driver.do(GuestTask(do="boot", port=one, key=public, networks=networks))
            says = inside(host, key)
            assert (await says("hostname")).startswith("guest-1\n")
            for _ in range(2):
                assert driver.do(GuestTask(do="attach", port=more)) == "\n"
            said = await says("; ".join(GETS))
            assert said.startswith(f"{more.mac_address}\n")
            assert "10.7.0.12/24" in said
            measured = msgspec.json.decode(driver.do(GuestTask(do="measure", port=one)), type=GuestDiagnostics)
            assert [nic.mac_address for nic in measured.nics] == [one.mac_address, more.mac_address]
            for _ in range(2):
                assert driver.do(GuestTask(do="detach", port=more)) == "\n"
            assert tap not in host.run("ip", "-br", "link")
            assert "eth1" not in await says("ls /sys/class/net")
            driver.do(GuestTask(do="reboot", port=one))
            assert "eth1" not in await says("ls /sys/class/net")
        assert "tap" not in host.run("ip", "-br", "link")


async def test_a_port_that_comes_from_another_server_of_the_host_is_taken_from_that(tmp_path: Path) -> None:
    """Though its guest runs and nobody asked it to let go; it has no such interface when it starts again."""
    key = make_key(tmp_path / "key")
    one = port(1, "10.7.0.11", OPEN)
    moved = msgspec.structs.replace(one, server=port(2, "10.7.0.12").server)
    tap = f"tap{one.id}"[:14]
    with bridged_host(tmp_path / "host") as host:
        leave_outside(host)

        def link() -> dict[str, Any]:
            [found] = json.loads(host.run("ip", "-json", "link", "show", tap))
            return dict(found)

        def nics(driver: Agent, of: PluggedPort) -> int:
            return len(msgspec.json.decode(driver.do(GuestTask(do="measure", port=of)), type=GuestDiagnostics).nics)

        with agent(host) as driver:
            before = wanted(segment(one), groups=(group(OPEN, SSH),))
            after = wanted(segment(moved), groups=(group(OPEN, SSH),))
            driver.do(GuestTask(do="boot", port=one, key=key, networks=before))
            bridge, index = link()["master"], link()["ifindex"]
            driver.do(GuestTask(do="networks", networks=msgspec.structs.replace(after, version="2")))
            driver.do(GuestTask(do="boot", port=moved, key=key))
            assert link()["master"] == bridge
            assert "LOWER_UP" in link()["flags"]
            assert link()["ifindex"] != index, "it was made anew"
            driver.do(GuestTask(do="reboot", port=one))
            assert (nics(driver, one), nics(driver, moved)) == (0, 1)
            assert "LOWER_UP" in link()["flags"], "the other one has it still"
            driver.do(GuestTask(do="networks", networks=msgspec.structs.replace(before, version="3")))
            driver.do(GuestTask(do="destroy", port=moved))
            assert link()["master"] == bridge, "it is the first one's again"


async def test_a_guest_that_was_suspended_takes_no_port_from_the_server_that_has_got_it(tmp_path: Path) -> None:
    """It does not go on: its memory knows of an interface that it has no more. It boots without it."""
    key = make_key(tmp_path / "key")
    one = port(1, "10.7.0.11", OPEN)
    moved = msgspec.structs.replace(one, server=port(2, "10.7.0.12").server)
    tap = f"tap{one.id}"[:14]
    with bridged_host(tmp_path / "host") as host:
        leave_outside(host)

        def link() -> tuple[int, bool]:
            [found] = json.loads(host.run("ip", "-json", "link", "show", tap))
            return found["ifindex"], "LOWER_UP" in found["flags"]

        with agent(host) as driver:
            before = wanted(segment(one), groups=(group(OPEN, SSH),))
            after = wanted(segment(moved), groups=(group(OPEN, SSH),))
            driver.do(GuestTask(do="boot", port=one, key=key, networks=before))
            assert driver.do(GuestTask(do="suspend", port=one)) == "\n"
            driver.do(GuestTask(do="networks", networks=msgspec.structs.replace(after, version="2")))
            driver.do(GuestTask(do="boot", port=moved, key=key))
            has, is_open = link()
            assert is_open
            assert driver.do(GuestTask(do="resume", port=one)) != "\n"
            assert link() == (has, True), "the other one has it still"
            driver.do(GuestTask(do="reboot", port=one))
            assert link() == (has, True)
