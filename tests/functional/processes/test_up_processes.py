"""`skep up --processes` as a command: a first server by the real client, kill -9, found again, an end without rests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from skep.compute.drivers.fake import DISKS
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.loopback import plain_client
from skep.domain.guest_documents.proof import signature
from tests.support.openstack import openstack

SECRET = "of proxies and of the service"

pytestmark = [pytest.mark.needs_part("nats-server"), pytest.mark.needs_part("postgres")]


class Up:
    """The command over one state directory, once or again."""

    ARGUMENTS: tuple[str, ...] = ("--hosts", "1")
    GREETS_WITHIN = 1.5 * PATIENCE

    def __init__(self, folder: Path) -> None:
        self.within: Sequence[str] = ()
        """The words before the command: where it is run."""
        self.settings: Mapping[str, str] = {}
        """More of its variables."""
        self.state = folder / "state"
        self.folder = folder
        self.process: asyncio.subprocess.Process
        self.output = Path()

    async def start(self, name: str) -> str:
        """Start it and return its greeting."""
        self.output = self.folder / f"{name}.out"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SKEP_", "OS_"))}
        environment = kept | {
            "SKEP_STATE__DIRECTORY": str(self.state),
            "SKEP_IDENTITY__SCRYPT_COST": "10",
            "SKEP_METADATA__SERVICE_METADATA_PROXY": "true",
            "SKEP_METADATA__METADATA_PROXY_SHARED_SECRET": SECRET,
            **self.settings,
        }
        arguments = ("--processes", "--free-ports", "--cells", "1", "--schedulers", "1", *self.ARGUMENTS)
        with self.output.open("wb") as output:
            command = [*self.within, sys.executable, "-m", "skep.cli", "up", *arguments]
            self.process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)

        async def greeted() -> bool:
            assert self.process.returncode is None, self.output.read_text()
            return "Ctrl-C stops" in self.output.read_text()

        await eventually(greeted, "the cloud greets", seconds=self.GREETS_WITHIN)
        return self.output.read_text()

    async def refused(self, *arguments: str) -> str:
        """Run a command over the same directory that has to be refused; return what it says."""
        return await self.said(*arguments, status=2)

    async def said(self, *arguments: str, status: int = 0, more: Mapping[str, str] | None = None) -> str:
        """Run a command that is told of the directory, and of `more` variables; return what it says."""
        command = [sys.executable, "-m", "skep.cli", *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, "SKEP_STATE__DIRECTORY": str(self.state), **(more or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode == status, said
        return said.decode()

    async def end(self, number: signal.Signals) -> int:
        """End it and return its status."""
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), PATIENCE)

    def disks(self) -> list[bytes]:
        """Return the content of the disks of all guests."""
        return [path.read_bytes() for path in self.state.glob(f"hosts/*/*/{DISKS}/*")]

    def open_to_others(self) -> list[str]:
        """Return what another user of the machine could read or write."""
        return [str(path) for path in (self.state, *self.state.rglob("*")) if path.lstat().st_mode & 0o066]

    def running(self) -> list[str]:
        """Return the command lines of all processes of this cloud: roles, NATS, PostgreSQL."""
        return list(self.processes().values())

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes of this cloud by their numbers."""
        mark = str(self.state).encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            try:
                line, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except (OSError, ValueError):
                continue
            if entry.name.isdigit() and int(entry.name) != os.getpid() and (mark in line or mark in variables):
                found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found


async def knows_itself(greeting: str, clouds: Path, name: str) -> None:
    """Ask the metadata service as the proxy of a server."""
    [url] = [line.rpartition(" ")[2].rstrip(".") for line in greeting.splitlines() if "metadata service" in line]
    shown = await openstack(clouds, "server", "show", name)
    headers = {
        "X-Instance-ID": shown["id"],
        "X-Tenant-ID": shown["project_id"],
        "X-Instance-ID-Signature": signature(SECRET, shown["id"]),
    }
    async with plain_client(url) as proxy:
        answer = await proxy.get("/openstack/latest/meta_data.json", headers=headers)
    assert answer.json()["name"] == name, answer.text


@pytest.fixture
async def up(open_folder: Path) -> AsyncIterator[Up]:
    made = Up(open_folder)
    yield made
    if made.process.returncode is None:
        await made.end(signal.SIGTERM)


async def test_a_cloud_of_processes_is_killed_found_again_and_stopped(up: Up) -> None:
    greeting = await up.start("first")
    assert "This is a new cloud." in greeting
    assert "ACTIVE" in greeting
    assert "The password of admin is" in greeting
    assert up.open_to_others() == []
    await up.end(signal.SIGKILL)
    again = await up.start("second")
    assert "Found as it was left: 1 server (1 active)." in again
    clouds = up.state / "clouds.yaml"
    await openstack(clouds, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "two")
    [image] = [path.read_bytes() for path in up.state.glob("images/*.*")]
    assert image
    assert up.disks() == [image, image], "agents get images without a user"
    await knows_itself(again, clouds, "two")
    servers = await openstack(clouds, "server", "list")
    assert sorted((one["Name"], one["Status"]) for one in servers) == [("one", "ACTIVE"), ("two", "ACTIVE")]
    assert "cell0" in await up.said("db", "backup", str(up.folder / "backup"))
    assert {path.name for path in (up.folder / "backup").glob("*.dump")} == {"api.dump", "cell0.dump", "cell1.dump"}
    assert "3 at this release's schema" in await up.said("doctor")
    await openstack(clouds, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "three")
    running = await up.refused("db", "restore", str(up.folder / "backup"), "--yes")
    assert "is in use by another process of Skep" in running
    assert await up.end(signal.SIGTERM) == 0
    assert "Stopped. Everything is kept." in up.output.read_text()
    assert up.running() == []
    assert "cell1" in await up.said("db", "backup", str(up.folder / "later"))
    assert "Restored: cell0, cell1, api." in await up.said("db", "restore", str(up.folder / "backup"), "--yes")
    assert up.running() == []
    assert up.open_to_others() == []
    refused = await up.refused("up", "--free-ports")
    assert "runs in many processes: start it by `skep up --processes`" in refused
    third = await up.start("third")
    assert "Found as it was left: 2 servers (2 active)." in third
    assert await up.end(signal.SIGINT) == 0
