"""`skep up` as a program: a first start, a second one beside it, power lost, a start that finds everything."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import pty
import shutil
import signal
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

from skep.cli.openstack_client import client_environment
from skep.contracts.eventually import PATIENCE
from skep.contracts.neighbours.served import bound
from tests.support.installing import install
from tests.support.openstack import openstack, openstack_quiet, refusal

READY = "Ctrl-C stops"
EXAMPLE = Path(__file__).parents[3] / "examples" / "process_driver"


class Installation:
    """A state directory and the environment of commands that mean it."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory / "state"
        self.clouds_yaml = self.directory / "clouds.yaml"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SKEP_"))}
        ports = {f"SKEP_{name}__PORT": "0" for name in ("API", "IDENTITY", "IMAGES", "NETWORKS")}
        fast = {f"SKEP_COMPUTE__FAKE__{name}_DELAY": "0" for name in ("SPAWN", "DESTROY", "POWER")}
        self.environment = kept | ports | fast | {"SKEP_STATE__DIRECTORY": str(self.directory)} | settings

    def meaning(self, cloud: str) -> Installation:
        """Return the same, with an environment that names a cloud."""
        other = copy.copy(self)
        other.environment = self.environment | {"OS_CLIENT_CONFIG_FILE": str(self.clouds_yaml), "OS_CLOUD": cloud}
        return other

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "skep.cli",
            *arguments,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str) -> tuple[int | None, str, str]:
        process = await self.start(*arguments)
        out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
        return process.returncode, out.decode(), errors.decode()

    @contextlib.asynccontextmanager
    async def up(self, *arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
        """Run `skep up`; yields once it has said everything. Whatever happens, it is gone afterwards."""
        process = await self.start("up", *arguments)
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        lines: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE):
                async for line in process.stdout:
                    lines.append(line.decode().rstrip())
                    if READY in lines[-1]:
                        break
                else:
                    raise AssertionError((await errors).decode())
            yield process, lines
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await errors


