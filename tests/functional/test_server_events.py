"""The event log of a whole cloud: nothing lost, nothing twice, the events of one server in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from skep.config.compute import FakeFailure
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database import Connection
from skep.database.api import events
from skep.database.api.events import EventsWanted, StoredEvent
from skep.database.cell import event_facts
from skep.database.engine import Database
from skep.database.stored import load
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.domain.server_events import Fact
from skep.super_conductor import events as copying
from tests.functional.test_moving_between_cells import big, with_disk
from tests.functional.test_shelving import opened
from tests.functional.test_unshelving_elsewhere import only_in, shelved, two_cells


async def read(cloud: Cloud, uuid: InstanceUuid, last: str) -> list[StoredEvent]:
    """Return the events of a server as a reader sees them that asks again and again, until one of a type is there."""
    seen: list[StoredEvent] = []
    cursor: str | None = None

    async def probe() -> bool:
        nonlocal cursor
        wanted = EventsWanted(after=cursor, limit=3, server=uuid)
        page = await cloud.plane.databases.api.read(partial(events.page, wanted=wanted))
        cursor = page.next
        seen.extend(page.events)
        return any(one.type == last for one in seen) and not page.more

    await eventually(probe, f"{last} of {uuid} is told")
    assert len({one.event_key for one in seen}) == len(seen)
    return seen


def types(seen: list[StoredEvent]) -> list[str]:
    return [one.type for one in seen]


async def test_a_life_is_told_in_order(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, hosts=2) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await cloud.delete(uuid)
        await cloud.gone([uuid])
        seen = await read(cloud, uuid, "server.deleted")
        assert types(seen)[:3] == ["server.requested", "server.host_chosen", "server.active"]
        assert types(seen)[-2:] == ["server.deleted", "action.ended"], "in one transaction: the action is over then"
        assert "action.begun" in types(seen)
        chosen = seen[1]
        assert chosen.host is not None
        assert chosen.data is not None
        assert chosen.request_id == seen[0].request_id


async def test_a_host_that_fails_is_told_and_the_next_one(tmp_path: Path) -> None:
    config = quick_config(failures=[FakeFailure(operation="spawn", error="SpawnFailed", host="cell1-host1")])
    async with running_cloud(tmp_path, config, cells=1, hosts=2) as cloud:
        uuids = await cloud.create(4)
        await cloud.settled(uuids)
        failed = 0
        for uuid in uuids:
            seen = await read(cloud, uuid, "server.active")
            tried = types(seen).count("server.attempt_failed")
            failed += tried
            assert types(seen).count("server.host_chosen") == tried + 1
            assert [one.host for one in seen if one.type == "server.attempt_failed"] == ["cell1-host1"] * tried
            assert types(seen)[-1] == "server.active"
        assert failed


async def test_a_move_to_another_cell_is_told(tmp_path: Path) -> None:
    config = quick_config(failures=[FakeFailure(operation="spawn", error="SpawnFailed", host="cell1-*")])
    async with running_cloud(tmp_path, config, hosts=1) as cloud:
        await cloud.only_cell("cell1")
        [uuid] = await cloud.create()
        await cloud.tried(uuid)
        await cloud.only_cell(None)
        [server] = await cloud.settled([uuid])
        assert server.state is State.ACTIVE
        seen = await read(cloud, uuid, "server.active")
        (moved,) = [one for one in seen if one.type == "server.moved_cell"]
        assert (moved.before_cell, moved.cell) == tuple(
            next(cell for cell, one in cloud.plane.cells.items() if one.name == name) for name in ("cell1", "cell2")
        )
        failed = [one for one in seen if one.type == "server.attempt_failed"]
        assert [one.cell for one in failed] == [moved.before_cell]


async def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, hosts=2) as cloud:
        uuids = await cloud.create(6)
        await cloud.restart()
        await cloud.settled(uuids)
        await cloud.restart()
        for uuid in uuids:
            seen = await read(cloud, uuid, "server.active")
            assert types(seen).count("server.requested") == types(seen).count("server.active") == 1
            assert types(seen)[0] == "server.requested"
            assert types(seen)[-1] == "server.active"


async def test_a_shelved_server_that_goes_to_another_cell_is_told_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "MOST_OF_SERVER", 1)
    async with two_cells(tmp_path) as cloud:
        uuid = await shelved(cloud)
        await only_in(cloud, "cell2")
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "ACTIVE")
        await cloud.act(uuid, "os-stop")
        await cloud.calm(uuid, "SHUTOFF")
        seen = await until(cloud.cloud.plane.databases.api, uuid, "server.state_changed", "stopped")
    begun = [action(one) for one in seen if one.type == "action.begun"]
    assert begun == ["shelve", "unshelve", "stop"], "the past that went with it is not told again"
    moved = types(seen).index("server.moved_cell")
    first, second = seen[moved].before_cell, seen[moved].cell
    assert {one.cell for one in seen[:moved] if one.type != "server.host_chosen"} - {None} == {first}
    behind = [one for one in seen[moved:] if one.type != "server.attempt_failed"]
    assert {one.cell for one in behind} == {second}
    asked = next(one.request_id for one in seen if one.type == "action.begun" and action(one) == "unshelve")
    assert [one.request_id for one in seen if one.type == "server.host_chosen" and one.cell == second] == [asked]
    assert begun_before(seen, "unshelve") < moved


async def test_a_resize_to_another_cell_and_back_is_told_once_and_in_order(tmp_path: Path) -> None:
    async with two_cells(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        await cloud.act(uuid, "resize", {"flavorRef": await big(cloud)})
        await cloud.calm(uuid, "VERIFY_RESIZE")
        await cloud.act(uuid, "revertResize")
        await cloud.calm(uuid, "ACTIVE")
        seen = await until(cloud.cloud.plane.databases.api, uuid, "action.ended", "revertResize")
    assert [action(one) for one in seen if one.type == "action.begun"] == ["resize", "revertResize"]
    there, back = (place for place, one in enumerate(seen) if one.type == "server.moved_cell")
    assert (seen[there].cell, seen[back].cell) == (seen[back].before_cell, seen[there].before_cell)
    states = [(one.cell, one.type) for one in seen if one.type in ("server.active", "server.state_changed")]
    assert states[0] == (seen[there].before_cell, "server.active")
    assert states[-1] == (seen[back].cell, "server.active")
    assert begun_before(seen, "resize") < there < begun_before(seen, "revertResize") < back


async def test_a_live_migration_and_a_cold_one_are_told(tmp_path: Path) -> None:
    async with opened(tmp_path, cells=1, hosts=2) as cloud:
        uuid = await with_disk(cloud)
        await cloud.act(uuid, "os-migrateLive", {"host": None, "block_migration": "auto"})
        await cloud.calm(uuid, "ACTIVE")
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await cloud.ask(uuid, "confirmResize") == 204
        await cloud.calm(uuid, "ACTIVE")
        seen = await until(cloud.cloud.plane.databases.api, uuid, "action.ended", "confirmResize")
    hosts = [one.host for one in seen if one.type == "server.moved_host"]
    [built] = [one.host for one in seen if one.type == "server.active"][:1]
    assert len(hosts) == 2
    assert hosts == [one.host for one in seen if one.type == "server.host_chosen"][1:]
    assert hosts[1] == built, "there and back"


async def test_a_cell_that_is_away_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events come when it answers again, and the gauge of its lag says so until then."""
    asked = event_facts.oldest

    def away(connection: Connection, limit: int) -> list[Fact]:
        if is_away and "cell1" in str(connection.engine.url):
            raise StorageUnavailable("away")
        return asked(connection, limit)

    is_away = True
    monkeypatch.setattr(event_facts, "oldest", away)
    async with running_cloud(tmp_path, hosts=1) as cloud:
        await cloud.only_cell("cell1")
        [first] = await cloud.create()
        await cloud.settled([first])
        await cloud.only_cell("cell2")
        [second] = await cloud.create()
        await cloud.settled([second])
        await read(cloud, second, "server.active")
        wanted = EventsWanted(server=first)
        page = await cloud.plane.databases.api.read(partial(events.page, wanted=wanted))
        assert types(list(page.events)) == ["server.requested"]
        lag = cloud.plane.metrics.registry.get_sample_value
        assert (lag("skep_events_lag_seconds", {"cell": "cell1"}) or 0.0) > 0
        is_away = False
        assert types(await read(cloud, first, "server.active")) == [
            "server.requested",
            "server.host_chosen",
            "server.active",
        ]


async def until(api: Database, uuid: InstanceUuid, last: str, said: str) -> list[StoredEvent]:
    """Return all events of a server once one of a type says a word, and no cell has more."""

    async def look() -> list[StoredEvent]:
        page = await api.read(partial(events.page, wanted=EventsWanted(server=uuid, limit=1000)))
        return list(page.events)

    async def probe() -> bool:
        return any(one.type == last and said in (one.data or b"").decode() for one in await look())

    await eventually(probe, f"{last} of {said} is told")
    return await look()


def action(one: StoredEvent) -> str:
    return str(load(one.data or b"{}", dict[str, str])["action"])


def begun_before(seen: list[StoredEvent], wanted: str) -> int:
    """Return the place where an action is told to begin."""
    return next(place for place, one in enumerate(seen) if one.type == "action.begun" and action(one) == wanted)
