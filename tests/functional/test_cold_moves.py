"""Cold moves in a whole cell: a server is on its source or on its target, once, with its disk, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from skep.compute.drivers.fake import DISKS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.cell import cold_moves, instances, row_actions, server_migrations
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, new_request_id
from skep.domain.instances import Instance, PowerState, State
from skep.domain.server_migrations import ServerMigration
from skep.messages.to_cell_conductor import InstancesChanged
from skep.telemetry.steps import CrashPoint
from skep.transport.base import cell_conductor


class _Stopped(Exception):
    """What a step raises where a test holds the move."""


QUICK = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, move_deadline=30.0))
CONTENT = b"written by the guest"


def context() -> RequestContext:
    return RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)


async def server_with_disk(cloud: Cloud) -> Instance:
    """Make a server whose disk has content."""
    [server] = await cloud.settled(await cloud.create())
    assert server.state is State.ACTIVE
    disk_file(cloud, server, server.attempt).write_bytes(CONTENT)
    return server


def disk_file(cloud: Cloud, server: Instance, attempt: int) -> Path:
    assert server.host is not None
    return cloud.directory.host("cell1", server.host) / DISKS / f"{server.uuid}_{attempt}"


def disk_of(cloud: Cloud, server: Instance) -> bytes:
    return disk_file(cloud, server, server.attempt).read_bytes()


def disks(cloud: Cloud) -> int:
    """Return how many disks there are on all hosts."""
    homes = (cloud.directory.host("cell1", host) for host in cloud.fakes)
    return sum(len(FakeDisks(home / DISKS).labels()) for home in homes)


async def asked(cloud: Cloud, unit: Callable[[Connection], object]) -> object:
    result = await cloud.plane.databases.cells["cell1"].write(unit)
    await told(cloud)
    return result


async def told(cloud: Cloud) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())


async def migrate(cloud: Cloud, server: Instance, host: str | None = None) -> RequestContext:
    """Ask for a migration as the API does."""
    who = context()

    def unit(connection: Connection) -> object:
        row = instances.get(connection, server.uuid)
        assert row is not None
        return cold_moves.begin(connection, row, ACTIONS["migrate"], who, cloud.clock.now(), wanted_host=host)

    assert await asked(cloud, unit) is not None
    return who


async def revert(cloud: Cloud, uuid: InstanceUuid) -> None:
    def unit(connection: Connection) -> object:
        row = instances.get(connection, uuid)
        assert row is not None
        return cold_moves.begin_revert(connection, row, ACTIONS["revert_resize"], context(), cloud.clock.now())

    assert await asked(cloud, unit) is not None


async def confirm(cloud: Cloud, uuid: InstanceUuid) -> None:
    action = ACTIONS["confirm_resize"]
    request = ActionRequest(action=action.name, context=context())
    carry = partial(
        row_actions.carry_out,
        uuid=uuid,
        action=action,
        request=request,
        check=lambda _server: None,
        host="api",
        now=cloud.clock.now(),
    )
    assert await asked(cloud, carry)


async def becomes(cloud: Cloud, uuid: InstanceUuid, state: State) -> Instance:
    """Wait until nothing is done to a server and it is in this state."""

    async def probe() -> Instance | None:
        found = await cloud.find(uuid)
        return found if found is not None and found.task is None and found.state is state else None

    found = await eventually(probe, f"the server is {state.value}")
    assert found is not None
    return found


async def only_attempt(cloud: Cloud, server: Instance) -> None:
    """Wait until nothing but the attempt that holds the server is left anywhere."""

    async def probe() -> bool:
        open_ones = [one.attempt for one in await cloud.attempts(server.uuid) if one.open]
        return open_ones == [server.attempt] and disks(cloud) == 1 and await cloud.used_vcpus() == 1

    await eventually(probe, "only the holder is left")
    await cloud.no_claims()
    assert [(guest.attempt, guest.whole) for guest in await cloud.guests()] == [(server.attempt, True)]


async def move_of(cloud: Cloud, uuid: InstanceUuid) -> ServerMigration:
    read = partial(server_migrations.listed, query=MigrationQuery(instance=uuid))
    return (await cloud.plane.databases.cells["cell1"].read(read))[0]


async def test_a_server_goes_to_another_host_and_is_confirmed(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        await migrate(cloud, before)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert moved.host != before.host
        assert moved.attempt > before.attempt
        assert moved.power_state is PowerState.RUNNING
        assert disk_of(cloud, moved) == CONTENT
        assert [guest.attempt for guest in await cloud.guests()] == [moved.attempt]
        found = await move_of(cloud, before.uuid)
        assert (found.status, found.source_host, found.dest_host) == ("finished", before.host, moved.host)

        await confirm(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (moved.host, moved.attempt)
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "confirmed"
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_a_server_goes_back(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        await migrate(cloud, before)
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        await revert(cloud, before.uuid)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert after.host == before.host
        assert after.attempt > moved.attempt
        assert disk_of(cloud, after) == CONTENT
        await only_attempt(cloud, after)
        assert (await move_of(cloud, before.uuid)).status == "reverted"
        await migrate(cloud, after)
        again = await becomes(cloud, before.uuid, State.RESIZED)
        assert again.host == moved.host
        await cloud.delete(before.uuid)
        await cloud.gone([before.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


async def test_without_a_host_the_server_stays_as_it_was(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        before = await server_with_disk(cloud)
        await migrate(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt) == (before.host, before.attempt)
        assert after.fault is not None
        assert "No valid host" in after.fault.message
        assert (await move_of(cloud, before.uuid)).status == "error"
        await only_attempt(cloud, after)


@pytest.mark.parametrize("operation", ["put_aside", "kept", "receive"])
async def test_what_fails_before_the_switch_leaves_the_server_running(tmp_path: Path, operation: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        failing = FakeSettings(failures=(FailureRule(operation=operation, times=1),))
        for driver in cloud.fakes.values():
            driver.settings = failing
        await migrate(cloud, before)
        after = await becomes(cloud, before.uuid, State.ACTIVE)
        assert (after.host, after.attempt, after.power_state) == (before.host, before.attempt, PowerState.RUNNING)
        assert after.fault is not None
        assert disk_of(cloud, after) == CONTENT
        await only_attempt(cloud, after)


async def test_a_target_that_cannot_start_it_is_error_until_it_can(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        before = await server_with_disk(cloud)
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings(failures=(FailureRule(operation="take_up"),))
        await migrate(cloud, before)

        async def error() -> bool:
            found = await cloud.find(before.uuid)
            return found is not None and found.state is State.ERROR

        await eventually(error, "the server is ERROR")
        assert [one.open for one in await cloud.attempts(before.uuid)] == [True, True], "both are kept"
        for driver in cloud.fakes.values():
            driver.settings = FakeSettings()
        moved = await becomes(cloud, before.uuid, State.RESIZED)
        assert moved.fault is None
        assert disk_of(cloud, moved) == CONTENT


POINTS = [
    (step, when)
    for step in (
        "move_select",
        "move_prepare",
        "move_put_aside",
        "move_transfer",
        "move_take_up",
        "may_move",
        "moved",
    )
    for when in ("before", "after")
]


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        deleted = asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                deleted.set()
                await cloud.delete(server.uuid)

        cloud.plane.steps.crash_hook = delete_there
        await migrate(cloud, server)
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "when"), POINTS)
async def test_a_restart_at_any_point_goes_on(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=2) as cloud:
        server = await server_with_disk(cloud)
        stopped = asyncio.Event()

        async def stop_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when:
                stopped.set()
                raise _Stopped

        cloud.plane.steps.crash_hook = stop_there
        await migrate(cloud, server)
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
        await cloud.restart()
        moved = await becomes(cloud, server.uuid, State.RESIZED)
        assert disk_of(cloud, moved) == CONTENT
        assert [guest.attempt for guest in await cloud.guests()] == [moved.attempt]
        await confirm(cloud, server.uuid)
        await only_attempt(cloud, await becomes(cloud, server.uuid, State.ACTIVE))