async def test_from_the_first_start_to_the_second(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    async with installation.up("--hosts", "2") as (process, lines):
        said = "\n".join(lines)
        assert "2 cells, 4 hosts (4 up)." in lines[0]
        assert "This is a new cloud." in said
        assert "  Server one (" in said
        assert "): ACTIVE" in said
        assert "super conductor <-> scheduler: 4 hosts considered, chose cell" in said
        assert "  its addresses on auto_allocated_network: 10.100." in said
        assert installation.clouds_yaml.stat().st_mode & 0o777 == 0o600
        (one,) = await openstack(installation.clouds_yaml, "server", "list", "--all-projects")
        assert (one["Name"], one["Status"]) == ("one", "ACTIVE")
        assert list(one["Networks"]) == ["auto_allocated_network"]
        assert "nothing" in await refusal(installation.clouds_yaml, "flavor", "show", "nothing")
        status, out, errors = await installation.run("server", "explain", "one")
        assert (status, errors, out.startswith(f"Server one ({one['ID']}): ACTIVE")) == (0, "", True)
        status, out, _ = await installation.run("server", "list", "--format", "json")
        assert [row["id"] for row in json.loads(out)] == [one["ID"]]
        status, out, _ = await installation.run("doctor", "--format", "json")
        assert (status, {row["verdict"] for row in json.loads(out)}) == (0, {"good", "skipped"})
        assert (await installation.run("doctor", "--audit"))[0] == 0
        await its_log_tells_of_one_request(installation, one["ID"])
        await an_ordinary_user_looks(installation, one["ID"])
        status, out, errors = await installation.run("up")
        assert (status, out, len(errors.splitlines())) == (2, "", 1)
        assert "is in use by another process of Skep" in errors
        process.kill()
    async with installation.up("--hosts", "2") as (process, lines):
        assert "Found as it was left: 1 server (1 active)." in lines
        (again,) = await openstack(installation.clouds_yaml, "server", "list", "--all-projects")
        assert again["ID"] == one["ID"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def its_log_tells_of_one_request(installation: Installation, server: str) -> None:
    """From the API to the host, in order of time."""
    (created,) = [
        event
        for event in await openstack(installation.clouds_yaml, "server", "event", "list", server)
        if event["Action"] == "create"
    ]
    status, out, errors = await installation.run("request", created["Request ID"], "--format", "json")
    assert (status, errors) == (0, "")
    told = json.loads(out)
    assert {"request", "stage", "claim", "spawn", "built"} <= {line["event"] for line in told}
    assert [line["timestamp"] for line in told] == sorted(line["timestamp"] for line in told)
    assert {line["process"] for line in told} == {"all-in-one"}


async def test_a_terminal_shows_the_greeting_and_warnings(tmp_path: Path) -> None:
    installation = Installation(tmp_path, SKEP_API__MAX_LIMIT="7")
    leader, follower = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", "up", "--cells", "1", "--hosts", "1"),
        env=installation.environment | {"TERM": "dumb"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    try:
        shown = await asyncio.wait_for(asyncio.to_thread(_until_ready, leader), PATIENCE)
        assert "Skep serves at" in shown
        assert "request=req-" not in shown
        await openstack(installation.clouds_yaml, "flavor", "list")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.set_blocking(leader, False)
        with contextlib.suppress(OSError):
            assert b"request=req-" not in os.read(leader, 1 << 20)
        os.close(leader)


def _until_ready(terminal: int) -> str:
    shown = b""
    while READY.encode() not in shown:
        shown += os.read(terminal, 65536)
    return shown.decode()


async def an_ordinary_user_looks(installation: Installation, admins: str) -> None:
    """Own servers only, said so; and a deleted one is found by its name by admins."""
    status, out, errors = await installation.run("server", "list", "--format", "json", "--os-cloud", "skep-demo")
    assert (status, json.loads(out)) == (0, []), errors
    demo = installation.meaning("skep-demo")
    status, out, errors = await demo.run("server", "list", "--format", "json")
    assert (status, json.loads(out), "servers of your project" in errors) == (0, [], True)
    status, _, errors = await demo.run("server", "explain", "one")
    assert (status, errors) == (1, "skep: there is no server with the name or id one\n")
    status, out, _ = await demo.run("doctor", "--format", "json")
    names = {row["name"] for row in json.loads(out)}
    assert {"databases", "disk"} <= names, "it is this installation, though the environment names it"
    clouds = installation.clouds_yaml
    await openstack_quiet(clouds, "server", "create", "--image", "tiny", "--flavor", "m1.tiny", "--wait", "brief")
    await openstack_quiet(clouds, "server", "delete", "--wait", "brief")
    status, out, errors = await installation.run("server", "explain", "brief")
    assert (status, errors, "): deleted" in out) == (0, "", True)
    assert admins not in out


async def test_a_small_cloud_on_free_ports_stays_small(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    async with installation.up("--cells", "1", "--hosts", "1", "--no-first-server", "--free-ports") as (process, lines):
        assert not any("server explain" in line for line in lines), "there is no server to explain"
        process.send_signal(signal.SIGTERM)
        await process.wait()
    async with installation.up("--cells", "1") as (process, lines):
        assert "1 cell, 1 host (1 up)." in lines[0]


async def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with contextlib.closing(bound()) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        status, out, errors = await Installation(tmp_path, SKEP_IMAGES__PORT=str(port)).run("up")
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "images.port" in line


async def test_another_driver_does_not_take_over_the_hosts_of_the_first(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    async with installation.up("--cells", "1", "--hosts", "1") as (process, _):
        process.kill()
    site = tmp_path / "site"
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(site, "process_driver", project["entry-points"])
    shutil.copy(EXAMPLE / "process_driver.py", site)
    other = Installation(tmp_path, SKEP_COMPUTE__DRIVER="processes", PYTHONPATH=str(site))
    status, out, errors = await other.run("up")
    assert (status, out) == (2, "")
    assert 'compute.driver: host cell1-host1 has servers of the driver "fake" in ' in errors
    assert str(installation.directory / "hosts" / "cell1" / "cell1-host1") in errors
    async with installation.up() as (process, lines):
        assert "Found as it was left: 1 server (1 active)." in lines


async def test_the_demo_ends_well_and_tells_why(tmp_path: Path) -> None:
    status, out, errors = await Installation(tmp_path).run("demo", "--format", "json")
    assert status == 0, errors
    rows = {row["name"]: row for row in json.loads(out)}
    assert len(rows) == 21
    assert {row["cell"] for row in rows.values()} == {"cell0", "cell1", "cell2"}
    assert any(row["attempts"] > 1 and row["reason"].startswith("failed on") for row in rows.values())
    assert rows["too-large"]["reason"].startswith("No valid host: 6 hosts considered")
    assert not (tmp_path / "state").exists()


def test_clients_mean_this_cloud_and_no_other(tmp_path: Path) -> None:
    environment = client_environment(tmp_path / "clouds.yaml", "skep", {"OS_AUTH_URL": "elsewhere", "PATH": "/bin"})
    assert environment == {
        "PATH": "/bin",
        "OS_CLIENT_CONFIG_FILE": str(tmp_path / "clouds.yaml"),
        "OS_CLOUD": "skep",
    }
