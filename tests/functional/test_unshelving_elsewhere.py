"""An offloaded server for which its cell has no room comes back in another, with all that is known of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from skep.audit.look import look_twice
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.database.api import instance_mappings
from skep.database.cell import attempts, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances as instance_rows
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.super_conductor.service import SuperConductor
from skep.telemetry.steps import CrashPoint
from tests.functional.test_shelving import CONTENT, Shelving, opened

POINTS = [("move", "before"), ("stage", "before"), ("map", "before"), ("map", "after"), ("settle", "after")]
"""Taken; frozen, its host claimed; staged there; mapped; settled. What stands between two of them writes nothing."""
LINGER = "skep.super_conductor.moves.LINGER_SECONDS"


class _Stopped(Exception):
    """What a step raises where a test holds the move."""


@asynccontextmanager
async def two_cells(root: Path, *failures: FakeFailure, hosts: int = 1, **conductor: Any) -> AsyncIterator[Shelving]:
    async with opened(root, *failures, cells=2, hosts=hosts, **{"moves_between_cells": True, **conductor}) as cloud:
        await only_in(cloud, "cell1")
        yield cloud


async def only_in(cloud: Shelving, *cells: str) -> None:
    """Leave room in these cells only."""
    for host in cloud.cloud.plane.drivers:
        wanted = "enable" if host.split("-")[0] in cells else "disable"
        answer = await cloud.session.ask("PUT", f"/os-services/{wanted}", {"binary": "nova-compute", "host": host})
        assert answer.status_code == 200


async def shelved(cloud: Shelving, **more: Any) -> InstanceUuid:
    uuid = await cloud.create(**more)
    cloud.write(cloud.host_of(await cloud.server(uuid)), uuid)
    await cloud.act(uuid, "shelve")
    await cloud.calm(uuid, "SHELVED_OFFLOADED")
    return uuid


async def cell_of(cloud: Shelving, uuid: InstanceUuid) -> str:
    mapping = await cloud.cloud.plane.databases.api.read(partial(instance_mappings.get, instance=uuid))
    assert mapping is not None
    assert mapping.cell is not None
    return cloud.cloud.plane.cells[mapping.cell].name


async def states(cloud: Shelving, uuid: InstanceUuid) -> dict[str, State]:
    """Return the states of a server's rows, by cell."""
    cells = cloud.cloud.plane.databases.cells
    query = sa.select(instance_rows.c.state).where(instance_rows.c.uuid == uuid)
    found = {name: await cells[name].read(lambda c: c.execute(query).scalar()) for name in ("cell1", "cell2")}
    return {name: State(state) for name, state in found.items() if state is not None}


async def clean(cloud: Shelving) -> None:
    """Wait until an audit finds nothing."""
    sources = super_conductor(cloud)._parts.sources

    async def nothing() -> bool:
        return not (await look_twice(sources, 0.05)).differences

    await eventually(nothing, "the audit finds nothing")


def super_conductor(cloud: Shelving) -> SuperConductor:
    found = cloud.cloud.plane._super_conductor
    assert found is not None
    return found


def stop_once(cloud: Shelving, step: str, when: str, cell: str) -> list[CrashPoint]:
    """Have the next way to `cell` break off at one point; return where it did."""
    stopped: list[CrashPoint] = []

    async def hook(point: CrashPoint) -> None:
        here = point.step == step and point.when == when and (step == "move" or point.cell == cell)
        if here and not stopped:
            stopped.append(point)
            raise _Stopped

    cloud.cloud.plane.steps.crash_hook = hook
    return stopped


