"""Rebuilds in a whole cell: a server is what it was or what was asked for, once, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.compute.drivers.fake import DISKS, EPHEMERALS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.config.compute import FakeFailure
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, SMALL, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.cell import actions, guest_secrets, instances, rebuilds, server_migrations, tasks
from skep.database.cell.server_migrations import MigrationQuery
from skep.database.cell.tables import instances as instance_rows
from skep.domain.actions import ACTIONS, Rebuild
from skep.domain.context import RequestContext
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, new_request_id, new_uuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.messages.to_cell_conductor import InstancesChanged
from skep.telemetry.steps import CrashPoint
from skep.transport.base import cell_conductor

QUICK = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, move_deadline=30.0))
CONTENT = b"written by the guest"
NEW = {"name": "new", "description": "anew", "metadata": {"colour": "blue"}, "image": {"id": "image-2"}}
SPAWN_OF_NEW = [FakeFailure(operation="spawn", server="new")]
"""The guest that is made anew bears its new name."""
LARGE = msgspec.structs.replace(SMALL, ephemeral_gb=5)


class _Stopped(Exception):
    """What a step raises where a test holds the rebuild."""


async def server_with_disk(cloud: Cloud, state: State = State.ACTIVE, **more: Any) -> Instance:
    """Make a server in a state, whose disk has content."""
    [server] = await cloud.settled(await cloud.create(**more))
    disk(cloud, server, server.attempt).write_bytes(CONTENT)
    if state is State.STOPPED:
        stop = partial(tasks.begin, uuid=server.uuid, action=ACTIONS["stop"], context=context(), now=cloud.clock.now())
        assert await asked(cloud, stop)
    elif state is State.ERROR:

        def fail(connection: Connection) -> bool:
            connection.execute(instance_rows.update().values(state=State.ERROR.value))
            return True

        assert await asked(cloud, fail)
    return await becomes(cloud, server.uuid, state)


def context() -> RequestContext:
    return RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)


def disk(cloud: Cloud, server: Instance, attempt: int, kind: str = DISKS) -> Path:
    assert server.host is not None
    return cloud.directory.host("cell1", server.host) / kind / f"{server.uuid}_{attempt}"


def content(cloud: Cloud, server: Instance, kind: str = DISKS) -> bytes:
    return disk(cloud, server, server.attempt, kind).read_bytes()


def disks(cloud: Cloud) -> int:
    """Return how many disks there are on all hosts."""
    homes = (cloud.directory.host("cell1", host) for host in cloud.fakes)
    return sum(len(FakeDisks(home / kind).labels()) for home in homes for kind in (DISKS, EPHEMERALS))


async def asked(cloud: Cloud, unit: Any) -> Any:
    result = await cloud.plane.databases.cells["cell1"].write(unit)
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())
    return result


async def rebuild(
    cloud: Cloud, server: Instance, *, preserve: bool = False, changes: dict[str, Any] = NEW
) -> RequestContext:
    """Ask for a rebuild as the API does."""
    who = context()

    def unit(connection: Connection) -> object:
        row = instances.get(connection, server.uuid)
        assert row is not None
        wanted = Rebuild(changes=changes, preserve=preserve)
        return rebuilds.begin(connection, row, who, cloud.clock.now(), wanted, b"no key opens this")

    assert await asked(cloud, unit) is not None
    return who


async def becomes(cloud: Cloud, uuid: InstanceUuid, state: State) -> Instance:
    """Wait until nothing is done to a server and it is in this state."""

    async def probe() -> Instance | None:
        found = await cloud.find(uuid)
        return found if found is not None and found.task is None and found.state is state else None

    found = await eventually(probe, f"the server is {state.value}")
    assert found is not None
    return found


async def alone(cloud: Cloud, server: Instance, power: PowerState = PowerState.RUNNING, *, kinds: int = 1) -> None:
    """Wait until nothing but the attempt that holds the server is left, and see that its guest is as it should be."""

    async def probe() -> bool:
        open_ones = [one.attempt for one in await cloud.attempts(server.uuid) if one.open]
        return open_ones == [server.attempt] and disks(cloud) == kinds and await cloud.used_vcpus() == 1

    await eventually(probe, "only the holder is left")
    await cloud.no_claims()
    guests = await cloud.guests()
    assert [(guest.attempt, guest.whole, guest.power_state) for guest in guests] == [(server.attempt, True, power)]
    needless = await cloud.plane.databases.cells["cell1"].read(guest_secrets.sealed)
    assert needless == [], "no secrets stay"


def is_anew(after: Instance, before: Instance) -> bool:
    assert after.image is not None
    told = (after.name, after.description, after.metadata, after.image.id)
    assert told == ("new", "anew", {"colour": "blue"}, "image-2")
    return after.host == before.host and after.attempt > before.attempt


def is_as_before(after: Instance, before: Instance) -> bool:
    facts = ("name", "description", "metadata", "image", "attempt", "host", "state", "power_state", "launched_at")
    return all(getattr(after, fact) == getattr(before, fact) for fact in facts)


@pytest.mark.parametrize(
    ("state", "ends", "power"),
    [
        (State.ACTIVE, State.ACTIVE, PowerState.RUNNING),
        (State.STOPPED, State.STOPPED, PowerState.SHUTDOWN),
        (State.ERROR, State.ACTIVE, PowerState.RUNNING),
    ],
)
async def test_a_server_is_made_anew_on_its_host(tmp_path: Path, state: State, ends: State, power: PowerState) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud, state)
        who = await rebuild(cloud, before)
        after = await becomes(cloud, before.uuid, ends)
        assert is_anew(after, before)
        assert after.fault is None
        assert content(cloud, after) == b"", "the root disk is another"
        await alone(cloud, after, power)
        cell = cloud.plane.databases.cells["cell1"]
        events = await cell.read(partial(actions.events_of, instance=before.uuid, request_id=who.request_id))
        assert {(one.event, one.result) for one in events} == {
            ("rebuild_server", "Success"),
            ("compute_rebuild_instance", "Success"),
        }
        assert await cell.read(partial(server_migrations.listed, query=MigrationQuery())) == []
        told = [one.event_type for one in cloud.notifications if one.event_type.startswith("instance.rebuild")]
        assert told == ["instance.rebuild_scheduled", "instance.rebuild.start", "instance.rebuild.end"]
        await rebuild(cloud, after)
        again = await becomes(cloud, before.uuid, ends)
        assert again.attempt > after.attempt
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_full_host_has_room_for_a_rebuild(tmp_path: Path) -> None:
    config = quick_config(conductor=QUICK.conductor, vcpus=1)
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        used: set[int] = set()

        async def look(point: CrashPoint) -> None:
            if point.step in ("move_rebuild_put_aside", "move_rebuild_spawn") and point.when == "after":
                [agent] = cloud.plane.agents.values()
                used.add(agent._started.ledger.usage()["VCPU"])

        cloud.plane.steps.crash_hook = look
        await rebuild(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_anew(after, before)
        await alone(cloud, after)
        assert used == {1}, "the two attempts hold the same room"


async def test_a_member_of_a_group_keeps_its_place(tmp_path: Path) -> None:
    apart = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud, group=apart)
        await rebuild(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_anew(after, before)
        await alone(cloud, after)
        [none] = await cloud.settled(await cloud.create(group=apart))
        assert none.state is State.ERROR, "the host has a member"


@pytest.mark.parametrize("preserve", [True, False])
async def test_ephemeral_disks_stay_where_that_is_asked(tmp_path: Path, preserve: bool) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud, flavor=LARGE)
        disk(cloud, before, before.attempt, EPHEMERALS).write_bytes(CONTENT)
        await rebuild(cloud, before, preserve=preserve)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_anew(after, before)
        assert content(cloud, after) == b""
        assert content(cloud, after, EPHEMERALS) == (CONTENT if preserve else b"")
        await alone(cloud, after, kinds=2)


@pytest.mark.parametrize("state", [State.ACTIVE, State.STOPPED, State.ERROR])
@pytest.mark.parametrize("operation", ["prepare", "put_aside", "spawn", "power_off"])
async def test_what_fails_leaves_the_server_as_it_was(tmp_path: Path, operation: str, state: State) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud, state)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation=operation, times=1),))
        who = await rebuild(cloud, before)
        if operation == "power_off" and state is not State.STOPPED:
            assert is_anew(await becomes(cloud, before.uuid, State.ACTIVE), before)
            return
        after = await becomes(cloud, before.uuid, state)
        assert is_as_before(after, before)
        assert after.fault is not None
        assert "injected failure" in after.fault.message
        assert content(cloud, after) == CONTENT
        await alone(cloud, after, before.power_state)
        read = partial(actions.events_of, instance=before.uuid, request_id=who.request_id)
        events = await cloud.plane.databases.cells["cell1"].read(read)
        assert "Error" in {one.result for one in events}
        assert any(one.event_type == "instance.rebuild.error" for one in cloud.notifications)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        await rebuild(cloud, after)
        again = await becomes(cloud, before.uuid, State.STOPPED if state is State.STOPPED else State.ACTIVE)
        assert is_anew(again, before)


async def test_a_guest_that_cannot_be_taken_up_again_is_error_until_it_can(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        [driver] = cloud.fakes.values()
        driver.settings = FakeSettings(
            failures=(FailureRule(operation="spawn", times=1), FailureRule(operation="take_up"))
        )
        await rebuild(cloud, before)

        async def error() -> bool:
            found = await cloud.find(before.uuid)
            return found is not None and found.state is State.ERROR

        await eventually(error, "the server is ERROR")
        driver.settings = FakeSettings()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_as_before(after, before)
        assert content(cloud, after) == CONTENT
        await alone(cloud, after)


async def test_a_guest_of_which_nothing_is_left_is_error_and_may_be_rebuilt(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud, State.ERROR)
        [driver] = cloud.fakes.values()
        await driver.destroy(before.uuid)
        driver.settings = FakeSettings(failures=(FailureRule(operation="spawn", times=1),))
        await rebuild(cloud, before)
        lost = await becomes(cloud, before.uuid, State.ERROR)
        assert lost.fault is not None
        assert lost.attempt == before.attempt
        await rebuild(cloud, lost)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_anew(after, before)
        await alone(cloud, after)


async def test_tasks_and_statuses_on_the_way(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        seen: list[Task | None] = []

        async def look(point: CrashPoint) -> None:
            if point.step.startswith("move_rebuild") and point.when == "before":
                found = await cloud.find(before.uuid)
                assert found is not None
                seen.append(found.task)

        cloud.plane.steps.crash_hook = look
        await rebuild(cloud, before)
        await becomes(cloud, before.uuid, State.ACTIVE)
        assert seen == [Task.REBUILDING, Task.REBUILD_BLOCK_DEVICE_MAPPING, Task.REBUILD_SPAWNING]


def points(steps: Sequence[str]) -> list[tuple[str, str]]:
    return [(step, when) for step in steps for when in ("before", "after")]


POINTS = points(("move_rebuild_prepare", "move_rebuild_put_aside", "move_rebuild_spawn", "may_move", "moved"))


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        server = await server_with_disk(cloud)
        deleted = asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                deleted.set()
                await cloud.delete(server.uuid)

        cloud.plane.steps.crash_hook = delete_there
        await rebuild(cloud, server)
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_restart_at_any_point_goes_on(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud, State.STOPPED)
        stopped = asyncio.Event()

        async def stop_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when:
                stopped.set()
                raise _Stopped

        cloud.plane.steps.crash_hook = stop_there
        await rebuild(cloud, before)
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
        await cloud.restart()
        after = await becomes(cloud, before.uuid, State.STOPPED)
        assert is_anew(after, before)
        assert content(cloud, after) == b""
        await alone(cloud, after, PowerState.SHUTDOWN)


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(
    ("step", "when"), points(("move_rebuild_spawn", "move_take_back", "destroy", "failed", "may_move", "moved"))
)
async def test_a_restart_at_any_point_of_a_rebuild_that_fails_goes_back(tmp_path: Path, step: str, when: str) -> None:
    failing = quick_config(conductor=QUICK.conductor, failures=SPAWN_OF_NEW)
    async with running_cloud(tmp_path, failing, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        stopped = asyncio.Event()
        began = asyncio.Event()

        async def stop_there(point: CrashPoint) -> None:
            if point.step == "move_rebuild_spawn" and point.when == "before":
                began.set()
            if began.is_set() and point.step == step and point.when == when:
                stopped.set()
                raise _Stopped

        cloud.plane.steps.crash_hook = stop_there
        await rebuild(cloud, before)
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
        await cloud.restart()
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert is_as_before(after, before)
        assert content(cloud, after) == CONTENT
        await alone(cloud, after)
