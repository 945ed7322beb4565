"""Lists of migrations over two cells: filters, pages, what each microversion shows, and to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.routes import ROUTES
from skep.database.cell.tables import migrations
from skep.domain.clock import SECOND, isoformat
from skep.domain.ids import CellUuid
from skep_lab.compute_api.api import OTHER_PROJECT, PROJECT
from skep_lab.compute_api.servers import CELL1, CELL2, ServersUnderTest, servers_under_test

BEGAN = 1_800_000_000 * SECOND
ADMINS = {"token": "admin", "version": 104}
HOSTS = ("source_compute", "source_node", "dest_compute", "dest_node", "dest_host")


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        yield opened


def uuid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


async def begin(cloud: ServersUnderTest, number: int, cell: CellUuid = CELL1, **more: Any) -> str:
    """Write the `number`th migration, begun so many seconds after the first moment; return its UUID."""
    values = {
        "uuid": uuid_of(number),
        "instance": uuid_of(1000 + number),
        "project_id": PROJECT,
        "user_id": "member",
        "type": "resize",
        "status": "finished",
        "source_host": "host-1",
        "dest_host": "host-2",
        "dest_address": "127.0.0.2",
        "old_flavor": "1",
        "new_flavor": "large",
        "created_at": BEGAN + number * SECOND,
        **more,
    }

    def unit(connection: sa.Connection) -> None:
        connection.execute(migrations.insert().values(values))

    await cloud.services.cells[cell].write(unit)
    return str(values["uuid"])


async def uuids(cloud: ServersUnderTest, query: str = "", **more: Any) -> list[str]:
    answer = await cloud.good("GET", f"/os-migrations{query}", **{**ADMINS, **more})
    return [one["uuid"] for one in answer["migrations"]]


async def test_those_of_all_cells_newest_first(cloud: ServersUnderTest) -> None:
    first = await begin(cloud, 1, CELL1)
    second = await begin(cloud, 2, CELL2)
    third = await begin(cloud, 3, CELL1)
    assert await uuids(cloud) == [third, second, first]


async def test_pages_follow_one_another(cloud: ServersUnderTest) -> None:
    made = [await begin(cloud, number, (CELL1, CELL2)[number % 2]) for number in range(5)]
    found: list[str] = []
    path = "/os-migrations?limit=2"
    while path:
        answer = await cloud.good("GET", path, **ADMINS)
        found += [one["uuid"] for one in answer["migrations"]]
        path = "".join(link["href"].split("/v2.1")[1] for link in answer.get("migrations_links", ()))
    assert found == made[::-1]
    assert await uuids(cloud, f"?marker={made[3]}&limit=1") == [made[2]]


async def test_filters_narrow_together(cloud: ServersUnderTest) -> None:
    one = await begin(cloud, 1)
    two = await begin(cloud, 2, CELL2, source_host="host-2", dest_host="host-3", type="migration", status="error")
    three = await begin(cloud, 3, project_id=OTHER_PROJECT, user_id="other", updated_at=BEGAN + 90 * SECOND)
    assert await uuids(cloud, "?host=host-2") == [three, two, one]
    assert await uuids(cloud, "?host=host-3&source_compute=host-1") == [two], "the host alone counts then"
    assert await uuids(cloud, "?source_compute=host-2") == [two]
    assert await uuids(cloud, "?status=error") == [two]
    assert await uuids(cloud, "?migration_type=resize&status=finished") == [three, one]
    assert await uuids(cloud, f"?instance_uuid={uuid_of(1001)}") == [one]
    assert await uuids(cloud, f"?project_id={OTHER_PROJECT}") == [three]
    assert await uuids(cloud, "?user_id=member") == [two, one]
    assert await uuids(cloud, f"?changes-since={isoformat(BEGAN + 80 * SECOND)}") == [three]
    assert await uuids(cloud, f"?changes-before={isoformat(BEGAN + 1 * SECOND)}") == [one]
    assert await uuids(cloud, "?status=queued") == []


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        (1, {"id", "instance_uuid", "status", "old_instance_type_id", "new_instance_type_id"}),
        (23, {"migration_type"}),
        (59, {"uuid"}),
        (80, {"user_id", "project_id"}),
    ],
)
async def test_what_each_microversion_shows_first(cloud: ServersUnderTest, version: int, keys: set[str]) -> None:
    await begin(cloud, 1)
    read = partial(cloud.good, "GET", "/os-migrations", token="admin")
    [shown] = (await read(version=version))["migrations"]
    assert keys <= shown.keys()
    if version > 1:
        [before] = (await read(version=version - 1))["migrations"]
        assert shown.keys() - before.keys() == keys
    assert [shown[name] for name in HOSTS] == ["host-1", "host-1", "host-2", "host-2", "127.0.0.2"]
    assert (shown["old_instance_type_id"], shown["new_instance_type_id"]) == (1, None)
    assert shown["updated_at"] is None


async def test_a_live_one_in_progress_has_links_and_is_seen_below_its_server(cloud: ServersUnderTest) -> None:
    server = await cloud.create()
    await cloud.build(server)
    await begin(cloud, 1, instance=server, type="live-migration", status="running")
    await begin(cloud, 2, instance=server, type="live-migration", status="completed")
    await begin(cloud, 3, instance=server, status="migrating")
    answer = await cloud.good("GET", "/os-migrations", **ADMINS)
    assert [one["uuid"] for one in answer["migrations"] if "links" in one] == [uuid_of(1)]
    own = [link["href"] for one in answer["migrations"] for link in one.get("links", ()) if link["rel"] == "self"]
    assert own == [f"http://cloud/v2.1/servers/{server}/migrations/1"]

    [below] = (await cloud.good("GET", f"/servers/{server}/migrations", **ADMINS))["migrations"]
    assert (below["id"], below["server_uuid"], below["memory_total_bytes"]) == (1, server, None)
    assert (await cloud.good("GET", f"/servers/{server}/migrations/1", **ADMINS))["migration"] == below
    for other in ("2", "3", "x"):
        status, said = await cloud.bad("GET", f"/servers/{server}/migrations/{other}", **ADMINS)
        assert (status, other in said) == (404, True)
    assert (await cloud.bad("GET", f"/servers/{server}/migrations", token="admin", version=22))[0] == 404


async def test_who_sees_what(cloud: ServersUnderTest) -> None:
    server = await cloud.create()
    await cloud.build(server)
    mine = await begin(cloud, 1, instance=server, type="live-migration", status="running")
    await begin(cloud, 2, project_id=OTHER_PROJECT)
    manager = {"token": "manager", "version": 80}
    assert await uuids(cloud, f"?project_id={PROJECT}", **manager) == [mine]
    for path in ("/os-migrations", f"/os-migrations?project_id={OTHER_PROJECT}", f"/servers/{server}/migrations/1"):
        assert (await cloud.bad("GET", path, **manager))[0] == 403
    for path in (f"/os-migrations?project_id={PROJECT}", f"/servers/{server}/migrations"):
        assert (await cloud.bad("GET", path, token="member", version=80))[0] == 403
        [shown] = (await cloud.good("GET", path, **manager))["migrations"]
        assert [shown[name] for name in HOSTS] == [None] * 5


@pytest.mark.parametrize(
    "query",
    [
        "?limit=-1",
        "?limit=some",
        "?limit=1&limit=2",
        "?marker=nowhere",
        f"?marker={uuid_of(7)}",
        "?changes-since=yesterday",
        "?changes-before=yesterday",
        "?changes-since=2026-01-02&changes-before=2026-01-01",
        "?dest_compute=host-1",
    ],
)
async def test_bad_queries_are_refused_by_name(cloud: ServersUnderTest, query: str) -> None:
    status, said = await cloud.bad("GET", f"/os-migrations{query}", **ADMINS)
    assert status == 400
    assert query[1:].split("=", maxsplit=1)[0] in said.lower()


async def test_before_pages_other_keys_are_ignored(cloud: ServersUnderTest) -> None:
    await begin(cloud, 1)
    answer = await cloud.good("GET", "/os-migrations?limit=0&dest_compute=none&hidden=1", token="admin", version=58)
    assert len(answer["migrations"]) == 1
    assert "migrations_links" not in answer
