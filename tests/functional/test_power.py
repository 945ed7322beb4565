"""Start, stop and reboot in a whole cell: what was given up stays undone, and rows follow what guests really are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, USER, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import actions, tasks
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, new_request_id
from skep.domain.instances import Instance, PowerState, State, Task
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_compute import ChangePower
from skep.transport.base import cell_conductor, compute
from tests.support.rows import asking

QUICK = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, task_deadline=0.5))
HOST = "cell1-host1"


async def ask(cloud: Cloud, uuid: InstanceUuid, task: Task) -> RequestContext:
    """Ask for a task as the API does."""
    context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)
    begin = partial(
        tasks.begin, uuid=uuid, action=asking(task, frozenset(State)), context=context, now=cloud.clock.now()
    )
    assert await cloud.plane.databases.cells["cell1"].write(begin)
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())
    return context


async def becomes(cloud: Cloud, uuid: InstanceUuid, state: State, power_state: PowerState) -> Instance:
    async def probe() -> Instance | None:
        [found] = await cloud.settled([uuid])
        return found if (found.state, found.power_state) == (state, power_state) else None

    found = await eventually(probe, f"the server is {state.value}")
    assert found is not None
    return found


async def test_an_order_that_comes_after_it_was_given_up_is_not_carried_out(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await cloud.stop_agent(HOST)
        context = await ask(cloud, uuid, Task.POWERING_OFF)
        await becomes(cloud, uuid, State.ACTIVE, PowerState.RUNNING)
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
        await cloud.plane.start_agent(cell, HOST)
        late = ChangePower(
            context=context,
            instance=uuid,
            attempt=1,
            task=Task.POWERING_OFF,
            task_id=context.request_id,
            ask=True,
        )
        await cloud.plane.transport.cast(compute(cell.uuid, HOST), late)
        await ask(cloud, uuid, Task.REBOOTING)
        await becomes(cloud, uuid, State.ACTIVE, PowerState.RUNNING)
        [guest] = await cloud.guests()
        assert guest.power_state is PowerState.RUNNING


async def test_rows_follow_guests_that_stop_or_start_by_themselves(tmp_path: Path) -> None:
    config = msgspec.structs.replace(QUICK, conductor=msgspec.structs.replace(QUICK.conductor, task_deadline=60.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        driver = cloud.fakes[HOST]
        driver.change_by_itself(uuid, "powered_off")
        await becomes(cloud, uuid, State.STOPPED, PowerState.SHUTDOWN)
        driver.change_by_itself(uuid, "powered_on")

        async def off_again() -> bool:
            [guest] = await cloud.guests()
            [found] = await cloud.settled([uuid])
            return (guest.power_state, found.state) == (PowerState.SHUTDOWN, State.STOPPED)

        await eventually(off_again, "a guest that runs although its server is stopped is stopped")
        await ask(cloud, uuid, Task.POWERING_ON)
        await becomes(cloud, uuid, State.ACTIVE, PowerState.RUNNING)


@pytest.mark.parametrize(
    ("halts", "goes_on", "state", "power_state"),
    [
        (Task.PAUSING, Task.UNPAUSING, State.PAUSED, PowerState.PAUSED),
        (Task.SUSPENDING, Task.RESUMING, State.SUSPENDED, PowerState.SUSPENDED),
    ],
)
async def test_a_server_halts_and_goes_on_or_is_rebooted(
    tmp_path: Path, halts: Task, goes_on: Task, state: State, power_state: PowerState
) -> None:
    config = msgspec.structs.replace(QUICK, conductor=msgspec.structs.replace(QUICK.conductor, task_deadline=60.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        for back in (goes_on, Task.REBOOTING_HARD):
            await ask(cloud, uuid, halts)
            await becomes(cloud, uuid, state, power_state)
            [guest] = await cloud.guests()
            assert guest.power_state is power_state
            await ask(cloud, uuid, back)
            await becomes(cloud, uuid, State.ACTIVE, PowerState.RUNNING)


async def test_an_action_that_a_delete_overtakes_is_told_of(tmp_path: Path) -> None:
    config = msgspec.structs.replace(QUICK, conductor=msgspec.structs.replace(QUICK.conductor, task_deadline=60.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await cloud.stop_agent(HOST)
        context = await ask(cloud, uuid, Task.POWERING_OFF)
        await cloud.delete(uuid)

        async def told() -> bool:
            return any(one.event_type == "instance.power_off.error" for one in cloud.notifications)

        await eventually(told, "the end of the overtaken action is notified")
        counted = cloud.plane.process.metrics.actions.labels("stop", "error")
        assert counted._value.get() == 1
        [event] = await cloud.plane.databases.cells["cell1"].read(
            partial(actions.events_of, instance=uuid, request_id=context.request_id)
        )
        assert (event.result, event.details) == ("Error", tasks.OVERTAKEN)


async def test_an_action_on_a_guest_that_is_gone_says_so_and_leaves_the_server_in_error(tmp_path: Path) -> None:
    config = msgspec.structs.replace(QUICK, conductor=msgspec.structs.replace(QUICK.conductor, task_deadline=60.0))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await cloud.fakes[HOST].destroy(uuid)
        context = await ask(cloud, uuid, Task.POWERING_OFF)
        found = await becomes(cloud, uuid, State.ERROR, PowerState.NOSTATE)
        assert found.fault is not None
        assert found.fault.message == tasks.GONE
        assert found.host == HOST, "what its attempt holds stays held"
        [event] = await cloud.plane.databases.cells["cell1"].read(
            partial(actions.events_of, instance=uuid, request_id=context.request_id)
        )
        assert event.result == "Error"
        assert "InstanceNotFound" in str(event.details)
        await cloud.delete(uuid)
        await cloud.gone([uuid])
