"""Commands that go through HTTP: run as programs against an admin API that really listens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skep.admin.app import AdminApi
from skep.contracts.eventually import PATIENCE
from skep.contracts.neighbours.served import address, bound, serving
from skep.database.api.tables import build_requests, quota_sums
from tests.support.admin import CELL1, Admin, admin_under_test, host_state
from tests.support.served_admin import served_admin


@dataclass
class CommandLine:
    admin: Admin
    environment: dict[str, str]

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "skep.cli",
            *arguments,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert process.returncode is not None
        return process.returncode, out.decode(), errors.decode()

    async def json(self, *arguments: str, status: int = 0) -> Any:
        ended, out, errors = await self.run(*arguments, "--format", "json")
        assert ended == status, errors
        return json.loads(out)


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[CommandLine]:
    listener = bound()
    url = address(listener)
    async with admin_under_test(tmp_path) as admin, serving((AdminApi(admin.services), listener)):
        clouds = {
            name: {"auth_type": "admin_token", "auth": {"endpoint": f"{url}/v2.1", "token": name}}
            for name in ("admin", "owner", "forged")
        }
        clouds["away"] = {"auth_type": "admin_token", "auth": {"endpoint": "http://127.0.0.1:9/v2.1", "token": "admin"}}
        file = tmp_path / "clouds.yaml"
        file.write_text(json.dumps({"clouds": clouds}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "SKEP_"))}
        environment = kept | {"OS_CLIENT_CONFIG_FILE": str(file), "OS_CLOUD": "admin"}
        free = {f"SKEP_{service}__PORT": "0" for service in ("API", "IDENTITY", "IMAGES", "NETWORKS")}
        yield CommandLine(admin, environment | free | {"SKEP_STATE__DIRECTORY": str(tmp_path / "state")})
    listener.close()


async def test_cells_and_hosts(line: CommandLine) -> None:
    assert [cell["name"] for cell in await line.json("cell", "list")] == ["cell0", "cell1", "cell2"]
    assert (await line.json("cell", "disable", "cell2"))["disabled"] is True
    assert (await line.json("host", "disable", "h1", "--reason", "fan"))["disabled_reason"] == "fan"
    status, out, _ = await line.run("host", "list", "--cell", "cell1")
    assert status == 0
    assert "h1" in out
    assert "fan" in out
    assert "h2" not in out
    status, out, _ = await line.run("host", "enable", "h1")
    assert (status, out.count("\n"), out.startswith("h1 is enabled")) == (0, 1, True)


HEAVY = (
    "openstack",
    "keystoneauth1",
    "requests",
    "httpx",
    "sqlalchemy",
    "alembic",
    "numpy",
    "starlette",
    "rich.console",
)
"""What takes long to import, and no command needs that only asks the running cloud."""
LIGHT = """
import sys
from skep.cli.main import skep
for words in {commands}:
    skep(words, standalone_mode=False)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


