"""What the conductors do while a scheduler, a cell's database or a host cannot work, and how they go on afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
import structlog

from skep.config.sections import ConductorSettings, RetentionSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import host_mappings
from skep.database.api import recovery as api_recovery
from skep.database.api.instance_mappings import get as mapping_of
from skep.database.api.tables import instance_mappings
from skep.database.cell import agents
from skep.database.cell.tables import instances as instance_rows
from skep.domain.cells import Cell
from skep.domain.clock import Clock, Timestamp
from skep.domain.errors import Conflict, SkepError, StorageUnavailable
from skep.domain.flavors import Flavor
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import Instance, State
from skep.messages.to_cell_conductor import RegisterAgent
from skep.messages.to_scheduler import SelectDestinations
from skep.super_conductor import builds
from skep.super_conductor.reconcile import Retention
from skep.telemetry.steps import CrashPoint
from skep.transport.base import cell_conductor
from skep.transport.speaker import Speaker, speaking

POISON = Flavor(flavorid="6", name="poison", vcpus=1, memory_mb=512)
DAY = 86_400 * 1_000_000


def quick(**deadlines: float) -> ConductorSettings:
    """Return settings with quick resends and these deadlines."""
    return msgspec.structs.replace(ConductorSettings(lease_seconds=2.0, resend_seconds=0.1), **deadlines)


def cell_named(cloud: Cloud, name: str) -> Cell:
    return next(cell for cell in cloud.plane.cells.values() if cell.name == name)


async def taken(cloud: Cloud, uuid: InstanceUuid, times: int) -> None:
    """Wait until somebody has tried to place a server so many times, in vain."""

    async def probe() -> bool:
        mapping = await cloud.plane.databases.api.read(partial(mapping_of, instance=uuid))
        assert mapping is not None
        assert mapping.cell is None
        return mapping.attempt >= times

    await eventually(probe, f"{uuid} was taken {times} times")


async def in_state(cloud: Cloud, uuid: InstanceUuid, state: State) -> Instance:
    """Wait until a server is in a state."""

    async def probe() -> Instance | None:
        found = await cloud.find(uuid)
        return found if found is not None and found.state is state else None

    found = await eventually(probe, f"{uuid} is {state}")
    assert found is not None
    return found


async def test_a_build_waits_for_a_scheduler_that_is_away(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=1) as cloud:
        await cloud.plane.scheduler.stop()
        [uuid] = await cloud.create()
        await taken(cloud, uuid, 2)
        await cloud.plane.scheduler.start()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ACTIVE
        await cloud.no_claims()


async def test_servers_are_placed_though_the_database_was_away_as_the_conductor_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=1) as cloud:
        plane = cloud.plane
        assert plane.databases is not None
        assert plane._super_conductor is not None
        database, away = plane.databases.api, [StorageUnavailable("database api cannot be read: refused")]
        read = database.read

        async def once_away(unit: Any, **more: Any) -> Any:
            if unit is api_recovery.any_unplaced and away:
                raise away.pop()
            return await read(unit, **more)

        await plane._super_conductor.stop()
        monkeypatch.setattr(database, "read", once_away)
        await plane._start_super_conductor()
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert (server.state, away) == (State.ACTIVE, [])


async def test_a_scheduler_that_stays_away_is_the_reason_in_cell0(tmp_path: Path) -> None:
    async with running_cloud(
        tmp_path, quick_config(conductor=quick(not_ready_deadline=0.3)), cells=1, hosts=1
    ) as cloud:
        await cloud.plane.scheduler.stop()
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert await cloud.cell_of(uuid) == "cell0"
        assert server.fault is not None
        assert server.fault.message.startswith("No valid host: no scheduler answered")
        await cloud.plane.scheduler.start()


async def test_a_request_that_the_scheduler_fails_on_holds_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = quick(not_ready_deadline=1.0)
    async with running_cloud(tmp_path, quick_config(conductor=conductor), cells=1, hosts=1) as cloud:
        real = cloud.plane.transport.call

        async def call(address: Any, message: Any, **more: Any) -> Any:
            if isinstance(message, SelectDestinations) and message.spec.flavor == POISON:
                raise SkepError("SelectDestinations failed: KeyError")
            return await real(address, message, **more)

        monkeypatch.setattr(cloud.plane.transport, "call", call)
        [poison] = await cloud.create(flavor=POISON)
        await taken(cloud, poison, 1)
        good = await cloud.create(3)
        assert {server.state for server in await cloud.settled(good)} == {State.ACTIVE}
        [server] = await cloud.settled([poison])
        assert server.fault is not None
        assert server.fault.message == "No valid host: the scheduler failed"
        assert await cloud.cell_of(poison) == "cell0"


async def test_a_cell_that_cannot_store_is_left_out_and_then_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "AVOID_SECONDS", 2.0)
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=2, hosts=2) as cloud:
        database = cloud.plane.databases.cells["cell1"]

        async def full(_unit: Any, **_more: Any) -> Any:
            raise StorageUnavailable("database cell1 cannot store: disk full")

        with monkeypatch.context() as broken:
            broken.setattr(database, "write", full)
            uuids = await cloud.create(4)
            assert {server.state for server in await cloud.settled(uuids)} == {State.ACTIVE}
            assert {await cloud.cell_of(uuid) for uuid in uuids} == {"cell2"}
        await cloud.no_claims()

        async def used_again() -> bool:
            [uuid] = await cloud.create()
            await cloud.settled([uuid])
            return await cloud.cell_of(uuid) == "cell1"

        await eventually(used_again, "the cell gets servers again")
        await cloud.no_claims()


async def test_a_host_that_never_begins_loses_the_build_and_undoes_it_when_it_is_back(tmp_path: Path) -> None:
    conductor = quick(scheduled_deadline=2.0)
    async with running_cloud(tmp_path, quick_config(conductor=conductor), cells=1, hosts=2) as cloud:
        await cloud.stop_agent("cell1-host1")
        uuids = await cloud.create(4)
        servers = await cloud.settled(uuids)
        assert {(server.state, server.host) for server in servers} == {(State.ACTIVE, "cell1-host2")}
        histories = [await cloud.attempts(uuid) for uuid in uuids]
        replaced = [record for history in histories for record in history[:-1]]
        assert replaced, "some were meant for the silent host"
        assert all(record.open and record.host == "cell1-host1" for record in replaced)
        await cloud.plane.start_agent(cell_named(cloud, "cell1"), "cell1-host1")

        async def undone() -> bool:
            records = [record for uuid in uuids for record in (await cloud.attempts(uuid))[:-1]]
            return all(not record.open and record.outcome == "undone" for record in records)

        await eventually(undone, "the host that is back has undone what it was meant to build")
        assert sorted(guest.instance for guest in await cloud.guests()) == sorted(uuids)
        await cloud.no_claims()


async def test_silent_hosts_count_as_tried(tmp_path: Path) -> None:
    conductor = quick(scheduled_deadline=0.2)
    async with running_cloud(tmp_path, quick_config(conductor=conductor), cells=1, hosts=5) as cloud:
        for number in range(1, 6):
            await cloud.stop_agent(f"cell1-host{number}")
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        hosts = [record.host for record in await cloud.attempts(uuid) if record.host]
        assert len(hosts) == len(set(hosts)) == 3
        assert server.fault is not None
        assert server.fault.message.startswith("Build failed on 3 hosts")


async def given_up(cloud: Cloud, step: str) -> InstanceUuid:
    """Have the agent of the only host fall silent at the end of `step` until the server is given up."""
    halted = asyncio.Event()

    async def halt(point: CrashPoint) -> None:
        if (point.step, point.when) == (step, "after"):
            halted.set()
            await asyncio.Event().wait()

    cloud.plane.steps.crash_hook = halt
    [uuid] = await cloud.create()
    async with asyncio.timeout(PATIENCE):
        await halted.wait()
    await cloud.stop_agent("cell1-host1")
    server = await in_state(cloud, uuid, State.ERROR)
    assert server.fault is not None
    assert server.fault.message == "The host stopped answering while building"
    assert server.fault.details == "Host cell1-host1 stopped answering while building"
    assert server.host == "cell1-host1"
    [record] = await cloud.attempts(uuid)
    assert record.open
    cloud.plane.steps.crash_hook = None
    return uuid


async def test_a_host_silent_after_the_point_of_no_return_comes_back_with_its_guest(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(spawning_deadline=2.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        uuid = await given_up(cloud, "spawn")
        await cloud.plane.start_agent(cell_named(cloud, "cell1"), "cell1-host1")
        server = await in_state(cloud, uuid, State.ACTIVE)
        assert server.fault is None
        [record] = await cloud.attempts(uuid)
        assert (record.open, record.outcome) == (True, "built")
        await cloud.no_claims()
        await cloud.delete(uuid)
        await cloud.nothing_left()


async def test_a_host_that_comes_back_with_a_partial_guest_undoes_it_and_the_server_stays_in_error(
    tmp_path: Path,
) -> None:
    slow = quick_config(conductor=quick(spawning_deadline=2.0), spawn_delay=3600.0)
    async with running_cloud(tmp_path, slow, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await in_state(cloud, uuid, State.SPAWNING)
        await eventually(cloud.guests, "a part of the guest is there")
        await cloud.plane.agents.pop("cell1-host1").stop(drain_seconds=0)
        cloud.plane.drivers.pop("cell1-host1").close()
        await in_state(cloud, uuid, State.ERROR)
        cloud.plane.config = quick_config(conductor=quick())
        await cloud.plane.start_agent(cell_named(cloud, "cell1"), "cell1-host1")

        async def undone() -> bool:
            return not any(record.open for record in await cloud.attempts(uuid))

        await eventually(undone, "the attempt is closed")
        assert await cloud.guests() == []
        server = await in_state(cloud, uuid, State.ERROR)
        assert server.fault is not None
        await cloud.no_claims()
        await cloud.delete(uuid)
        await cloud.nothing_left()


@pytest.mark.parametrize(
    ("step", "when"),
    [(step, when) for step in ("stage", "map", "settle") for when in ("before", "after")] + [("select", "before")],
)
async def test_a_pass_that_fails_once_leaves_no_claim_behind(tmp_path: Path, step: str, when: str) -> None:
    """The scheduler goes on living here, so nothing but rows and releases can free what the failed pass claimed."""
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=2, hosts=2) as cloud:
        failed: list[str] = []

        async def fail_once(point: CrashPoint) -> None:
            if (point.step, point.when) == (step, when) and not failed:
                failed.append(step)
                raise StorageUnavailable("disk full")

        cloud.plane.steps.crash_hook = fail_once
        uuids = await cloud.create(4)
        assert {server.state for server in await cloud.settled(uuids)} == {State.ACTIVE}
        assert failed
        await cloud.no_claims()
        for uuid in uuids:
            await cloud.delete(uuid)
        await cloud.nothing_left()


async def test_a_name_that_another_node_has_is_refused_and_others_go_on(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=2, hosts=1) as cloud:

        async def register(cell: str, host: str) -> NodeUuid:
            node = NodeUuid(new_uuid())
            identity = AgentIdentity(node=node, host=host, process=Incarnation(new_uuid()))
            uuid = cell_named(cloud, cell).uuid
            with speaking(Speaker(node, host, None)):
                await cloud.plane.cell_transports[uuid].call(cell_conductor(uuid), RegisterAgent(identity=identity))
            return node

        with pytest.raises(Conflict, match="host cell1-host1 of cell cell1 is node"):
            await register("cell1", "cell1-host1")
        with structlog.testing.capture_logs() as logged:
            clash = await register("cell2", "cell1-host1")
            fresh = await register("cell2", "cell2-fresh")

            async def mapped() -> bool:
                return await cloud.plane.databases.api.read(partial(host_mappings.get, node=fresh)) is not None

            async def told() -> bool:
                return any(line["event"] == "host not mapped" and line["node"] == clash for line in logged)

            await eventually(mapped, "the other host is mapped")
            await eventually(told, "the clash is said loudly")
        assert await cloud.plane.databases.api.read(partial(host_mappings.get, node=clash)) is None

        async def alone_unmapped() -> bool:
            """Whether the cell has noted all other mappings, which it does after the API database has them."""
            return [agent.node for agent in await cloud.plane.databases.cells["cell2"].read(agents.unmapped)] == [clash]

        await eventually(alone_unmapped, "the clash alone stays unmapped")


class LaterClock(Clock):
    """The system's clock, some days on."""

    def __init__(self, days: int) -> None:
        self._days = days

    def now(self) -> Timestamp:
        return Timestamp(super().now() + self._days * DAY)


