"""The way to the outside of a guest in user mode: what it reaches by slirp4netns, and what stays closed to it.

The machine is in namespaces that the test makes, with an outside; its agent is that of a plain user.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from skep.contracts.eventually import eventually
from tests.functional.libvirt.test_bridged_guests import running
from tests.functional.libvirt.test_bridged_networks import leave_outside
from tests.functional.libvirt.test_guests import check_qemu, qemu
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.libvirt_hosts import other_directory
from tests.support.tiny_guests import make_key, ssh_command, tiny_image
from tests.support.user_mode_agent import PORT, UUID

pytestmark = [
    *libvirt_hosts.PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    pytest.mark.needs_part("slirp4netns"),
    pytest.mark.timeout(300),
]

OUTSIDE = "192.0.2.2"
OF_THE_MACHINE = ("10.7.0.1", "10.0.2.2", "127.0.0.1", "192.0.2.1", "100.124.0.2", "255.255.255.255")
"""Addresses of the guest's QEMU, of the loopback as slirp names it, and of the machine."""
CLOSED = "198.51.100.2"
"""Of the outside, and in a block that the host closes."""


class Agent:
    """The process with the driver; it may be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def do(self, task: str) -> str:
        """Have a task done; return what guests there are then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{task}\n")
        self.process.stdin.flush()
        # Before that the driver may have said what it logs.
        said = []
        for line in self.process.stdout:
            if line.startswith(f"{task}: "):
                return line.removeprefix(f"{task}: ")
            said.append(line)
        raise AssertionError(f"the driver ended: {said}")


def command_of(directory: Path, key: str) -> tuple[str | Path, ...]:
    """Return what runs an agent."""
    return (sys.executable, "-m", "tests.support.user_mode_agent", directory, directory / "image.qcow2", key)


@contextmanager
def agent(host: BridgedHost, directory: Path, key: str) -> Iterator[Agent]:
    command = host.command(*command_of(directory, key))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Agent(process)
        finally:
            process.kill()


@contextmanager
def guests_directory() -> Iterator[Path]:
    """Have the directory of the host; a guest of a test that failed ends with it."""
    with other_directory() as directory:
        shutil.copy(tiny_image(), directory / "image.qcow2")
        (directory / "image.qcow2").chmod(0o644)
        try:
            yield directory
        finally:
            for file in directory.glob("libvirt/run/qemu/instance-*.pid"):
                os.kill(int(file.read_text()), signal.SIGKILL)


@contextmanager
def machine(folder: Path) -> Iterator[BridgedHost]:
    """Have a machine whose users may make taps, as on Debian, and an outside that resolves names and has a page."""
    (folder / "index.html").write_text("reached\n")
    with bridged_host(folder / "host") as host, ExitStack() as stack:
        leave_outside(host)
        host.run("ip", "address", "add", f"{CLOSED}/24", "dev", "eth0", guest="outside")
        host.run("ip", "route", "add", "default", "via", OUTSIDE)
        host.run("mount", "-t", "tmpfs", "none", folder / "host")
        device, names = folder / "host" / "tun", folder / "name-servers"
        names.write_text(f"nameserver {OUTSIDE}\n")
        host.run("mknod", "-m", "666", device, "c", "10", "200")
        host.run("mount", "--bind", device, "/dev/net/tun")
        host.run("mount", "--bind", names, "/etc/resolv.conf")
        resolver = ("dnsmasq", "-k", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=")
        answers = ("--bind-interfaces", "--listen-address=" + OUTSIDE, f"--address=/there.example/{OUTSIDE}")
        stack.enter_context(running(host, *resolver, *answers, guest="outside"))
        page = ("busybox", "httpd", "-f", "-p", "8080", "-h", folder)
        stack.enter_context(running(host, *page, guest="outside"))
        stack.enter_context(running(host, *page))
        yield host


def asking(address: str) -> str:
    """Return what asks for a page with the programs of the guest."""
    return f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 3 nc {address} 8080"


async def inside(host: BridgedHost, key: Path, command: str) -> str:
    """Run a command in the guest, by the loopback port, and return what it says."""
    said = ""

    async def let_in() -> bool:
        nonlocal said
        status, said = host.ask(*ssh_command(key, PORT, f"{command}; echo status=$?"))
        return status == 0

    await eventually(let_in, f"the guest runs {command}", seconds=120)
    return said


def slirps(guest: int) -> list[str]:
    """Return the processes of slirp4netns that run for a guest, which is the process of its QEMU."""
    words = ["pgrep", "-r", "R,S,D", "-f", f"slirp4netns .*=/proc/{guest}/root/"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


async def test_a_guest_reaches_the_outside_and_nothing_of_the_machine(tmp_path: Path) -> None:
    key = tmp_path / "key"
    public = make_key(key)
    with machine(tmp_path) as host, guests_directory() as directory:
        with agent(host, directory, public) as first:
            assert "RUNNING" in first.do("boot")
            assert await inside(host, key, "hostname") == "one\nstatus=0\n"
            check_qemu(qemu(directory, UUID))
            looked = await inside(host, key, f"nslookup there.example; {asking('there.example')}")
            assert OUTSIDE in looked
            assert "reached" in looked
            others = " ".join((*OF_THE_MACHINE, CLOSED))
            looked = await inside(host, key, f"for one in {others}; do {asking('$one')} & done; wait")
            assert "reached" not in looked
            # They are there to be reached.
            for address in ("127.0.0.1", "192.0.2.1", CLOSED):
                assert host.run("busybox", "wget", "-q", "-O", "-", f"http://{address}:8080/") == "reached\n"
            first.process.kill()
        with agent(host, directory, public) as second:
            assert "RUNNING" in second.do("adopt")
            assert "reached" in await inside(host, key, asking("there.example"))
            number = qemu(directory, UUID)
            assert "RUNNING" in second.do("reboot")
            again = qemu(directory, UUID)
            assert again != number
            assert len(slirps(again)) == 1
            assert second.do("destroy") == "[]\n"

            async def none() -> bool:
                return [*slirps(number), *slirps(again)] == [] and str(PORT) not in host.run("ss", "-ltn")

            await eventually(none, "slirp4netns has ended with the guest")
            assert sorted(path.name for path in (directory / "way-out").iterdir()) == ["emulator"]
            assert list((directory / "guests").iterdir()) == []
        # Where only root makes taps, an agent that is to give its guests a way out says so.
        host.run("chmod", "600", "/dev/net/tun")
        status, said = host.ask(*command_of(directory, public))
        assert status != 0
        assert "way_out: slirp4netns is of no use here: /dev/net/tun: Permission denied; root has to let users" in said
