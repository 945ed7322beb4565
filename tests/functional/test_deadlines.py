"""Deadlines are for hosts that are silent: not for busy ones, nor for the time in which nobody listened."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.cell import actions, tasks
from skep.database.cell.tables import instances, migrations
from skep.domain.actions import ACTIONS
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, new_request_id
from skep.domain.instances import State
from skep.messages.to_compute import BuildAndRunInstance
from skep.processes.conducting import make_cell_conductor
from skep.processes.control_plane import ControlPlane
from skep.telemetry.steps import CrashPoint
from tests.functional.test_cold_moves import becomes, move, server_with_disk


def quick(**deadlines: float) -> ConductorSettings:
    return msgspec.structs.replace(ConductorSettings(lease_seconds=2.0, resend_seconds=0.1), **deadlines)


async def only_attempts(cloud: Cloud, uuids: list[InstanceUuid]) -> None:
    """All servers run, each on the first host that it was given to."""
    servers = await cloud.settled(uuids)
    assert {(server.state, server.fault) for server in servers} == {(State.ACTIVE, None)}
    assert [len(await cloud.attempts(uuid)) for uuid in uuids] == [1] * len(uuids)


async def test_builds_wait_for_their_turn_on_a_busy_host(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(scheduled_deadline=2.0), spawn_delay=0.8)
    compute = msgspec.structs.replace(config.compute, max_concurrent_builds=1)
    config = msgspec.structs.replace(config, compute=compute)
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        await only_attempts(cloud, await cloud.create(4))


async def test_a_host_may_take_its_time_to_make_a_guest(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(spawning_deadline=2.0), spawn_delay=3.0)
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        await only_attempts(cloud, await cloud.create(2))


async def test_a_host_may_take_its_time_to_prepare(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(building_deadline=2.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        driver = cloud.fakes["cell1-host1"]
        driver.settings = msgspec.structs.replace(driver.settings, prepare_delay=3.0)
        await only_attempts(cloud, await cloud.create(2))


async def test_the_time_in_which_nobody_listened_is_no_silence(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path, quick_config(conductor=quick(scheduled_deadline=5.0)), cells=1, hosts=1)
    await cloud.start()
    [conductor] = cloud.plane._cell_conductors
    await conductor._builds.dispatching.stop()
    uuids = await cloud.create(2)

    async def scheduled() -> bool:
        found = [await cloud.find(uuid) for uuid in uuids]
        return all(one is not None and one.state is State.SCHEDULED for one in found)

    await eventually(scheduled, "the builds wait for their host")
    await cloud.stop()
    await asyncio.to_thread(_age, tmp_path, 3600)
    await cloud.start()
    await only_attempts(cloud, uuids)
    await cloud.stop()


def _age(root: Path, seconds: int) -> None:
    """Make the rows of the cell look as after so long a downtime."""
    [file] = root.rglob("cell1.db")
    engine = sa.create_engine(f"sqlite:///{file}")
    past = {"sent_at": sa.func.coalesce(instances.c.sent_at, instances.c.step_at) - seconds * 10**6}
    with engine.begin() as connection:
        connection.execute(instances.update().values(**past, step_at=instances.c.step_at - seconds * 10**6))
    engine.dispose()


async def test_the_time_in_which_nobody_listened_fails_no_move(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(move_deadline=600.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait_there(point: CrashPoint) -> None:
            if (point.step, point.when) == ("move_prepare", "before"):
                begun.set()
                await go_on.wait()

        cloud.plane.steps.crash_hook = wait_there
        await move(cloud, server)
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
        plane, database = cloud.plane, cloud.plane.databases.cells["cell1"]
        [former] = plane._cell_conductors
        await former.stop()
        away = 3600 * SECOND
        past = {"sent_at": migrations.c.sent_at - away, "step_at": migrations.c.step_at - away}
        await database.write(lambda connection: connection.execute(migrations.update().values(**past)).rowcount)
        before = cloud.clock.now()
        [cell] = (one for one in plane.cells.values() if one.name == "cell1")
        plane._cell_conductors.remove(former)
        conductor = make_cell_conductor(
            plane.process, cell, database, transport=plane.cell_transports[cell.uuid], above=plane.transport
        )
        await conductor.start()
        plane._cell_conductors.append(conductor)
        plane._conductor_of[cell.uuid] = conductor

        async def told_again() -> bool:
            told = sa.select(migrations.c.sent_at)
            return bool(await database.read(lambda connection: connection.execute(told).scalar_one() or 0) >= before)

        await eventually(told_again, "the host is told again")
        go_on.set()
        moved = await becomes(cloud, server.uuid, State.RESIZED)
        assert moved.host != server.host
        assert len(await cloud.attempts(server.uuid)) == 2, "the first target was good"


def sent_of(plane: ControlPlane) -> list[InstanceUuid]:
    """Collect the builds that are sent to hosts from now on."""
    sent: list[InstanceUuid] = []
    [conductor] = plane._cell_conductors
    transport = conductor._parts.transport
    real = transport.cast

    async def cast(address: object, message: object, context: object = None) -> None:
        if isinstance(message, BuildAndRunInstance):
            sent.append(message.instance.uuid)
        await real(address, message, context)  # type: ignore[arg-type]  # passed on as it came

    transport.cast = cast  # type: ignore[method-assign]  # one object of this cloud
    return sent


async def test_what_a_host_has_in_hand_is_not_sent_again_and_again(tmp_path: Path) -> None:
    config = quick_config(conductor=quick(scheduled_deadline=2.0), spawn_delay=0.3)
    compute = msgspec.structs.replace(config.compute, max_concurrent_builds=1)
    config = msgspec.structs.replace(config, compute=compute)
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        sent = sent_of(cloud.plane)
        uuids = await cloud.create(8)
        await only_attempts(cloud, uuids)
        assert max(sent.count(uuid) for uuid in uuids) <= 6, "it took many times the pause of a resend"


async def test_a_task_that_a_dead_host_does_not_end_is_an_error_of_its_action(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick(task_deadline=0.5)), cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await cloud.stop_agent("cell1-host1")
        cell = cloud.plane.databases.cells["cell1"]
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)
        begin = partial(
            tasks.begin,
            uuid=uuid,
            action=ACTIONS["reboot_hard"],
            context=context,
            now=cloud.clock.now(),
        )
        assert await cell.write(begin)
        [server] = await cloud.settled([uuid])
        assert (server.state, server.task, server.fault) == (State.ACTIVE, None, None)
        [event] = await cell.read(partial(actions.events_of, instance=uuid, request_id=context.request_id))
        assert (event.result, event.details) == ("Error", "The host did not answer")


async def test_one_damaged_row_does_not_keep_others_from_their_hosts(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=1) as cloud:
        [conductor] = cloud.plane._cell_conductors
        conductor._builds.asserted = False
        conductor._beats.on_asserted = lambda _: None
        [damaged] = await cloud.create()
        await cloud.tried(damaged)
        spoil = instances.update().where(instances.c.uuid == damaged).values(spec=b'{"flavor": 5}')
        await cloud.plane.databases.cells["cell1"].write(lambda connection: connection.execute(spoil).rowcount)
        others = await cloud.create(3)
        conductor._builds.asserted = True
        servers = await cloud.settled([damaged, *others])
        assert [server.state for server in servers] == [State.ERROR, State.ACTIVE, State.ACTIVE, State.ACTIVE]
        assert servers[0].fault is not None
        assert "damaged" in servers[0].fault.message
        for uuid in (damaged, *others):
            await cloud.delete(uuid)
        await cloud.gone([damaged, *others])
        await cloud.nothing_left()