async def test_what_was_deleted_long_ago_is_purged_in_batches_and_what_lives_stays(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=2) as cloud:
        uuids = await cloud.create(5)
        await cloud.settled(uuids)
        kept, gone = uuids[0], uuids[1:]
        for uuid in gone:
            await cloud.delete(uuid)
        await cloud.gone(gone)

        async def forgotten() -> bool:
            rows = await cloud.plane.databases.cells["cell1"].read(lambda c: c.execute(sa.select(instance_rows)).all())
            return all(row.forgotten for row in rows if row.uuid != kept)

        await eventually(forgotten, "the level above knows all deletes")
        settings = RetentionSettings(days=30, batch_rows=3)

        conductor = cloud.plane._super_conductor
        assert conductor is not None

        def retention(days: int) -> Retention:
            return Retention(dataclasses.replace(conductor._parts, clock=LaterClock(days)), settings)

        assert await retention(29).run() is False
        assert await rows_left(cloud) == (5, 5)
        assert await retention(31).run() is True
        assert await rows_left(cloud) == (2, 2)
        assert await retention(31).run() is False
        assert await rows_left(cloud) == (1, 1)
        found = await cloud.find(kept)
        assert found is not None
        assert found.state is State.ACTIVE


async def rows_left(cloud: Cloud) -> tuple[int, int]:
    """Return how many mappings and how many rows of the cell there are."""

    def count(table: sa.Table, connection: sa.Connection) -> int:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()

    above = await cloud.plane.databases.api.read(partial(count, instance_mappings))
    return above, await cloud.plane.databases.cells["cell1"].read(partial(count, instance_rows))
