"""Cells that are made, disabled, drained, moved and deleted while everything runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.processes.all_in_one import AllInOneCloud
from skep.processes.servers.postgres import PostgresServer


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_STATE__DIRECTORY", str(tmp_path / "state"))
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE", "SKEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)


async def cell(*arguments: str) -> tuple[int | None, dict[str, object], str]:
    """Run `skep cell`; return its status, what it printed and what it said of errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep.cli", "cell", *arguments, "--format", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    return process.returncode, json.loads(output) if output else {}, errors.decode()


async def build_in(cloud: AllInOneCloud, session: ComputeSession, name: str) -> str:
    """Build a server where there is room; return its id once it is ACTIVE in the cell of this name."""
    image = (await session.client.get(f"{cloud.images_url}/v2/images", headers={"X-Auth-Token": session.token})).json()
    body = {"name": "s", "imageRef": image["images"][0]["id"], "flavorRef": "1", "networks": "none"}
    answer = await session.ask("POST", "/servers", {"server": body}, version="2.37")
    assert answer.status_code == 202, answer.text
    uuid = str(answer.json()["server"]["id"])

    async def is_there() -> bool:
        server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
        return bool(server["status"] == "ACTIVE" and server["OS-EXT-SRV-ATTR:host"].startswith(name))

    await eventually(is_there, f"the server is ACTIVE in {name}")
    return uuid


async def test_a_cell_comes_gets_servers_is_drained_and_goes(tmp_path: Path) -> None:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=1) as cloud, signed_in(cloud) as session:
        status, made, errors = await cell("create", "cell9")
        assert (status, made["name"], made["reachable"]) == (0, "cell9", True), errors
        assert (await cell("create", "cell9"))[0] == 1
        assert (await cell("create", "no/name"))[0] == 1
        assert (await cell("disable", "cell1"))[0] == 0

        async def has_hosts() -> bool:
            return bool((await cell("show", "cell9"))[1]["hosts_up"])

        await eventually(has_hosts, "the new cell has a host")
        server = await build_in(cloud, session, "cell9")
        status, drained, errors = await cell("drain", "cell9")
        assert (status, drained["disabled"], "still has 1 servers" in errors) == (1, True, True)
        assert (await session.ask("DELETE", f"/servers/{server}")).status_code == 204
        status, drained, _ = await cell("drain", "cell9", "--wait", "30")
        assert (status, drained["servers_mapped"]) == (0, 0)

        async def is_deleted() -> bool:
            return (await cell("delete", "cell9", "--yes"))[0] == 0

        await eventually(is_deleted, "the empty cell is deleted")
        assert (await cell("show", "cell9"))[0] == 1
        assert list(cloud.plane.live.by_name) == ["cell0", "cell1"]
        assert [name for name in cloud.plane.agents if name.startswith("cell9")] == []
        assert (await cell("enable", "cell1"))[0] == 0
        await build_in(cloud, session, "cell1")


@pytest.mark.needs_part("postgres")
async def test_a_cell_on_postgresql_whose_password_changes(tmp_path: Path) -> None:
    with PostgresServer() as server:
        config = http_config(tmp_path)
        async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud) as session:
            server.give_database("skep_pg", "hunter2")
            plain, url = server.url("skep_pg"), server.url_of("skep_pg", "hunter2", "skep_pg")
            absent = server.url("absent")
            status, _, errors = await cell("create", "pg", "--database-url", absent)
            assert (status, "make it (`createdb " in errors) == (1, True), errors
            status, made, errors = await cell("create", "pg", "--database-url", url)
            assert (status, made["reachable"]) == (0, True), errors
            assert made["database_url"] == url.replace("hunter2", "********")
            status, _, errors = await cell("create", "other", "--database-url", plain)
            assert (status, "is that of cell pg" in errors) == (1, True), errors
            assert (await cell("disable", "cell1"))[0] == 0

            async def has_hosts() -> bool:
                return bool((await cell("show", "pg"))[1]["hosts_up"])

            await eventually(has_hosts, "the new cell has a host")
            await build_in(cloud, session, "pg")
            server.give_database("skep_pg", "changed")
            status, moved, errors = await cell("set", "pg", "--database-url", url.replace("hunter2", "changed"))
            assert (status, moved["reachable"], moved["servers"]) == (0, True, {"active": 1}), errors
            await build_in(cloud, session, "pg")
            foreign = server.create_database("foreign")
            status, _, errors = await cell("set", "pg", "--database-url", foreign)
            assert (status, "put the database of cell pg there first" in errors) == (1, True), errors
        assert b"hunter2" not in (tmp_path / "state/db/api.db").read_bytes()
