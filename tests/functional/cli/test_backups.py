"""Databases of both kinds: made, looked at, copied while the cloud runs, put back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from skep.cli.main import skep
from skep.config.sections import CellSettings, Config, DatabaseSettings
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.domain.errors import Misconfigured
from skep.processes.all_in_one import AllInOneCloud, make_cloud
from skep.processes.servers.postgres import PostgresServer
from skep.standalone import key_ring

Lose = Callable[[str], None]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE", "SKEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


async def run(*arguments: str) -> Result:
    """Run a command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, skep, arguments, prog_name="skep")


async def build(cloud: AllInOneCloud, session: ComputeSession, count: int) -> set[str]:
    """Build a server; return all that are ACTIVE once there are `count`."""
    image = (await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})).json()
    body = {"name": "s", "imageRef": image["images"][0]["id"], "flavorRef": "1", "networks": "none"}
    answer = await session.ask("POST", "/servers", {"server": body}, version="2.37")
    assert answer.status_code == 202, answer.text
    return await active(session, count)


async def active(session: ComputeSession, count: int) -> set[str]:
    async def look() -> set[str]:
        found = {one["id"] for one in (await session.ask("GET", "/servers?status=ACTIVE")).json()["servers"]}
        return found if len(found) == count else set()

    return await eventually(look, f"{count} servers are ACTIVE")


def open_to_others(directory: Path) -> list[str]:
    return [path.name for path in (directory, *directory.rglob("*")) if path.stat().st_mode & 0o077]


async def backed_up_and_restored(config: Config, backup: Path, lose: Lose, missing: str) -> None:
    """Copy a running cloud, lose its cell, put that back; what runs afterwards is what ran when it was copied."""
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        kept = await build(cloud, session, 1)
        umask = os.umask(0o022)  # an operator's shell: the cloud has closed that of this process
        try:
            taken = await run("db", "backup", str(backup), "--format", "json")
        finally:
            os.umask(umask)
        assert taken.exit_code == 0, taken.output
        assert [row["name"] for row in json.loads(taken.stdout)] == ["cell0", "cell1", "api"]
        assert (await run("db", "backup", str(backup))).exit_code == 2
        assert (await run("db", "restore", str(backup), "--yes")).exit_code == 2, "the cloud runs"
    assert open_to_others(backup) == []
    assert (await run("db", "check")).exit_code == 0
    lose("cell1")
    with pytest.raises(Misconfigured, match=missing):
        await make_cloud(config).start()
    assert (await run("db", "check")).exit_code != 0
    assert (await run("db", "restore", str(backup))).exit_code == 2, "nobody said yes"
    put_back = await run("db", "restore", str(backup), "--only", "cell1", "--yes")
    assert put_back.exit_code == 0, put_back.output
    assert (await run("db", "check")).exit_code == 0
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        assert await active(session, 1) == kept
        assert len(await build(cloud, session, 2)) == 2
    ring = Path(config.state.directory) / "keys/secrets.key"
    [old] = key_ring.names(ring)
    key_ring.use(ring, key_ring.add(ring))
    assert key_ring.drop(ring) == (old,)
    whole = await run("db", "restore", str(backup), "--yes")
    assert whole.exit_code == 0, whole.output
    assert "secrets.key has dropped keys again" in whole.output
    assert old in whole.output
    assert old in key_ring.names(ring)
    again = await run("db", "restore", str(backup), "--yes", "--format", "json")
    assert json.loads(again.stdout)["keys_taken_again"] == {}
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        assert await active(session, 1) == kept


async def test_files(tmp_path: Path) -> None:
    databases = tmp_path / "state/db"

    def lose(name: str) -> None:
        (databases / f"{name}.db").unlink()

    await backed_up_and_restored(http_config(tmp_path), tmp_path / "backup", lose, r"cell1, .*cell1\.db, is missing")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(tmp_path / "backup/keys")
    (tmp_path / "backup/backup.json").unlink()
    refused = await run("db", "restore", str(tmp_path / "backup"), "--yes")
    assert (refused.exit_code, "is not a complete backup" in refused.stderr) == (2, True)


