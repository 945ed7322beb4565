"""What keeps one request or one cell from working does not reach the others, and is over when its cause is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.database.api import instance_mappings as mappings
from skep.database.api.tables import build_requests
from skep.database.api.tables import instance_mappings as mapping_rows
from skep.database.engine import Database
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CellUuid, InstanceUuid, new_uuid
from skep.domain.instances import State


@asynccontextmanager
async def failing(database: Database, unit: str, times: int) -> AsyncIterator[None]:
    """Let a database refuse the next `times` writes whose unit is a partial of a function named `unit`."""
    write = database.write
    left = times

    async def refusing(work: Callable[[sa.Connection], Any], **how: Any) -> Any:
        nonlocal left
        name = getattr(getattr(work, "func", work), "__name__", "")
        if name == unit and left > 0:
            left -= 1
            raise StorageUnavailable("injected")
        return await write(work, **how)

    database.write = refusing  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        database.write = write  # type: ignore[method-assign]


async def test_one_failing_write_of_the_only_cell_is_no_reason_for_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.super_conductor.builds.AVOID_SECONDS", 0.5)
    async with running_cloud(tmp_path, cells=1) as cloud, failing(cloud.plane.databases.cells["cell1"], "stage", 1):
        servers = await cloud.settled(await cloud.create(3))
        assert {server.state for server in servers} == {State.ACTIVE}
        await cloud.no_claims()


async def test_a_failing_map_takes_no_room_from_its_own_next_try(tmp_path: Path) -> None:
    config = quick_config(vcpus=1)
    config = msgspec.structs.replace(config, compute=msgspec.structs.replace(config.compute, cpu_allocation_ratio=1.0))
    async with (
        running_cloud(tmp_path, config, cells=1, hosts=1) as cloud,
        failing(cloud.plane.databases.api, "_map", 1),
    ):
        [server] = await cloud.settled(await cloud.create())
        assert server.state is State.ACTIVE


async def test_a_request_that_nobody_can_decide_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1) as cloud:
        [lost] = await cloud.settled(await cloud.create())

        def elsewhere(connection: sa.Connection) -> None:
            connection.execute(
                mapping_rows.update().where(mapping_rows.c.instance == lost.uuid).values(cell=CellUuid(new_uuid()))
            )

        await cloud.plane.databases.api.write(elsewhere)
        beside = await cloud.create(same_host=(lost.uuid,))
        servers = await cloud.settled(await cloud.create(2))
        assert {server.state for server in servers} == {State.ACTIVE}
        [server] = await cloud.settled(beside)
        assert server.state is State.ERROR


async def test_a_row_that_cannot_be_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1) as cloud:
        held = asyncio.Event()

        async def hold(_point: object) -> None:
            await held.wait()

        cloud.plane.steps.crash_hook = hold
        [bad] = await cloud.create()

        def spoil(connection: sa.Connection) -> None:
            connection.execute(
                build_requests.update()
                .where(build_requests.c.instance == bad)
                .values(body=b'{"of": "another release"}')
            )

        await cloud.plane.databases.api.write(spoil)
        cloud.plane.steps.crash_hook = None
        held.set()
        servers = await cloud.settled(await cloud.create(2))
        assert {server.state for server in servers} == {State.ACTIVE}


async def test_a_cell_whose_writer_hangs_holds_up_no_other(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, hosts=1) as cloud:
        free = threading.Event()
        hanging = asyncio.ensure_future(cloud.plane.databases.cells["cell1"].write(lambda _connection: free.wait(30)))
        try:
            servers = await cloud.settled(await cloud.create(2))
            assert {await cloud.cell_of(server.uuid) for server in servers} == {"cell2"}
            assert {server.state for server in servers} == {State.ACTIVE}
        finally:
            free.set()
            await hanging


async def test_min_count_is_kept_when_members_come_back_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.super_conductor.builds.AVOID_SECONDS", 0.2)
    async with (
        running_cloud(tmp_path, quick_config(vcpus=1), hosts=1) as cloud,
        failing(cloud.plane.databases.cells["cell1"], "stage", 1),
        failing(cloud.plane.databases.cells["cell2"], "stage", 2),
    ):
        servers = await cloud.settled(await cloud.create(8, min_count=8))
        assert {server.state for server in servers} == {State.ACTIVE}


async def test_downtime_is_not_held_against_who_waited(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:

        async def hold(_point: object) -> None:
            raise StorageUnavailable("held")

        cloud.plane.steps.crash_hook = hold
        [uuid] = await cloud.create()
        await age(cloud, uuid)
        await cloud.restart()
        [server] = await cloud.settled([uuid])
        assert server.state is State.ACTIVE


async def age(cloud: Cloud, uuid: InstanceUuid) -> None:
    """Let a request look a day older than it is."""
    mapping = await cloud.plane.databases.api.read(partial(mappings.get, instance=uuid))
    assert mapping is not None

    def unit(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE requests SET created_at = created_at - 86400000000"))

    await cloud.plane.databases.api.write(unit)
