"""A host that was given up: its cell forgets it, and it may come back as a new one, as itself or another node."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path

from skep.config.sections import ConductorSettings
from skep.contracts.cloud import Cloud, hosts_up, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.database.api import host_mappings, retired_hosts
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, fences, host_keys, residents
from skep.database.cell.agents import RegisteredAgent
from skep.domain.ids import NodeUuid
from skep.domain.instances import State
from skep.transport.host_states import host_states

HOST = "cell1-host1"
QUICK = quick_config(conductor=ConductorSettings(lease_seconds=2.0, resend_seconds=0.1))


async def known(cloud: Cloud) -> RegisteredAgent | None:
    found = await cloud.plane.databases.cells["cell1"].read(agents.list_all)
    return next((agent for agent in found if agent.host == HOST), None)


async def retire(cloud: Cloud) -> RegisteredAgent:
    """Store what `DELETE /os-services/{id}` stores, and wait until the cell has forgotten the host."""
    agent = await known(cloud)
    assert agent is not None
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    new = RetiredHost(node=agent.node, host=HOST, cell=cell.uuid, process=agent.process, retired_at=cloud.clock.now())
    await cloud.plane.databases.api.write(partial(retired_hosts.add, new=new))

    async def forgotten() -> bool:
        return not await cloud.plane.databases.api.read(retired_hosts.every)

    await eventually(forgotten, "the cell has forgotten the host")
    assert await known(cloud) is None
    assert await cloud.plane.databases.cells["cell1"].read(partial(host_keys.get, node=agent.node)) is None
    return agent


async def start_agent(cloud: Cloud) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.start_agent(cell, HOST)

    async def is_used() -> bool:
        agent = await known(cloud)
        states = await host_states(cloud.plane.transport)
        return agent is not None and (agent.node, agent.incarnation) in {
            (state.node, state.incarnation) for state in states if state.up
        }

    await eventually(is_used, "the host is mapped, has reported and lives")


async def built(cloud: Cloud) -> None:
    """The only host of the cloud builds a server, and has nothing left of it when it is deleted."""
    [uuid] = await cloud.create(1)
    [server] = await cloud.settled([uuid])
    assert (server.state, server.host) == (State.ACTIVE, HOST)
    await cloud.delete(uuid)
    await cloud.gone([uuid])
    await cloud.nothing_left()


async def test_a_retired_host_comes_back_under_its_identity(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        await built(cloud)
        for _ in range(2):
            await cloud.stop_agent(HOST)
            before = await retire(cloud)
            await start_agent(cloud)
            await built(cloud)
            agent = await known(cloud)
            assert agent is not None
            assert (agent.node, agent.mapped) == (before.node, True)
            assert agent.incarnation > before.incarnation, "schedulers take no older report for a younger one"


async def test_a_machine_that_was_made_anew_takes_the_name_of_the_one_that_was_retired(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        await built(cloud)
        await cloud.stop_agent(HOST)
        before = await retire(cloud)
        await asyncio.to_thread(shutil.rmtree, cloud.plane.directory.host("cell1", HOST))
        await start_agent(cloud)
        await built(cloud)
        agent = await known(cloud)
        assert agent is not None
        assert agent.node != before.node


async def test_who_registered_again_before_the_cell_was_told_stays_and_is_mapped_anew(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        await built(cloud)
        agent = await known(cloud)
        assert agent is not None
        [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
        late = RetiredHost(node=agent.node, host=HOST, cell=cell.uuid, process="before it", retired_at=1)
        await cloud.plane.databases.api.write(partial(retired_hosts.add, new=late))

        async def is_mapped_anew() -> bool:
            api = cloud.plane.databases.api
            if await api.read(partial(retired_hosts.is_pending, node=agent.node)):
                return False
            return await api.read(partial(host_mappings.get, node=agent.node)) is not None

        await eventually(is_mapped_anew, "the host that is here is mapped")
        await eventually(partial(hosts_up, cloud.plane), "it may get servers")
        await built(cloud)


async def test_a_fenced_host_that_was_retired_undoes_what_it_had_when_it_comes_back(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, QUICK, cells=1, hosts=1) as cloud:
        [uuid] = await cloud.create(1)
        await cloud.settled([uuid])
        await cloud.stop_agent(HOST)
        agent = await known(cloud)
        assert agent is not None
        cell = cloud.plane.databases.cells["cell1"]
        assert await held(cloud, agent.node), "a host that has something is not given up"
        await cell.write(partial(fences.mark, node=agent.node, now=cloud.clock.now(), due_at=2**62))
        await cloud.delete(uuid)
        await cloud.gone([uuid])
        assert not await held(cloud, agent.node)
        await retire(cloud)
        await start_agent(cloud)
        await cloud.nothing_left()
        assert await cloud.guests() == []
        await built(cloud)


async def held(cloud: Cloud, node: NodeUuid) -> bool:
    left = await cloud.plane.databases.cells["cell1"].read(partial(residents.on_node, node=node))
    return bool(left.servers or left.held)