@pytest.mark.needs_part("postgres")
async def test_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresServer() as server:
        urls = {name: server.create_database(f"skep_{name}") for name in ("api", "cell0", "cell1")}
        monkeypatch.setenv("SKEP_DATABASE__API_URL", urls["api"])
        monkeypatch.setenv("SKEP_DATABASE__CELL0_URL", urls["cell0"])
        monkeypatch.setenv("SKEP_CELLS", json.dumps([{"name": "cell1", "database_url": urls["cell1"]}]))
        config = on_postgresql(http_config(tmp_path), urls)

        def lose(name: str) -> None:
            server.drop_database(f"skep_{name}")
            server.create_database(f"skep_{name}")

        await backed_up_and_restored(config, tmp_path / "backup", lose, r"cell1, postgresql.*skep_cell1, is missing")
        assert not list((tmp_path / "state/db").iterdir())
        server.drop_database("skep_api")
        with pytest.raises(Misconfigured, match=r"the API database .*skep_api is missing, but databases of cells are"):
            await make_cloud(config).start()
        server.stop()
        checked = await run("doctor", "--format", "json")
        (found,) = (check for check in json.loads(checked.stdout) if check["name"] == "databases")
        assert (found["verdict"], "cannot be reached" in found["message"]) == ("bad", True)


def on_postgresql(config: Config, urls: dict[str, str]) -> Config:
    """Return a configuration with its databases on a server."""
    return replace(
        config,
        database=DatabaseSettings(api_url=urls["api"], cell0_url=urls["cell0"]),
        cells=(CellSettings(name="cell1", database_url=urls["cell1"]),),
    )


async def test_the_cloud_of_processes_in_the_state_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    with monkeypatch.context() as over_there:
        over_there.setenv("SKEP_DATABASE__DIRECTORY", str(elsewhere))
        over_there.setenv("SKEP_CELLS", '[{"name": "cell1"}]')
        assert (await run("db", "upgrade")).exit_code == 0
    urls = {name: f"sqlite:///{elsewhere}/{name}.db" for name in ("api", "cell0", "cell1")}
    written = tmp_path / "state/processes.env"
    lines = [
        f"export SKEP_DATABASE__API_URL='{urls['api']}'",
        f"export SKEP_DATABASE__CELL0_URL='{urls['cell0']}'",
        f"export SKEP_CELLS='{json.dumps([{'name': 'cell1', 'database_url': urls['cell1']}])}'",
    ]
    written.write_text("\n".join(lines))
    shown = json.loads((await run("db", "current", "--format", "json")).stdout)
    assert {row["database"]: row["file"] for row in shown} == {
        name: str(elsewhere / f"{name}.db") for name in ("api", "cell0", "cell1")
    }
    checked = json.loads((await run("doctor", "--format", "json")).stdout)
    told = {check["name"]: check["message"] for check in checked}
    assert told["databases"] == "3 at this release's schema"
    assert "what its cloud of processes has written" in told["configuration"]
    taken = await run("db", "backup", str(tmp_path / "backup"), "--format", "json")
    assert [row["name"] for row in json.loads(taken.stdout)] == ["cell0", "cell1", "api"]
    (elsewhere / "cell1.db").unlink()
    partly = await run("db", "backup", str(tmp_path / "partly"))
    assert (partly.exit_code, f"missing: cell1 ({elsewhere}/cell1.db)" in partly.stderr) == (2, True), partly.stderr
    assert not (tmp_path / "partly").exists()
    written.write_text("export 'SKEP")
    refused = await run("db", "current")
    assert (refused.exit_code, "processes.env cannot be read" in refused.stderr) == (2, True), refused.stderr


async def test_a_copy_of_nothing_is_no_backup(tmp_path: Path) -> None:
    for arguments in (("db", "backup", str(tmp_path / "backup")), ("db", "current")):
        refused = await run(*arguments)
        assert refused.exit_code == 2, refused.output
        assert "SKEP_STATE__DIRECTORY" in refused.stderr
        assert "missing or empty" in refused.stderr or "there is no installation in" in refused.stderr
    assert not (tmp_path / "backup").exists()
    assert not (tmp_path / "state").exists()
