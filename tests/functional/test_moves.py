"""A server for which one cell has no host goes to another; its mapping follows; nothing stays behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.config.compute import FakeFailure
from skep.config.sections import Config
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.domain.errors import SkepError
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from skep.messages.to_scheduler import SelectDestinations
from skep.telemetry.steps import CrashPoint


class _Stopped(Exception):
    """What a step raises where a test holds the move."""


def failing(*hosts: str) -> Config:
    """Return a configuration in which these hosts cannot spawn."""
    return quick_config(failures=[FakeFailure(operation="spawn", error="SpawnFailed", host=host) for host in hosts])


async def in_cell2(cloud: Cloud, server: Instance) -> None:
    """Assert that a server runs in cell2 and that nothing of it is in cell1; then delete it, to the last row."""
    assert server.state is State.ACTIVE
    assert await cloud.cell_of(server.uuid) == "cell2"
    assert [guest.instance for guest in await cloud.guests()] == [server.uuid]
    await cloud.no_claims()
    await cloud.delete(server.uuid)
    await cloud.gone([server.uuid])
    await cloud.nothing_left()


async def first_in_cell1(cloud: Cloud) -> Instance:
    """Create a server that is tried in cell1 first, and wait for it."""
    await cloud.only_cell("cell1")
    [uuid] = await cloud.create()
    await cloud.tried(uuid)
    await cloud.only_cell(None)
    [server] = await cloud.settled([uuid])
    return server


async def test_a_server_moves_to_a_cell_that_has_a_host(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, failing("cell1-*"), hosts=2) as cloud:
        server = await first_in_cell1(cloud)
        assert server.fault is None
        assert await cloud.cells_before(server.uuid) == ["cell1"]
        await in_cell2(cloud, server)


async def test_without_a_host_in_any_cell_it_is_error_in_the_last_one(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, failing("*"), hosts=2) as cloud:
        server = await first_in_cell1(cloud)
        assert server.state is State.ERROR
        assert await cloud.cell_of(server.uuid) == "cell2"
        assert server.fault is not None
        assert "Build failed on 2 hosts" in server.fault.message
        await cloud.delete(server.uuid)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()


async def test_without_room_elsewhere_it_is_error_in_its_own_cell(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, failing("*"), hosts=2) as cloud:
        await cloud.only_cell("cell1")
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ERROR
        assert await cloud.cell_of(uuid) == "cell1"
        assert server.fault is not None
        assert "Build failed on 2 hosts" in server.fault.message
        assert "No valid host" in server.fault.message


@pytest.mark.parametrize("step", ["move", "stage", "map", "settle"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_move_that_stopped_goes_on_after_a_restart(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, failing("cell1-*"), hosts=2) as cloud:

        async def fail_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and (step == "move" or point.cell == "cell2"):
                raise _Stopped

        cloud.plane.steps.crash_hook = fail_there
        await cloud.only_cell("cell1")
        [uuid] = await cloud.create()
        await cloud.tried(uuid)
        await cloud.only_cell(None)
        await cloud.restart()
        [server] = await cloud.settled([uuid])
        await in_cell2(cloud, server)


@pytest.mark.parametrize("step", ["move", "stage", "map", "settle"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_in_mid_move_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, failing("cell1-*"), hosts=2) as cloud:
        uuids: list[InstanceUuid] = []

        async def delete_there(point: CrashPoint) -> None:
            if uuids and point.step == step and point.when == when and (step == "move" or point.cell == "cell2"):
                await cloud.delete(uuids[0])

        cloud.plane.steps.crash_hook = delete_there
        await cloud.only_cell("cell1")
        uuids += await cloud.create()
        await cloud.tried(uuids[0])
        await cloud.only_cell(None)
        await cloud.gone(uuids)
        await cloud.nothing_left()


@pytest.mark.parametrize("error", [SkepError("a filter is broken"), RuntimeError("so is this")])
async def test_a_move_that_no_scheduler_can_decide_ends_at_its_deadline(tmp_path: Path, error: Exception) -> None:
    config = failing("cell1-*")
    hurried = msgspec.structs.replace(config.conductor, not_ready_deadline=0.5)
    config = msgspec.structs.replace(config, conductor=hurried)
    async with running_cloud(tmp_path, config, hosts=2) as cloud:
        real = cloud.plane.transport.call

        async def call(address: Any, message: Any, **more: Any) -> Any:
            if isinstance(message, SelectDestinations) and message.exclude_cells:
                raise error
            return await real(address, message, **more)

        cloud.plane.transport.call = call  # type: ignore[method-assign]  # one object of this cloud
        server = await first_in_cell1(cloud)
        assert server.state is State.ERROR
        assert server.fault is not None
        assert "In other cells: " in server.fault.message
