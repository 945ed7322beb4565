"""What was done to a server, as its users list it: actions with their events, pages, spans of time."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
import sqlalchemy as sa

from skep.api.services import ApiSettings
from skep.database.cell import actions as action_rows
from skep.database.cell import tables as cell_tables
from skep.database.cell.actions import Action, ActionQuery
from skep.database.cell.builds import fail
from skep.database.cell.reschedules import rescheduled
from skep.database.cell.reschedules import take as take_rescheduling
from skep.domain.builds import Placed
from skep.domain.ids import CELL0, InstanceUuid, NodeUuid
from skep_lab.compute_api.servers import CELL1, OWNER, ServersUnderTest


async def actions(cloud: ServersUnderTest, uuid: str, query: str = "", **more: Any) -> list[dict[str, Any]]:
    answer = await cloud.good("GET", f"/servers/{uuid}/os-instance-actions{query}", **more)
    listed: list[dict[str, Any]] = answer["instanceActions"]
    return listed


async def events(cloud: ServersUnderTest, uuid: str, **more: Any) -> list[dict[str, Any]]:
    request_id = (await actions(cloud, uuid))[-1]["request_id"]
    answer = await cloud.good("GET", f"/servers/{uuid}/os-instance-actions/{request_id}", **more)
    assert answer["instanceAction"]["action"] == "create"
    found: list[dict[str, Any]] = answer["instanceAction"].get("events")
    return found


async def test_the_events_of_a_create_are_its_attempts(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    assert await events(cloud, uuid, version=62) == []
    taken = await cloud.place(uuid, CELL1)
    cell, now, instance = cloud.services.cells[CELL1], cloud.services.clock.now(), InstanceUuid(uuid)

    def unit(connection: sa.Connection) -> None:
        assert fail(connection, instance, taken.attempt, "host-1", None, now)
        table = cell_tables.attempts
        failed = table.update().where(table.c.instance == uuid, table.c.attempt == taken.attempt)
        connection.execute(
            failed.values(open=False, outcome="failed", error="NoSpace", message="disk full", ended_at=now)
        )
        (work,) = take_rescheduling(connection, OWNER, now, 1)
        placed = Placed(node=NodeUuid("n2"), host="host-2", cell=CELL1, epoch="e1")
        assert rescheduled(connection, instance, work.instance.attempt, placed, now)

    await cell.write(unit)
    found: list[dict[str, Any]] = []
    for version, token, keys in (
        (51, "member", {"event", "start_time", "finish_time", "result"}),
        (62, "member", {"event", "start_time", "finish_time", "result", "hostId"}),
        (84, "admin", {"event", "start_time", "finish_time", "result", "traceback", "hostId", "host", "details"}),
    ):
        found = await events(cloud, uuid, version=version, token=token)
        assert [set(one) for one in found] == [keys, keys]
    assert [(one["host"], one["result"], one["details"]) for one in found] == [
        ("host-2", None, None),
        ("host-1", "Error", "disk full"),
    ]
    assert await events(cloud, uuid, version=1) is None


async def test_the_event_of_a_server_without_a_host(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.place(uuid, CELL0)
    (event,) = await events(cloud, uuid, version=84, token="admin")
    assert (event["event"], event["result"]) == ("conductor_schedule_and_build_instances", "Error")
    assert event["details"].startswith("No valid host")
    assert (await actions(cloud, uuid))[0]["message"].startswith("No valid host")


async def test_pages_of_actions(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    await cloud.good("POST", f"/servers/{uuid}/action", {"os-stop": None})
    path = f"/servers/{uuid}/os-instance-actions"
    answer = await cloud.good("GET", f"{path}?limit=1", version=58)
    assert [one["action"] for one in answer["instanceActions"]] == ["stop"]
    rest = await cloud.good("GET", answer["links"][0]["href"].removeprefix("http://cloud/v2.1"), version=58)
    assert [one["action"] for one in rest["instanceActions"]] == ["create"]
    assert "links" not in rest
    assert (await cloud.bad("GET", f"{path}?marker=req-1", version=58))[0] == 400
    assert (await cloud.bad("GET", f"{path}/req-1"))[0] == 404


async def test_a_page_of_actions_reads_little_beyond_it(
    cloud: ServersUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    page_of = action_rows.page_of

    def counted(connection: sa.Connection, instance: InstanceUuid, query: ActionQuery) -> list[Action] | None:
        found = page_of(connection, instance, query)
        read.append(len(found or ()))
        return found

    monkeypatch.setattr(action_rows, "page_of", counted)
    uuid = await cloud.create()
    await cloud.build(uuid)
    for _ in range(6):
        await cloud.good("POST", f"/servers/{uuid}/action", {"unlock": None})
    assert len(await actions(cloud, uuid, "?limit=1", version=58)) == 1
    assert read == [3]
    small = ServersUnderTest(dataclasses.replace(cloud.services, settings=ApiSettings(max_limit=4)), asyncio.Queue())
    for version in (1, 57, 58):
        assert [one["action"] for one in await actions(small, uuid, version=version)] == ["unlock"] * 4
    assert max(read) == 6


async def test_a_create_is_of_the_time_in_which_it_was_built(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    [create] = await actions(cloud, uuid, version=58)
    assert create["start_time"] < create["updated_at"]
    query = f"?changes-since={create['updated_at']}"
    assert await actions(cloud, uuid, query, version=58) == [create]
    assert await actions(cloud, uuid, f"{query}&limit=1", version=58) == [create]
    assert await actions(cloud, uuid, f"?changes-before={create['start_time']}", version=66) == []


async def test_pages_of_a_server_that_waits(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    [create] = await actions(cloud, uuid, version=58)
    assert await actions(cloud, uuid, f"?marker={create['request_id']}", version=58) == []
    path = f"/servers/{uuid}/os-instance-actions"
    assert (await cloud.bad("GET", f"{path}?marker=req-1", version=58))[0] == 400
    assert (await cloud.good("GET", f"{path}/{create['request_id']}", version=58))["instanceAction"]["events"] == []


async def test_actions_of_a_span_of_time(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    await cloud.build(uuid)
    await cloud.good("POST", f"/servers/{uuid}/action", {"os-stop": None})
    whole = await actions(cloud, uuid, version=66)
    assert [one["action"] for one in whole] == ["stop", "create"]
    early, late = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    assert await actions(cloud, uuid, f"?changes-since={early}", version=58) == await actions(cloud, uuid, version=58)
    assert await actions(cloud, uuid, f"?changes-since={late}", version=58) == []
    assert await actions(cloud, uuid, f"?changes-since={early}&changes-before={late}", version=66) == whole
    assert await actions(cloud, uuid, f"?changes-before={early}", version=66) == []
    path = f"/servers/{uuid}/os-instance-actions"
    for query in (f"?changes-since={late}&changes-before={early}", "?changes-before=soon", "?changes-since=soon"):
        assert (await cloud.bad("GET", path + query, version=66))[0] == 400
