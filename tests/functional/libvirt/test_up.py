"""`skep up --processes --driver libvirt` as a command: two commands to a machine that one can log into."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.supervisor.real_hosts import guests_directory
from tests.functional.libvirt.test_guests import check_confined, check_qemu, qemu, readable_by_others
from tests.functional.processes.test_up_processes import Up
from tests.support import tiny_guests
from tests.support.libvirt_hosts import PARTS, is_root
from tests.support.openstack import OpenStackClient, openstack, openstack_quiet
from tests.support.supervised_cloud import new_open_folder
from tests.support.tiny_guests import run

pytestmark = [
    *PARTS,
    *tiny_guests.PARTS,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.timeout(900),
]

SCRIPT = Path(__file__).parents[3] / "scripts" / "system-packages"
HOST = "cell1-host1"


class UpWithGuests(Up):
    """The command with real guests."""

    ARGUMENTS: tuple[str, ...] = ("--driver", "libvirt")

    @property
    def guests(self) -> Path:
        return guests_directory(self.state, HOST)

    def agent(self) -> int:
        """Return the process of the agent."""
        [number] = [number for number, line in self.processes().items() if " serve compute" in line]
        return number

    def left(self) -> list[Path]:
        return list((self.guests / "guests").iterdir())

    def remove_guests(self) -> None:
        """End what a failed test left."""
        for pid in self.guests.glob("libvirt/run/qemu/instance-*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
        if is_root():
            shutil.rmtree(self.guests.parent, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_open_folder() as made:
        yield made


@pytest.fixture
async def up(folder: Path) -> AsyncIterator[UpWithGuests]:
    made = UpWithGuests(folder)
    # As root guests would have networks of this very machine: test_up_as_root.py has a machine for them.
    made.settings = {"SKEP_COMPUTE__DRIVER_OPTIONS": json.dumps({"virt_type": "qemu", "networks": "user"})}
    yield made
    if made.process.returncode is None:
        await made.end(signal.SIGTERM)
    made.remove_guests()


def runs(number: int) -> bool:
    return Path(f"/proc/{number}").exists()


def ssh_line(greeting: str) -> str:
    """Return the command of a greeting that a user would type."""
    [line] = [line.strip() for line in greeting.splitlines() if line.strip().startswith("$ ssh ")]
    return line.removeprefix("$ ")


async def attend(of_cloud: Mapping[str, str], typed: bytes, awaited: bytes) -> None:
    """Type at the console of the server `one` until it says something, and leave it."""
    console = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", "server", "console", "one"),
        env={**os.environ, **of_cloud},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert console.stdin is not None
    assert console.stdout is not None
    console.stdin.write(typed)
    await asyncio.wait_for(console.stdout.readuntil(awaited), PATIENCE)
    console.stdin.write(b"\x1d")
    assert await asyncio.wait_for(console.wait(), PATIENCE) == 0


async def test_the_greeting_leads_into_the_first_server(up: UpWithGuests) -> None:
    greeting = await up.start("first")
    assert "Its guest has booted." in greeting, greeting
    line = ssh_line(greeting)
    assert await run(["sh", "-c", line]) == (0, "one\n")
    clouds = up.state / "clouds.yaml"
    shown = await openstack(clouds, "server", "show", "one")
    check_qemu(qemu(up.guests, shown["id"]))
    check_confined(up.agent())
    assert not is_root() or readable_by_others(up.guests) == ""
    of_cloud = {"OS_CLIENT_CONFIG_FILE": str(clouds), "OS_CLOUD": "skep"}
    log = await OpenStackClient(clouds).run("console", "log", "show", "one")
    assert "TINY-BOOT host=one" in log
    await attend(of_cloud, b"echo it-is-$(hostname)\n", b"it-is-one")
    key = str(up.state / "first-key")
    inside = await up.said("server", "ssh", "-i", key, "one", "cat", "/state/boots", more=of_cloud)
    assert inside == "1\n"
    await up.end(signal.SIGKILL)
    again = await up.start("second")
    assert "Found as it was left: 1 server (1 active)." in again
    assert f"  skep server ssh -i {key} one\n" in again
    assert await run(["sh", "-c", f"{line.removesuffix('hostname')} cat /state/boots"]) == (0, "1\n"), "it ran on"
    number = qemu(up.guests, shown["id"])
    await openstack_quiet(clouds, "server", "delete", "--wait", "one")

    async def gone() -> bool:
        return not runs(number) and up.left() == []

    await eventually(gone, "nothing of the guest is left")
    assert await up.end(signal.SIGINT) == 0
    assert up.running() == []


def test_a_user_who_may_install_nothing_is_told_one_command(tmp_path: Path) -> None:
    """No program is found on this path, and the user is not root."""
    programs = {"id": "echo 1000", "apt-get": "exit 9", "stat": "exit 9"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT), "guests"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    [_, command] = done.stderr.splitlines()
    assert command.startswith("  apt-get update && apt-get install ")
    assert {"qemu-system-x86", "qemu-utils", "openssh-client"} <= set(command.split())
