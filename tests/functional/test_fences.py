"""A host that an operator declares dead: nothing waits for it, and should it come back it undoes what it had."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import PROJECT, Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import quotas
from skep.database.cell import agents, fences
from skep.domain.clock import SECOND
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import Instance, State, Task
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_scheduler import GetHostStates
from skep.processes.all_in_one import AllInOneCloud
from skep.transport.base import SCHEDULER, cell_conductor

ALONE = GroupRule(uuid=GroupUuid(new_uuid()), policy="anti-affinity")


def quick(grace: float = 0.0) -> ConductorSettings:
    return ConductorSettings(lease_seconds=2.0, resend_seconds=0.1, fence_grace_seconds=grace)


async def node_of(cloud: Cloud | AllInOneCloud, host: str) -> NodeUuid:
    known = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    return next(agent.node for agent in known if agent.host == host)


async def fence(cloud: Cloud | AllInOneCloud, host: str) -> None:
    """Do what `POST /admin/v1/hosts/{host}/fence` does."""
    node = await node_of(cloud, host)
    now, grace = cloud.clock.now(), cloud.config.conductor.fence_grace_seconds
    mark = partial(fences.mark, node=node, now=now, due_at=now + round(grace * SECOND))
    assert await cloud.plane.databases.cells["cell1"].write(mark)
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.transport.cast(cell_conductor(cell.uuid), InstancesChanged())


async def being_deleted(cloud: Cloud, uuid: InstanceUuid) -> bool:
    found = await cloud.find(uuid)
    return found is not None and found.task is Task.DELETING


async def start_agent(cloud: Cloud | AllInOneCloud, host: str) -> None:
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

        async def heard() -> bool:
            asked = GetHostStates(nodes=(await node_of(cloud, "cell1-host2"),))
            return not (await cloud.plane.transport.call(SCHEDULER, asked)).silent

        await eventually(undone, "the host that came back has undone what it had")
        await eventually(heard, "the scheduler hears of that host again")
        [server] = await cloud.settled(await cloud.create(group=ALONE))
        assert (server.state, server.host) == (State.ACTIVE, "cell1-host2")


async def test_builds_of_a_fenced_host_go_to_another(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=2) as cloud:
        for driver in cloud.fakes.values():
            driver.settings = msgspec.structs.replace(driver.settings, spawn_delay=3600.0)
        [uuid] = await cloud.create()

        async def spawning() -> Instance | None:
            found = await cloud.find(uuid)
            return found if found is not None and found.state is State.SPAWNING else None

        before = await eventually(spawning, "the guest is being made")
        assert before is not None
        dead = str(before.host)
        for driver in cloud.fakes.values():
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


async def fenced(cloud: Cloud | AllInOneCloud) -> list[fences.FencedHost]:
    return await cloud.plane.databases.cells["cell1"].read(fences.fenced)


async def test_until_the_grace_is_over_nothing_but_deletes_is_given_up_and_taking_back_restores_the_rest(
    tmp_path: Path,
) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick(grace=3600)), cells=1, hosts=1) as cloud:
        deleted, kept = await cloud.create(2)
        await cloud.settled([deleted, kept])
        await cloud.stop_agent("cell1-host1")
        await fence(cloud, "cell1-host1")
        await cloud.delete(deleted)
        await cloud.gone([deleted])
        node = await node_of(cloud, "cell1-host1")
        assert await cloud.plane.databases.cells["cell1"].write(partial(fences.take_back, node=node))
        await start_agent(cloud, "cell1-host1")

        async def only_kept() -> bool:
            return {guest.instance for guest in await cloud.guests()} == {kept}

        await eventually(only_kept, "the guest of the deleted server is undone")
        [server] = await cloud.settled([kept])
        assert (server.state, server.attempt) == (State.ACTIVE, 1)
        assert await cloud.find(deleted) is None
        await cloud.no_claims()


async def test_a_fence_is_taken_back_when_its_host_is_heard_before_the_grace_is_over(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick(grace=3600)), cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await fence(cloud, "cell1-host1")

        async def taken_back() -> bool:
            return await fenced(cloud) == []

        await eventually(taken_back, "the host lives, so the fence is gone")
        [server] = await cloud.settled([uuid])
        assert (server.state, server.attempt) == (State.ACTIVE, 1)
        assert len(await cloud.guests()) == 1


async def test_a_conductor_that_hears_no_host_at_all_lets_no_fence_take_effect(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, quick_config(conductor=quick()), cells=1, hosts=2) as cloud:
        [uuid] = await cloud.create()
        [server] = await cloud.settled([uuid])
        host = str(server.host)
        [other] = {"cell1-host1", "cell1-host2"} - {host}
        await cloud.stop_agent(host)
        await cloud.stop_agent(other)
        [conductor] = cloud.plane._cell_conductors
        nodes = await node_of(cloud, host), await node_of(cloud, other)

        async def silent() -> bool:
            return not any(conductor._hosts.hearing.hears(node) for node in nodes)

        await eventually(silent, "no host is heard")
        await fence(cloud, host)
        for _ in range(3):
            await conductor._fences._run()
        assert [one.in_effect for one in await fenced(cloud)] == [False]
        await start_agent(cloud, other)

        async def in_effect() -> bool:
            return [one.in_effect for one in await fenced(cloud)] == [True]

        await eventually(in_effect, "the other host is heard, so this one is silent")

        async def lost() -> bool:
            [found] = await cloud.settled([uuid])
            return found.state is State.ERROR

        await eventually(lost, "what ran there is lost")