async def known_of(cloud: Shelving, uuid: InstanceUuid) -> dict[str, Any]:
    """Return what a user knows of a server wherever it is."""
    server = await cloud.server(uuid)
    path = f"/servers/{uuid}/os-instance-actions"
    actions = (await cloud.session.ask("GET", path)).json()["instanceActions"]
    listed = (await cloud.session.ask("GET", "/os-migrations", version="2.59")).json()["migrations"]
    return {
        **{key: server[key] for key in ("id", "name", "created", "metadata", "OS-EXT-SRV-ATTR:instance_name")},
        "tags": (await cloud.session.ask("GET", f"/servers/{uuid}/tags", version="2.26")).json()["tags"],
        "actions": [(one["action"], one["request_id"], one["start_time"]) for one in actions],
        "migrations": [(one["uuid"], one["status"], one["source_compute"]) for one in listed],
    }


async def test_it_goes_to_and_fro_whatever_breaks_off_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server, once: with what it was, what was done to it and what is on its disk."""
    monkeypatch.setattr(LINGER, 0.05)
    async with two_cells(tmp_path, hosts=2) as cloud:
        group = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
        made = (await cloud.session.ask("POST", "/os-server-groups", group, version="2.64")).json()["server_group"]
        hints: dict[str, Any] = {"os:scheduler_hints": {"group": made["id"]}}
        uuid = await cloud.create(**hints)
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert await cloud.ask(uuid, "confirmResize") == 204
        await cloud.calm(uuid, "ACTIVE")
        await cloud.session.ask("POST", f"/servers/{uuid}/metadata", {"metadata": {"kept": "yes"}})
        await cloud.session.ask("PUT", f"/servers/{uuid}/tags/kept", version="2.26")
        home, away = "cell1", "cell2"
        before: dict[str, Any] = {}
        for step, when in POINTS:
            await cloud.act(uuid, "shelve")
            await cloud.calm(uuid, "SHELVED_OFFLOADED")
            before = await known_of(cloud, uuid)
            await only_in(cloud, away)
            stopped = stop_once(cloud, step, when, away)
            await cloud.act(uuid, "unshelve")
            server = await cloud.calm(uuid, "ACTIVE")
            assert stopped, f"the way does not lead over {step} {when}"
            assert cloud.host_of(server).split("-")[0] == away
            assert await cell_of(cloud, uuid) == away
            after = await known_of(cloud, uuid)
            assert after == {**before, "actions": [after["actions"][0], *before["actions"]]}
            assert after["actions"][0][0] == "unshelve"
            assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Success")
            servers = (await cloud.session.ask("GET", "/servers/detail?all_tenants=1")).json()["servers"]
            assert [one["id"] for one in servers] == [uuid]
            assert len(await cloud.guests()) == 1
            await cloud.nothing_awaited()
            assert await cloud.images() == {}

            async def has_left(home: str = home) -> bool:
                return (await states(cloud, uuid))[home] is State.MOVED

            await eventually(has_left, "its row has left the cell")
            home, away = away, home
        assert len(before["migrations"]) == 1
        await clean(cloud)
        limits = (await cloud.session.ask("GET", "/limits")).json()["limits"]["absolute"]
        assert limits["totalInstancesUsed"] == 1
        shown = (await cloud.session.ask("GET", f"/os-server-groups/{made['id']}", version="2.64")).json()
        assert shown["server_group"]["members"] == [uuid]
        row = await cloud.cloud.plane.databases.cells[home].read(partial(instances.get, uuid=uuid))
        assert row is not None
        numbers = [one.attempt for one in await cloud.cell.read(partial(attempts.history, instance=uuid))]
        assert max(numbers) <= row.attempt
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)


async def nothing_left(cloud: Shelving) -> None:
    """Wait until no cell has a living row, an open attempt or a guest."""
    living = sa.select(instance_rows.c.uuid).where(instance_rows.c.deleted_at.is_(None))
    open_ones = sa.select(attempt_rows.c.instance).where(attempt_rows.c.open)

    async def none() -> bool:
        for name in ("cell1", "cell2"):
            cell = cloud.cloud.plane.databases.cells[name]
            if await cell.read(lambda connection: connection.execute(living.union(open_ones)).first()) is not None:
                return False
        return not await cloud.guests()

    await eventually(none, "nothing is left")


async def test_a_delete_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LINGER, 0.05)
    async with two_cells(tmp_path) as cloud:
        for step, when in POINTS:
            await only_in(cloud, "cell1")
            uuid = await shelved(cloud)
            await only_in(cloud, "cell2")
            deleted: list[int] = []

            async def delete(
                point: CrashPoint, step: str = step, when: str = when, uuid: str = uuid, deleted: list[int] = deleted
            ) -> None:
                here = point.step == step and point.when == when and (step == "move" or point.cell == "cell2")
                if here and not deleted:
                    deleted.append((await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code)

            cloud.cloud.plane.steps.crash_hook = delete
            await cloud.act(uuid, "unshelve")
            await cloud.calm(uuid, "")
            assert deleted == [204]
        cloud.cloud.plane.steps.crash_hook = None
        await nothing_left(cloud)
        await cloud.no_images()
        await clean(cloud)
        limits = (await cloud.session.ask("GET", "/limits")).json()["limits"]["absolute"]
        assert limits["totalInstancesUsed"] == 0


async def test_it_stays_where_it_is_without_room_elsewhere_or_leave_to_go(tmp_path: Path) -> None:
    async with two_cells(tmp_path, not_ready_deadline=0.5) as cloud:
        uuid = await shelved(cloud)
        await only_in(cloud)
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        row = await cloud.row(uuid)
        assert "In other cells: No valid host" in row.fault.message
        assert (row.shelved.image, row.shelved.elsewhere, row.shelved.left) == (None, False, 0)
        assert row.launched_at is not None
        assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Error")
        await cloud.nothing_awaited()

        await only_in(cloud, "cell1", "cell2")
        await cloud.act(uuid, "unshelve", {"host": "cell2-host1"})
        server = await cloud.calm(uuid, "ACTIVE")
        assert cloud.host_of(server) == "cell2-host1", "a host of another cell may be named"
        [guest] = await cloud.guests()
        assert cloud.disks("cell2-host1").content(uuid, guest.attempt) == CONTENT
        assert (await states(cloud, uuid))["cell1"] is State.LEAVING, "its row is frozen for a while"
        servers = (await cloud.session.ask("GET", "/servers")).json()["servers"]
        assert [one["id"] for one in servers] == [uuid]
        await clean(cloud)

        await cloud.act(uuid, "shelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        await only_in(cloud, "cell1")
        # As if all conductors above were older than the one of the cell.
        await super_conductor(cloud)._moves.stop()
        await cloud.act(uuid, "unshelve")
        server = await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert await cell_of(cloud, uuid) == "cell2"
        row = await cloud.cloud.plane.databases.cells["cell2"].read(partial(instances.get, uuid=uuid))
        assert row is not None
        assert row.fault is not None
        assert "No other cell was asked in time" in row.fault.message


async def test_a_host_of_the_other_cell_that_fails_leaves_it_offloaded_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LINGER, 0.05)
    fails = FakeFailure(operation="spawn", host="cell2-*", error="SpawnFailed")
    async with two_cells(tmp_path, fails) as cloud:
        uuid = await shelved(cloud)
        await only_in(cloud, "cell2")
        await cloud.act(uuid, "unshelve")
        await cloud.calm(uuid, "SHELVED_OFFLOADED")
        assert await cell_of(cloud, uuid) == "cell2"
        assert (await cloud.events(uuid))[-1] == ("compute_unshelve_instance", "Error")
        await cloud.nothing_awaited()
        assert list(await cloud.images()) == ["one-shelved"]
        await only_in(cloud, "cell1", "cell2")

        async def back() -> bool:
            return await cloud.ask(uuid, "unshelve") == 202

        await eventually(back, "it is unshelved again")
        server = await cloud.calm(uuid, "ACTIVE")
        host = cloud.host_of(server)
        assert host == "cell1-host1", "a cell that it left before may have it again"
        [guest] = await cloud.guests()
        assert cloud.disks(host).content(uuid, guest.attempt) == CONTENT
        await clean(cloud)
