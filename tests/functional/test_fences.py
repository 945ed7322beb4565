"""A host that an operator declares dead: nothing waits for it, and should it come back it undoes what it had."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from skep.config.sections import ConductorSettings
from skep.database.api import quotas
from skep.database.cell import agents, fences
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import Instance, State, Task
from skep.messages.to_cell_conductor import InstancesChanged
from skep.testing.cloud import PROJECT, Cloud, quick_config, running_cloud
from skep.testing.eventually import eventually
from skep.transport.base import cell_conductor

ALONE = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")


def quick(**deadlines: float) -> ConductorSettings:
    return msgspec.structs.replace(ConductorSettings(lease_seconds=2.0, resend_seconds=0.1), **deadlines)


async def node_of(cloud: Cloud, host: str) -> NodeUuid:
    known = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    return next(agent.node for agent in known if agent.host == host)


async def fence(cloud: Cloud, host: str) -> None:
    """Do what `POST /admin/v1/hosts/{host}/fence` does."""
    node = await node_of(cloud, host)
    declare = partial(fences.declare, node=node, now=cloud.clock.now())
    assert await cloud.plane.databases.cells["cell1"].write(declare)
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())


async def being_deleted(cloud: Cloud, uuid: InstanceUuid) -> bool:
    found = await cloud.find(uuid)
    return found is not None and found.task is Task.DELETING


async def start_agent(cloud: Cloud, host: str) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.start_agent(cell, host)


async def test_a_delete_of_a_server_on_a_dead_host_ends_when_the_host_is_fenced(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=1) as cloud:
        deleted, kept = await cloud.create(2)
        await cloud.settled([deleted, kept])
        await cloud.stop_agent("cell1-host1")
        await cloud.delete(deleted)
        await eventually(partial(being_deleted, cloud, deleted), "the delete waits for its host")
        await fence(cloud, "cell1-host1")
        await cloud.gone([deleted])

        async def lost() -> bool:
            [found] = await cloud.settled([kept])
            return found.state is State.ERROR

        await eventually(lost, "what ran there is lost")
        [server] = await cloud.settled([kept])
        assert server.fault is not None
        assert server.fault.details == "host cell1-host1 was fenced"
        await cloud.delete(kept)
        await cloud.gone([kept])

        async def credited() -> bool:
            charged = await cloud.plane.databases.api.read(partial(quotas.used, project=PROJECT))
            return not any(charged.values())

        await eventually(credited, "nothing is charged any more")


async def test_a_group_has_its_place_again_and_a_host_that_comes_back_undoes_what_it_had(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=2) as cloud:
        uuids = [uuid for _ in range(2) for uuid in await cloud.create(group=ALONE)]
        servers = await cloud.settled(uuids)
        on = {server.host: server.uuid for server in servers}
        await cloud.stop_agent("cell1-host2")
        await cloud.delete(on["cell1-host2"])
        await fence(cloud, "cell1-host2")
        await cloud.gone([on["cell1-host2"]])
        await start_agent(cloud, "cell1-host2")

        async def undone() -> bool:
            guests = {guest.instance for guest in await cloud.guests()}
            return guests == {on["cell1-host1"]}

        await eventually(undone, "the host that came back has undone what it had")
        [server] = await cloud.settled(await cloud.create(group=ALONE))
        assert (server.state, server.host) == (State.ACTIVE, "cell1-host2")


async def test_builds_of_a_fenced_host_go_to_another(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=2) as cloud:
        for driver in cloud.plane.drivers.values():
            driver.settings = msgspec.structs.replace(driver.settings, spawn_delay=3600.0)
        [uuid] = await cloud.create()

        async def spawning() -> Instance | None:
            found = await cloud.find(uuid)
            return found if found is not None and found.state is State.SPAWNING else None

        before = await eventually(spawning, "the guest is being made")
        assert before is not None
        dead = str(before.host)
        for driver in cloud.plane.drivers.values():
            driver.settings = msgspec.structs.replace(driver.settings, spawn_delay=0.0)
        await cloud.plane.agents.pop(dead).stop(0)
        cloud.plane.drivers.pop(dead).close()
        await fence(cloud, dead)
        [server] = await cloud.settled([uuid])
        assert server.state is State.ACTIVE
        assert server.host != dead
        assert [(one.host, one.open, one.outcome) for one in await cloud.attempts(uuid)] == [
            (dead, False, "fenced"),
            (server.host, True, "built"),
        ]