async def test_commands_that_ask_the_cloud_import_little(line: CommandLine) -> None:
    server = await line.admin.server(CELL1)
    commands = [
        *([noun, "list"] for noun in ("cell", "host", "namespace")),
        ["cell", "show", "cell1"],
        ["host", "disable", "h1"],
        ["server", "explain", server.uuid],
        ["cell", "credential", "list", "cell1"],
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LIGHT.format(commands=commands),
        env=line.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, errors.decode()
    assert b"h1" in out
    imported = set(errors.decode().split())
    assert "skep.cli.plain_session" in imported
    ours = {name for name in imported if name.startswith(("skep.database", "skep.processes", "skep.cli.benchmarks"))}
    assert (imported & {*HEAVY}) | ours == set()


async def test_what_is_not_plain_is_left_to_the_sdk(line: CommandLine, tmp_path: Path) -> None:
    def write(endpoint: str) -> None:
        entry = {"auth_type": "admin_token", "auth": {"endpoint": endpoint, "token": "admin"}}
        file.write_text(json.dumps({"clouds": {"admin": {**entry, "compute_api_version": "2.1"}}}))

    file = tmp_path / "clouds.yaml"
    write(json.loads(await asyncio.to_thread(file.read_text))["clouds"]["admin"]["auth"]["endpoint"])
    assert [cell["name"] for cell in await line.json("cell", "list")] == ["cell0", "cell1", "cell2"]
    write("http://127.0.0.1:9/v2.1")
    away = "nothing answers at http://127.0.0.1:9/admin/v1/cells: is the cloud running?"
    assert await line.run("cell", "list") == (1, "", f"skep: {away}\n")


async def test_fencing_says_what_it_means_and_asks(line: CommandLine) -> None:
    status, _, errors = await line.run("host", "fence", "h1")
    assert status != 0
    assert "dead for good" in errors
    status, _, errors = await line.run("host", "fence", "h1", "--yes")
    assert status != 0
    assert "not forced down" in errors
    await line.run("host", "force-down", "h1")
    line.admin.scheduler.states = [host_state("h1", CELL1, up=False)]
    status, out, _ = await line.run("host", "fence", "h1", "--yes")
    assert (status, "`skep host unfence h1`" in out) == (0, True)
    status, out, _ = await line.run("host", "unfence", "h1")
    assert (status, out) == (0, "h1 is not fenced: its servers stay.\n")
    line.admin.scheduler.states = []
    status, _, errors = await line.run("host", "fence", "h1", "--yes")
    assert (status != 0, "although_unknown" in errors) == (True, True)
    status, out, errors = await line.run("host", "fence", "h1", "--yes", "--although-unknown")
    assert (status, "It may run its" in errors) == (0, True)


async def test_a_server_is_explained(line: CommandLine) -> None:
    server = await line.admin.server(CELL1)
    status, out, errors = await line.run("server", "explain", server.uuid)
    assert (status, errors) == (0, "")
    assert out.startswith(f"Server one ({server.uuid}): ACTIVE\n")
    assert "rejected by capacity: h1" in out
    told = json.loads((await line.run("server", "explain", server.uuid, "--json"))[1])
    assert (told["host"], [one["host"] for one in told["attempts"]]) == ("h1", ["h1"])
    status, out, _ = await line.run("server", "explain", server.uuid, "--os-cloud", "owner")
    assert (status, "h1" in out) == (0, False)


async def test_capacity_is_counted(line: CommandLine) -> None:
    async with served_admin(line.admin):
        status, out, errors = await line.run("capacity", "--flavor", "m1.tiny", "--keep-free-hosts", "1")
        assert (status, errors) == (0, "")
        assert out.startswith("8 more servers of m1.tiny fit\n  each takes 1 VCPU, 512 MEMORY_MB, 1 DISK_GB\n")
        assert "  what runs out first on the suitable hosts:\n      1 VCPU\n  free on them then: 0 VCPU" in out
        assert "kept free: h" in out
        found = await line.json("capacity", "--flavor", "1", "--az", "nova")
        assert (found["servers"], [room["name"] for room in found["zones"]]) == (16, ["nova"])
        status, out, _ = await line.run("capacity", "--flavor", "1", "--json")
        assert (status, json.loads(out)["servers"]) == (0, 16)
        said = "skep: availability_zone: there is no zone 'west'. (404)\n"
        assert await line.run("capacity", "--flavor", "1", "--az", "west") == (1, "", said)


async def test_refusals_are_one_line(line: CommandLine) -> None:
    cases = [
        (("cell", "show", "none"), "skep: There is no cell 'none'. (404)\n"),
        (("cell", "list", "--os-cloud", "owner"), "skep: This request needs the role admin. (403)\n"),
        (
            ("cell", "list", "--os-cloud", "forged"),
            "skep: X-Auth-Token: expected a valid token. (401)\n",
        ),
    ]
    for arguments, said in cases:
        assert await line.run(*arguments) == (1, "", said)
    away = "nothing answers at http://127.0.0.1:9/admin/v1/cells: is the cloud running?"
    assert await line.run("cell", "list", "--os-cloud", "away") == (1, "", f"skep: {away}\n")
    status, _, errors = await line.run("cell", "list", "--os-cloud", "unknown")
    assert (status, errors.startswith("skep: which cloud?")) == (2, True)


async def test_doctor_tells_a_member_to_sign_in_as_an_admin(line: CommandLine) -> None:
    checks = {check["name"]: check for check in await line.json("doctor", "--os-cloud", "owner", status=1)}
    advice = "Sign in as an admin (OS_CLOUD=skep for a cloud of `skep up`)."
    assert (checks["token"]["verdict"], checks["cloud"]["verdict"]) == ("good", "bad")
    assert checks["cloud"]["message"] == f"This request needs the role admin. (403) {advice}"
    status, out, errors = await line.run("doctor", "--audit", "--os-cloud", "owner")
    assert (status, out, advice in errors) == (1, "", True)


async def test_doctor_and_audit(line: CommandLine) -> None:
    server = await line.admin.server(None)
    assert (await line.json("doctor", "--audit"))["differences"] == []
    await line.admin.write(build_requests.delete())
    status, out, errors = await line.run("doctor", "--audit")
    assert (status, "mapping_without_request" in out, server.uuid in out) == (1, True, True)
    assert errors.endswith("skep: 1 difference\n")
    status, out, errors = await line.run("doctor", "--audit", "--repair")
    assert (status, "delete the server" in out, "Nothing was changed" in out) == (1, True, True)
    assert errors.endswith("skep: 1 difference left\n")
    await line.admin.write(quota_sums.update().values(cores=9))
    done = await line.json("doctor", "--audit", "--repair", "--yes", status=1)
    assert (done["mended"], done["dry_run"]) == (1, False)
    assert {one["kind"]: one["outcome"] for one in done["differences"]}["quota_sum"] == "mended"
    for wrong in (("--repair",), ("--audit", "--yes")):
        assert (await line.run("doctor", *wrong))[0] == 2
    checks = {check["name"]: check for check in await line.json("doctor")}
    assert checks["ready"]["verdict"] == "good"
    assert checks["hosts"]["message"] == "2 up"
    assert checks["installation"]["verdict"] == "skipped"
    assert not {"databases", "disk", "state directory", "api port"} & set(checks), (
        "they are not of the cloud that is meant"
    )
