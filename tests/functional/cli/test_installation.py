"""An installation that is started again: with fewer cells, without a file that belongs to it, without its passwords."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from skep.cli.main import skep
from skep.config.sections import CellSettings, Config
from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, signed_in
from skep.domain.errors import Misconfigured
from skep.processes.all_in_one import AllInOneCloud, make_cloud
from skep.processes.seeds import passwords_in


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return http_config(tmp_path)


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE", "SKEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


async def run(*arguments: str) -> Result:
    """Run a command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, skep, arguments, prog_name="skep")


async def program(*arguments: str) -> tuple[int | None, str]:
    """Run a command that needs a cloud as a program; return its status and what it said of errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skep.cli", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    return process.returncode, errors.decode()


@contextlib.asynccontextmanager
async def started(config: Config, cells: int | None = None, hosts: int | None = None) -> AsyncIterator[AllInOneCloud]:
    """Run a cloud that is asked for so many cells and hosts, or for nothing in particular."""
    cloud = make_cloud(config, cells=cells, hosts=hosts)
    await cloud.start()
    try:
        async with httpx.AsyncClient(base_url=cloud.api_url.removesuffix("/v2.1"), timeout=PATIENCE) as client:

            async def ready() -> bool:
                answer = await client.get("/readyz")
                return answer.status_code == 200 and not answer.json()["warnings"]

            await eventually(ready, "the cloud is ready")
        yield cloud
    finally:
        await cloud.stop()


async def admin(session: ComputeSession, method: str, path: str, body: object = None) -> httpx.Response:
    origin = str(session.client.base_url).partition("/v2.1")[0]
    return await session.ask(method, f"{origin}/admin/v1{path}", body)


async def create_in(cloud: AllInOneCloud, session: ComputeSession, count: int) -> list[str]:
    image = (await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})).json()
    body = {"name": "s", "imageRef": image["images"][0]["id"], "flavorRef": "1", "min_count": count, "networks": "none"}
    answer = await session.ask("POST", "/servers", {"server": body}, version="2.37")
    assert answer.status_code == 202, answer.text
    return await active(session, count)


async def active(session: ComputeSession, count: int) -> list[str]:
    async def look() -> list[str]:
        found = (await session.ask("GET", "/servers?status=ACTIVE")).json()["servers"]
        return [one["id"] for one in found] if len(found) == count else []

    return await eventually(look, f"{count} servers are ACTIVE")


async def cell_names(session: ComputeSession) -> list[str]:
    return [cell["name"] for cell in (await admin(session, "GET", "/cells")).json()["cells"]]


async def test_a_start_with_less_loses_nothing(config: Config) -> None:
    async with started(config, cells=2, hosts=2) as cloud, signed_in(cloud) as session:
        made = await create_in(cloud, session, 4)
    async with started(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        assert cloud.notes == [
            "the installation has 2 cells, all stay: cell1, cell2",
            "cell1 has 2 hosts, all stay",
            "cell2 has 2 hosts, all stay",
        ]
        assert sorted(await active(session, 4)) == sorted(made)
    renamed = config_with(config, "east")
    async with started(renamed) as cloud, signed_in(cloud) as session:
        assert await cell_names(session) == ["cell0", "cell1", "cell2", "east"]
        assert sorted(await active(session, 4)) == sorted(made)
        assert len(cloud.notes) == 2
        assert all("is not in the configuration" in note for note in cloud.notes)


async def test_more_cells_and_hosts_are_added(config: Config) -> None:
    async with started(config, cells=1, hosts=1):
        pass
    async with started(config, cells=2, hosts=2) as cloud:
        assert sorted(cloud.plane.agents) == ["cell1-host1", "cell1-host2", "cell2-host1", "cell2-host2"]


async def test_a_cell_is_deleted_once_nothing_is_in_it(config: Config) -> None:
    async with started(config, cells=2, hosts=1) as cloud, signed_in(cloud) as session:
        (server,) = await create_in(cloud, session, 1)
        shown = await session.ask("GET", f"/servers/{server}")
        cell = shown.json()["server"]["OS-EXT-SRV-ATTR:host"].partition("-")[0]
        (other,) = {"cell1", "cell2"} - {cell}
        refused = await admin(session, "DELETE", f"/cells/{cell}")
        assert (refused.status_code, "holds 1 servers and 1 hosts" in refused.text) == (409, True)
        assert (await admin(session, "DELETE", "/cells/cell0")).status_code == 409
        assert (await admin(session, "DELETE", "/cells/none")).status_code == 404
        assert (await admin(session, "DELETE", f"/cells/{other}?hosts=perhaps")).status_code == 400
        assert "disable it first" in (await admin(session, "DELETE", f"/cells/{other}")).text
        await admin(session, "PATCH", f"/cells/{other}", {"disabled": True})
        assert "has 1 hosts" in (await admin(session, "DELETE", f"/cells/{other}")).text
        gone = await admin(session, "DELETE", f"/cells/{other}?hosts=true")
        assert (gone.status_code, gone.json()["cell"]["hosts"]) == (200, [f"{other}-host1"])
        assert await cell_names(session) == ["cell0", cell]
        assert [host["host"] for host in (await admin(session, "GET", "/hosts")).json()["hosts"]] == [f"{cell}-host1"]
        await create_more(cloud, session)
    async with started(config) as cloud, signed_in(cloud) as session:
        assert await cell_names(session) == ["cell0", cell]
        assert len(await active(session, 2)) == 2


async def create_more(cloud: AllInOneCloud, session: ComputeSession) -> None:
    image = (await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})).json()
    body = {"name": "more", "imageRef": image["images"][0]["id"], "flavorRef": "1", "networks": "none"}
    assert (await session.ask("POST", "/servers", {"server": body}, version="2.37")).status_code == 202
    await active(session, 2)


async def test_a_lost_database_of_a_cell_is_refused_until_it_is_given_up(config: Config, tmp_path: Path) -> None:
    async with started(config, cells=2, hosts=1) as cloud, signed_in(cloud) as session:
        made = await create_in(cloud, session, 4)
    assert ((await forget("cell2")).exit_code, (await forget("none")).exit_code) == (2, 2)
    lost = tmp_path / "state/db/cell2.db"
    lost.rename(tmp_path / "away.db")
    with pytest.raises(Misconfigured, match=f"cell2, {lost}, is missing"):
        await make_cloud(config).start()
    assert not lost.exists()
    refused = await run("db", "upgrade")
    assert (refused.exit_code, f"{lost}, is missing" in refused.stderr) == (2, True)
    checked = await run("doctor", "--format", "json")
    (databases,) = (check for check in json.loads(checked.stdout) if check["name"] == "databases")
    assert (databases["verdict"], f"{lost}, is missing" in databases["message"]) == ("bad", True)
    assert (await run("db", "forget-cell", "cell2")).exit_code == 2
    told = await forget("cell2")
    assert (told.exit_code, told.stdout.startswith("Cell cell2 is forgotten; ")) == (0, True)
    async with started(config) as cloud, signed_in(cloud) as session:
        assert await cell_names(session) == ["cell0", "cell1"]
        left = (await session.ask("GET", "/servers")).json()["servers"]
        assert {one["id"] for one in left} < set(made)
        limits = (await session.ask("GET", "/limits")).json()["limits"]["absolute"]
        assert limits["totalInstancesUsed"] == len(left)
        differences = (await admin(session, "GET", "/audit")).json()["audit"]["differences"]
        assert [one for one in differences if one["kind"] != "claim_unnamed"] == []


async def forget(name: str) -> Result:
    return await run("db", "forget-cell", name, "--yes")


async def test_a_lost_api_database_is_refused(config: Config, tmp_path: Path) -> None:
    async with started(config, cells=1, hosts=1):
        pass
    database = tmp_path / "state/db/api.db"
    database.unlink()
    with pytest.raises(Misconfigured, match=r"the API database .* is missing, but databases of cells are there"):
        await make_cloud(config).start()
    assert not database.exists()


async def test_a_database_of_an_unknown_cell_is_not_taken_over(config: Config, tmp_path: Path) -> None:
    async with started(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        await create_in(cloud, session, 1)
    databases = tmp_path / "state/db"
    (databases / "east.db").write_bytes((databases / "cell1.db").read_bytes())
    with pytest.raises(Misconfigured, match=r"east\.db is that of cell cell1 .*, not of a new cell east"):
        await make_cloud(config_with(config, "cell1", "east")).start()


async def test_a_lost_file_of_passwords(config: Config, tmp_path: Path) -> None:
    async with started(config, cells=1, hosts=1) as cloud:
        file = cloud.clouds_yaml
        before = passwords_in(file)["admin"]
        refused = await run("user", "set-password", "admin")
        assert (refused.exit_code, "is in use by another process of Skep" in refused.stderr) == (2, True)
    file.unlink()
    async with started(config) as cloud:
        entries = json.loads(file.read_text())["clouds"]
        assert {entry["auth"]["auth_url"] for entry in entries.values()} == {cloud.identity_url}
        assert passwords_in(file) == {}
        status, said = await program("cell", "list")
        assert (status, "`skep user set-password admin`" in said) == (2, True)
        assert cloud.passwords == {}
    told = await run("user", "set-password", "admin")
    assert told.exit_code == 0, told.stderr
    after = passwords_in(file)["admin"]
    assert after in told.stdout
    assert after != before
    assert file.stat().st_mode & 0o777 == 0o600
    status, said = await program("cell", "list")
    assert (status, len(said.splitlines())) == (1, 1)
    assert said.startswith("skep: nothing answers at http://127.0.0.1:")
    async with started(config) as cloud, signed_in(cloud) as session:
        assert (await session.ask("GET", "/servers")).status_code == 200
    assert (await run("user", "set-password", "nobody")).exit_code == 2


def config_with(config: Config, *cells: str) -> Config:
    sections = {name: getattr(config, name) for name in config.__struct_fields__}
    return Config(**sections | {"cells": tuple(CellSettings(name=name) for name in cells)})
