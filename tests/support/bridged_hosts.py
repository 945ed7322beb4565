"""Hosts with networks of their own, each in namespaces that a test makes: the machine's own network is never touched.

`python -m tests.support.bridged_hosts DIRECTORY` makes the host in which it runs as standard input says; with a number
after it, the process dies before it starts so many programs; with `answers`, it answers guests until standard input
ends.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Network
from pathlib import Path

import msgspec
import pytest

from skep.compute.drivers.libvirt.bridged import dnsmasq, programs
from skep.compute.drivers.libvirt.bridged.networks import LEASES, BridgedNetworks
from skep.compute.drivers.libvirt.bridged.options import BridgeOptions
from skep.domain.host_networks import HostNetworks, PluggedPort

ROOT = Path(__file__).parents[2]
PARTS = tuple(pytest.mark.needs_part(part) for part in ("ip", "nft", "dnsmasq", "unshare", "nsenter", "busybox"))
TRANSIT = IPv4Network("100.127.0.0/24")
KILLED = 77
"""The status of a process that died where the test wanted it to."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is to be made to."""

    options: BridgeOptions
    wanted: HostNetworks | None
    """None: what it was when it was last told."""
    kept: tuple[str, ...] = ()
    then: tuple[tuple[str, ...], ...] = ()
    """Commands, after each of which the same process makes it so once more."""


class BridgedHost:
    """A host: a process that holds its namespaces, and what is run in them."""

    def __init__(self, process: int, directory: Path, options: BridgeOptions) -> None:
        self.process = process
        self.directory = directory
        self.options = options

    def command(self, *words: str | Path, guest: str | None = None) -> list[str]:
        """Return what runs a command on the host, or in a namespace of it."""
        within = () if guest is None else ("ip", "netns", "exec", guest)
        return ["nsenter", "-t", str(self.process), "-m", "-n", f"--wd={ROOT}", *within, *map(str, words)]

    def ask(self, *words: str | Path, guest: str | None = None, told: str = "") -> tuple[int, str]:
        """Run a command; return its status and what it said."""
        command = self.command(*words, guest=guest)
        done = subprocess.run(command, check=False, input=told, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def run(self, *words: str | Path, guest: str | None = None, told: str = "") -> str:
        """Run a command that has to succeed."""
        status, said = self.ask(*words, guest=guest, told=told)
        assert status == 0, f"{words}: {said}"
        return said

    def make_so(self, wanted: HostNetworks | None, kept: Sequence[str] = (), *, dies_at: int = 0) -> bool:
        """Make the host so; tell whether that came to its end."""
        task = msgspec.json.encode(Task(options=self.options, wanted=wanted, kept=tuple(kept)), enc_hook=str).decode()
        command = (sys.executable, "-m", "tests.support.bridged_hosts", self.directory, str(dies_at))
        status, said = self.ask(*command, told=task)
        assert status in (0, KILLED), said
        return status == 0

    def make_so_again(self, wanted: HostNetworks, *then: Sequence[str]) -> list[int]:
        """Make the host so, and by the same process once more after each of these commands; return how many programs
        it started each time."""
        task = Task(options=self.options, wanted=wanted, then=tuple(map(tuple, then)))
        told = msgspec.json.encode(task, enc_hook=str).decode()
        said = self.run(sys.executable, "-m", "tests.support.bridged_hosts", self.directory, "0", told=told)
        return [int(line) for line in said.splitlines() if line.isdigit()]  # the others are of the log

    @contextmanager
    def answering(self, wanted: HostNetworks) -> Iterator[None]:
        """Make the host so, and answer its guests meanwhile, as its agent does."""
        task = msgspec.json.encode(Task(options=self.options, wanted=wanted), enc_hook=str).decode()
        command = self.command(sys.executable, "-m", "tests.support.bridged_hosts", self.directory, "answers")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{task}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "answers\n"
            yield
            process.stdin.close()
            assert process.wait(timeout=30) == 0

    def add_guest(self, name: str, port: PluggedPort) -> None:
        """Have a guest: a namespace, whose one link is plugged as the port's tap would be."""
        tap = f"tap{port.id}"[:14]
        self.run("ip", "netns", "add", name)
        self.run("ip", "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", name)
        self.run("ip", "link", "set", tap, "alias", "skep")
        self.run("ip", "link", "set", "eth0", "address", port.mac_address, "up", guest=name)
        self.run("ip", "link", "set", "lo", "up", guest=name)


@contextmanager
def bridged_host(directory: Path, options: BridgeOptions | None = None) -> Iterator[BridgedHost]:
    """Have a host whose namespaces end with it. Skips loudly without the rights, and fails then in CI."""
    lacks = programs.missing()
    if lacks:
        assert os.environ.get("CI") != "true", lacks
        pytest.skip(f"a host has no networks of its own here: {'; '.join(lacks)}")
    directory.mkdir(parents=True, exist_ok=True)
    # Namespaces of the test have names that no other process sees.
    script = "mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && echo ready && exec cat"
    with ExitStack() as stack:
        holder = subprocess.Popen(
            ["unshare", "-m", "-n", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        stack.callback(_end, holder)
        stack.callback(dnsmasq.make_so, {}, directory / LEASES)
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        yield BridgedHost(holder.pid, directory, options or BridgeOptions(transit=TRANSIT))


def _end(holder: subprocess.Popen[bytes]) -> None:
    holder.communicate(timeout=30)


def join(first: BridgedHost, second: BridgedHost) -> None:
    """Join two hosts by a cable, with the addresses of their tunnels."""
    link = ("ip", "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", str(second.process))
    first.run(*link)
    for host in (first, second):
        host.run("ip", "address", "add", f"{host.options.tunnel_address}/24", "dev", "under")
        host.run("ip", "link", "set", "under", "up")


async def answer(networks: BridgedNetworks, wanted: HostNetworks) -> None:
    """Answer guests until standard input ends."""
    await networks.answer(wanted)
    sys.stdout.write("answers\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    networks.close()


def main(directory: Path, dies_at: int, *, answers: bool) -> None:
    """Make the host so in which this process runs."""
    task = msgspec.json.decode(sys.stdin.readline(), type=Task, dec_hook=lambda kind, told: kind(told))
    plain, started = programs._run, 0

    def run(arguments: Sequence[str], told: str = "") -> bytes:
        nonlocal started
        started += 1
        if started == dies_at:
            os._exit(KILLED)
        return plain(arguments, told)

    programs._run = run
    networks = BridgedNetworks(task.options, directory)
    if task.wanted is None:
        networks.restore()
    else:
        networks.make_so(task.wanted, lambda: task.kept)
        for command in task.then:
            before = started
            subprocess.run(command, check=True)
            networks.make_so(task.wanted, lambda: task.kept)
            sys.stdout.write(f"{started - before}\n")
        if answers:
            asyncio.run(answer(networks, task.wanted))


if __name__ == "__main__":
    main(Path(sys.argv[1]), 0 if sys.argv[2] == "answers" else int(sys.argv[2]), answers=sys.argv[2] == "answers")
