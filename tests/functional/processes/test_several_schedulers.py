"""A cloud whose messages and host states go over NATS, with schedulers in processes of their own that come and die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.audit.look import look_twice
from skep.audit.sources import Sources
from skep.config.scheduler import SchedulerSettings
from skep.config.sections import Config
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import eventually
from skep.domain.actions import Over
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.processes.own_services import OwnServices
from skep.processes.servers.nats import NatsServer
from tests.support.scheduler_process import SchedulerProcess

pytestmark = pytest.mark.needs_part("nats-server")
Make = Callable[..., SchedulerProcess]


@pytest.mark.parametrize("embedded", [True, False])
async def test_one_of_several_is_killed_while_servers_are_built(
    tmp_path: Path, config: Config, scheduler: Make, embedded: bool
) -> None:
    config = replace(config, scheduler=SchedulerSettings(embedded=embedded))
    killed, stays, joins = scheduler(), scheduler(), scheduler()
    await killed.start()
    await stays.start()
    async with running_cloud(tmp_path / "cloud", config, cells=2, hosts=3) as cloud:
        uuids = await create(cloud, 20)
        await has_placed(killed)
        uuids += await create(cloud, 20)
        await killed.kill()
        uuids += await create(cloud, 20)
        await all_active(cloud, uuids)
        await joins.start()
        await shares(cloud, uuids, joins)
        await all_active(cloud, uuids)
        assert await stays.stop() == 0
        await joins.kill()
        if not embedded:
            return
        # The embedded one alone goes on.
        await all_active(cloud, await create(cloud, 5))


async def test_nats_is_killed_and_comes_back_while_servers_are_built(
    tmp_path: Path, config: Config, scheduler: Make, nats_server: NatsServer
) -> None:
    one, two = scheduler(), scheduler()
    await one.start()
    await two.start()
    async with running_cloud(tmp_path / "cloud", config, cells=2, hosts=3) as cloud:
        uuids = await create(cloud, 20)
        await nats_server.restart()
        uuids += await create(cloud, 20)
        await all_active(cloud, uuids)
        await one.ready()
        await two.ready()
        assert await one.stop() == 0
        assert await two.stop() == 0


async def create(cloud: Cloud, count: int) -> list[InstanceUuid]:
    """Ask for servers one by one, as users do."""
    return [uuid for _ in range(count) for uuid in await cloud.create()]


async def has_placed(process: SchedulerProcess) -> None:
    async def probe() -> bool:
        return await process.placed() > 0

    await eventually(probe, f"{process.name} places servers")


async def shares(cloud: Cloud, uuids: list[InstanceUuid], process: SchedulerProcess) -> None:
    """Ask for servers until this scheduler has placed one: which of several decides is chance."""

    async def probe() -> bool:
        uuids.extend(await create(cloud, 5))
        await cloud.settled(uuids)
        return await process.placed() > 0

    await eventually(probe, f"{process.name} places servers")


async def all_active(cloud: Cloud, uuids: list[InstanceUuid]) -> None:
    """Every server runs, once; claims are gone, nothing differs."""
    servers = await cloud.settled(uuids)
    assert {server.state for server in servers} == {State.ACTIVE}, [server.fault for server in servers if server.fault]
    guests = Counter(guest.instance for guest in await cloud.guests())
    assert {uuid: guests[uuid] for uuid in uuids} == dict.fromkeys(uuids, 1)
    await cloud.no_claims()
    databases = {uuid: access.database for uuid, access in cloud.plane.cell_databases().items()}
    ended: list[Over] = []
    own = OwnServices(cloud.plane.config, cloud.plane.databases.api, cloud.plane.clock)
    sources = Sources(
        api=cloud.plane.databases.api,
        cells=databases,
        names=cloud.plane.cells,
        transport=cloud.plane.transport,
        networks=own.networks,
        volumes=own.volumes,
        ended=ended.extend,
    )
    look = await look_twice(sources, 2.0)
    assert (look.differences, look.unread) == ((), ())
