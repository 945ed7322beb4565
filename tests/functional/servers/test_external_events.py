"""Events that other services tell of servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.api.routes import ROUTES
from skep.domain.ids import new_uuid
from skep.messages.to_super_conductor import CellChanged
from skep_lab.compute_api.servers import CELL1, ServersUnderTest, servers_under_test

PATH = "/os-server-external-events"


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path, routes=ROUTES) as opened:
        yield opened


async def told(cloud: ServersUnderTest, *events: dict[str, Any], version: int = 93, **more: Any) -> httpx.Response:
    return await cloud.ask("POST", PATH, {"events": list(events)}, token="service", version=version, **more)


async def test_each_event_is_taken_or_refused_for_itself(cloud: ServersUnderTest) -> None:
    built, waiting, deleted = [await cloud.create(name=name) for name in ("built", "waiting", "deleted")]
    await cloud.build(built)
    await cloud.good("DELETE", f"/servers/{deleted}", token="member")
    unknown = new_uuid()
    events = [
        {"name": "network-vif-plugged", "server_uuid": built, "tag": "port", "status": "completed"},
        {"name": "network-changed", "server_uuid": built, "status": "failed"},
        {"name": "volume-extended", "server_uuid": built},
        {"name": "network-changed", "server_uuid": waiting},
        {"name": "network-changed", "server_uuid": unknown},
    ]
    answer = await told(cloud, *events)
    assert answer.status_code == 207
    codes = [(200, "completed"), (200, "completed"), (400, "failed"), (422, "failed"), (404, "failed")]
    wanted = [{**event, "code": code, "status": status} for event, (code, status) in zip(events, codes, strict=True)]
    assert answer.json() == {"events": wanted}
    assert (await told(cloud, *events[:2])).status_code == 200
    assert (await told(cloud, events[-1])).status_code == 207


async def test_what_changed_a_server_is_among_its_actions(cloud: ServersUnderTest) -> None:
    built = await cloud.create()
    await cloud.build(built)
    for name, tag in (("volume-extended", "volume"), ("power-update", "POWER_OFF"), ("network-changed", "port")):
        assert (await told(cloud, {"name": name, "server_uuid": built, "tag": tag})).status_code == 200
    listed = (await cloud.good("GET", f"/servers/{built}/os-instance-actions"))["instanceActions"]
    assert [one["action"] for one in listed] == ["power_update", "extend_volume", "create"]


async def test_super_conductors_are_told_of_a_volume_that_is_filled(cloud: ServersUnderTest) -> None:
    """Of other events they are not told."""
    built = await cloud.create()
    await cloud.build(built)
    while not cloud.told.empty():
        cloud.told.get_nowait()
    for name in ("network-changed", "volume-reimaged"):
        assert (await told(cloud, {"name": name, "server_uuid": built, "tag": "v"})).status_code == 200
    assert await asyncio.wait_for(cloud.told.get(), 10) == CellChanged(cell=CELL1)
    assert cloud.told.empty()


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("network-vif-deleted", 1),
        ("volume-extended", 51),
        ("power-update", 76),
        ("accelerator-request-bound", 82),
        ("volume-reimaged", 93),
    ],
)
async def test_names_by_microversion(cloud: ServersUnderTest, name: str, since: int) -> None:
    event = {"name": name, "server_uuid": new_uuid(), "tag": "t"}
    assert (await told(cloud, event, version=since)).status_code == 207
    if since > 1:
        refused = await told(cloud, event, version=since - 1)
        assert refused.status_code == 400
        assert "events[0].name" in refused.text


@pytest.mark.parametrize(
    "body",
    [
        {"events": []},
        {},
        {"events": [{"name": "network-changed"}]},
        {"events": [{"name": "network-changed", "server_uuid": "x"}]},
        {"events": [{"name": "cheese", "server_uuid": "70a599e0-31e7-49b7-b260-868f441e862b"}]},
        {"events": [{"name": "network-changed", "server_uuid": "70a599e0-31e7-49b7-b260-868f441e862b", "more": 1}]},
        {"events": [{"name": "network-changed", "server_uuid": "70a599e0-31e7-49b7-b260-868f441e862b", "status": "x"}]},
    ],
)
async def test_what_is_no_event(cloud: ServersUnderTest, body: Any) -> None:
    assert (await cloud.ask("POST", PATH, body, token="service")).status_code == 400


async def test_snapshots_of_volumes_that_no_server_has(cloud: ServersUnderTest) -> None:
    """It is said by the field that names the volume, once the request itself is right."""
    path = "/os-assisted-volume-snapshots"
    info = {"snapshot_id": "s", "type": "qcow2", "new_file": "f"}
    asked = {"snapshot": {"volume_id": "v", "create_info": info}}
    status, message = await cloud.bad("POST", path, asked, token="service")
    assert (status, "volume_id" in message) == (400, True)
    for query, wanted in (
        ('{"volume_id": "v"}', "volume_id: "),
        *(
            (one, "delete_info")
            for one in ("{}", "x", "", '{"volume_id": 1}', '{"volume_id": "v", "file_to_merge": 1}')
        ),
    ):
        given = {"delete_info": query}
        status, message = await cloud.bad("DELETE", f"{path}/s", token="service", params=given)
        assert (status, wanted in message) == (400, True), query
    del info["type"]
    status, message = await cloud.bad("POST", path, asked, token="service")
    assert (status, "snapshot.create_info" in message) == (400, True)
