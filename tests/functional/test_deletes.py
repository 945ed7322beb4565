"""Deletes at any moment: nothing is left, nothing comes back."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from skep.contracts.cloud import PROJECT, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import instance_mappings as mappings
from skep.database.cell import actions
from skep.database.cell.tables import instances
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, RequestId
from skep.domain.instances import State
from skep.messages.to_super_conductor import DeleteInstances
from skep.telemetry.steps import CrashPoint
from skep.transport.base import SUPER_CONDUCTOR


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(
    "step",
    [
        "take",
        "select",
        "stage",
        "map",
        "settle",
        "dispatch",
        "claim",
        "may_build",
        "prepare",
        "may_spawn",
        "spawn",
        "built",
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_at_any_point_leaves_nothing(tmp_path: Path, step: str, when: str) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=2) as cloud:
        wanted: list[InstanceUuid] = []
        created, deleted = asyncio.Event(), asyncio.Event()

        async def delete_there(point: CrashPoint) -> None:
            if point.step == step and point.when == when and not deleted.is_set():
                await created.wait()
                deleted.set()
                await cloud.delete(wanted[0])

        cloud.plane.steps.crash_hook = delete_there
        wanted += await cloud.create()
        created.set()
        async with asyncio.timeout(PATIENCE):
            await deleted.wait()
        await cloud.gone(wanted)
        await cloud.nothing_left()


async def test_a_delete_is_repeated_until_the_host_is_back(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(), cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        cell = next(cell for cell in cloud.plane.cells.values() if not cell.is_cell0)
        await cloud.stop_agent("cell1-host1")
        await cloud.delete(uuid)
        assert await cloud.find(uuid) is not None
        await cloud.plane.start_agent(cell, "cell1-host1")
        await cloud.gone([uuid])
        await cloud.nothing_left()


async def intend(cloud: Cloud, uuid: InstanceUuid, request: str, *, unless_locked: bool) -> None:
    """Have a server deleted, as the API does where it cannot read the server's row."""
    context = RequestContext(request_id=RequestId(request), project_id=PROJECT, user_id=USER)
    write = partial(mappings.intend_delete, instance=uuid, context=context, now=cloud.clock.now())
    await cloud.plane.databases.api.write(partial(write, unless_locked=unless_locked))
    await cloud.plane.transport.cast(SUPER_CONDUCTOR, DeleteInstances())


async def test_a_lock_refuses_a_delete_that_could_not_read_it(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:
        locked, other = await cloud.create(2)
        await cloud.settled([locked, other])
        cell = cloud.plane.databases.cells["cell1"]
        await cell.write(lambda c: c.execute(instances.update().where(instances.c.uuid == locked).values(locked=True)))
        await intend(cloud, other, "req-other", unless_locked=True)
        await cloud.gone([other])
        await intend(cloud, locked, "req-owner", unless_locked=True)

        async def refused() -> bool:
            return not await cloud.plane.databases.api.read(mappings.deleting)

        await eventually(refused, "the delete is withdrawn")
        [found] = await cloud.settled([locked])
        assert (found.state, found.attempt) == (State.ACTIVE, 1)
        [event] = await cell.read(partial(actions.events_of, instance=locked, request_id="req-owner"))
        assert (event.event, event.result) == ("compute_terminate_instance", "Error")
        assert event.details == f"Instance {locked} is locked"
        [action] = [
            one for one in await cell.read(partial(actions.list_of, instance=locked, limit=9)) if one.action == "delete"
        ]
        assert (action.request_id, action.message) == ("req-owner", event.details)
        assert cloud.plane.process.metrics.actions.labels("delete", "error")._value.get() == 1
        assert "instance.delete.error" in [one.event_type for one in cloud.notifications]
        await intend(cloud, locked, "req-admin", unless_locked=False)
        await cloud.gone([locked])
        await cloud.nothing_left()
