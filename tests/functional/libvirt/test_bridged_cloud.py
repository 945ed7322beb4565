"""A cloud whose guests are in networks of their host, as docs/libvirt-networks.md tries it: its commands, one by one.

The machine, and the namespace that plays the outside, are namespaces that the test makes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep.compute.drivers.libvirt.bridged.networks import LEASES
from skep.contracts.eventually import eventually
from tests.functional.libvirt.test_bridged_networks import pings
from tests.functional.libvirt.test_guests import check_confined
from tests.functional.libvirt.test_up import UpWithGuests
from tests.support import bridged_hosts, libvirt_hosts, tiny_guests
from tests.support.bridged_hosts import BridgedHost, bridged_host
from tests.support.openstack import serving_client
from tests.support.supervised_cloud import new_open_folder
from tests.support.tiny_guests import tiny_image
from tests.support.written_commands import blocks_under

pytestmark = [
    *libvirt_hosts.PARTS,
    *tiny_guests.PARTS,
    *bridged_hosts.PARTS,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.timeout(600),
]

PAGE = Path(__file__).parents[3] / "docs" / "libvirt-networks.md"
OPTIONS = {"virt_type": "qemu", "networks": "bridge", "outside_interface": "out"}
METADATA = "http://169.254.169.254/openstack/latest/meta_data.json"
SOON = 30
"""Seconds, of which a host that has nothing else to do takes six."""
FIRST_BOOT = 90


class Shell:
    """A user's shell on the host."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *lines: str) -> tuple[bool, str]:
        """Run lines until one fails; tell whether none did, and what they said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" &&\n".join(lines) + "\necho status=$?\n")
        self._process.stdin.flush()
        said = ""
        for line in self._process.stdout:
            before, is_end, status = line.partition("status=")
            said += before
            if is_end:
                return status == "0\n", said
        raise AssertionError(f"the shell ended: {said}")

    def run(self, *lines: str) -> str:
        """Run lines that have to succeed."""
        succeeded, said = self.ask(*lines)
        assert succeeded, said
        return said


@contextmanager
def shell(host: BridgedHost, folder: Path, clouds: Path) -> Iterator[Shell]:
    """Have a shell in a folder, with the client and its variables."""
    with serving_client(host.command()) as client:
        variables = {
            "PATH": f"{client.parent}:{os.environ['PATH']}",
            "OS_CLIENT_CONFIG_FILE": str(clouds),
            "OS_CLOUD": "skep-demo",
        }
        command = host.command("sh", "-c", 'cd "$1" && exec sh', "sh", folder)
        with subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            yield Shell(process)


@pytest.fixture
async def placed() -> AsyncIterator[tuple[BridgedHost, UpWithGuests]]:
    """A host, and the command that is to be run on it."""
    with new_open_folder() as folder:
        up = UpWithGuests(folder)
        with bridged_host(up.guests / "networks") as host:
            up.within = host.command()
            up.settings = {
                "SKEP_IMAGES__FIRST_IMAGE": str(tiny_image()),
                "SKEP_COMPUTE__DRIVER_OPTIONS": json.dumps(OPTIONS),
                "SKEP_METADATA__SERVICE_METADATA_PROXY": "true",
                "SKEP_METADATA__METADATA_PROXY_SHARED_SECRET": "of agents and service",
            }
            yield host, up
            if up.process.returncode is None:
                await up.end(signal.SIGTERM)
        up.remove_guests()


def banner(address: str, program: str = "nc") -> str:
    """Return what asks a guest for its first words to ssh; what leads there may end meanwhile."""
    return f"timeout 3 {program} {address} 22 </dev/null 2>&1 | head -n 1"


def left_on(host: BridgedHost, leases: Path) -> str:
    """Return what of networks of guests is on a host: links, namespaces, leases."""
    links = [one["ifname"] for one in json.loads(host.run("ip", "-json", "link"))]
    spaces = [line.split()[0] for line in host.run("ip", "netns", "list").splitlines()]
    ours = [name for name in (*links, *spaces) if name.startswith(("tap", "sk-"))]
    return " ".join([*ours, *(path.name for path in leases.iterdir())])


async def test_the_page_is_true_of_a_whole_cloud(placed: tuple[BridgedHost, UpWithGuests]) -> None:
    host, up = placed
    _, outside, start, make, enter, close, open_again, lead_away, delete = blocks_under(PAGE, "### Try bridges")
    assert f"DRIVER_OPTIONS='{json.dumps(OPTIONS)}'" in start[1], "the cloud of the page is this one"
    for line in outside:
        host.run(*line.split())
    # The client is imported while the cloud starts.
    with shell(host, up.folder, up.state / "clouds.yaml") as user:
        greeting = await up.start("first")
        assert "Its guest is in a network of its host." in greeting, greeting
        assert "127.0.0.1 hostname" not in greeting, "no loopback port leads there"
        check_confined(up.agent(), bridge=True)
        user.run(*make)
        address = user.run("echo $ADDRESS").strip()
        another = make[-3].replace("--wait two", "three")
        user.run(another)

        async def lets_in() -> bool:
            """Whether the guest answers to ssh, at its floating address and from outside."""
            return "SSH-" in host.run("sh", "-c", banner(address, "busybox nc"), guest="outside")

        async def does_not() -> bool:
            return not await lets_in()

        await eventually(lets_in, "the guest has booted", seconds=FIRST_BOOT)
        [line] = enter
        assert user.run(f"timeout 30 {line} 2>&1 | tail -n 1") == "two\n"
        assert pings(host, "outside", address)
        fixed = user.run("openstack server show -f json -c addresses three")
        [other] = json.loads(fixed)["addresses"]["private"]

        async def reaches_the_other() -> bool:
            inside = line.replace("hostname", f"'{banner(other)}'")
            return "SSH-" in user.ask(f"timeout 30 {inside}")[1]

        await eventually(reaches_the_other, "guests reach each other", seconds=FIRST_BOOT)
        fetch = line.replace("hostname", f"'wget -q -O - {METADATA}'")
        told = user.run(f"timeout 60 {fetch} 2>&1 | tail -n 1")
        assert json.loads(told)["name"] == "two", "the real service answers by the agent"
        user.run(*close)
        await eventually(does_not, "no rule lets anything in", seconds=SOON)
        assert pings(host, "outside", address), "another rule does"
        user.run(*open_again)
        await eventually(lets_in, "a rule lets it in", seconds=SOON)
        user.run(*lead_away)
        await eventually(does_not, "nothing leads to the guest", seconds=SOON)
        user.run(*delete, "openstack server delete three", "OS_CLOUD=skep openstack server delete one")

    async def nothing_left() -> bool:
        return not left_on(host, up.guests / "networks" / LEASES)

    await eventually(nothing_left, "nothing of the networks is left", seconds=SOON)
    assert await up.end(signal.SIGINT) == 0
    assert up.running() == []
