"""A cloud whose machine boots: guests of ACTIVE servers run again, those of stopped and deleted ones do not."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from skep.compute.boots import FILE
from skep.compute.drivers.fake import FakeDriver
from skep.contracts.cloud import PROJECT, USER, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.cell import tasks
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, new_request_id
from skep.domain.instances import PowerState, State, Task
from tests.support.rows import asking


async def test_guests_of_active_servers_run_after_a_boot(tmp_path: Path) -> None:
    config = quick_config()
    compute = msgspec.structs.replace(config.compute, resume_guests_state_on_host_boot=True)
    async with running_cloud(tmp_path, msgspec.structs.replace(config, compute=compute), cells=1, hosts=1) as cloud:
        runs, stopped = await cloud.create(2)
        await cloud.settled([runs, stopped])
        context = RequestContext(request_id=new_request_id(), project_id=PROJECT, user_id=USER)
        action = asking(Task.POWERING_OFF, frozenset(State))
        begin = partial(tasks.begin, uuid=stopped, action=action, context=context, now=cloud.clock.now())
        assert await cloud.plane.databases.cells["cell1"].write(begin)

        async def off() -> bool:
            server = await cloud.find(stopped)
            return server is not None and server.state is State.STOPPED

        await eventually(off, "a server is stopped")
        await cloud.stop()
        [boot] = await asyncio.to_thread(lambda: list(tmp_path.rglob(FILE)))
        with closing(FakeDriver(boot.parent, "cell1-host1")) as driver:
            await driver.power_off(runs)
        boot.write_text("another boot")
        await cloud.start()

        async def powers() -> dict[InstanceUuid, PowerState]:
            return {guest.instance: guest.power_state for guest in await cloud.guests()}

        async def again() -> bool:
            return await powers() == {runs: PowerState.RUNNING, stopped: PowerState.SHUTDOWN}

        await eventually(again, "what is to run runs")
        assert [server.state for server in await cloud.settled([runs, stopped])] == [State.ACTIVE, State.STOPPED]
