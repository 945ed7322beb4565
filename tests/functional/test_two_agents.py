"""Two agents with one identity: the older stops and says so, the younger goes on."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path

from skep.compute.agent import Agent
from skep.compute.drivers.fake import FakeDriver, FakeSettings
from skep.compute.identity import IDENTITY_FILE
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.cell import agents
from skep.domain.clock import Clock
from skep.domain.instances import State
from skep.messages.to_scheduler import GetHostStates
from skep.processes.hosts import compute_settings
from skep.transport.base import SCHEDULER


async def start_double(cloud: Cloud, host: str, directory: Path) -> tuple[Agent, FakeDriver]:
    """Start a second agent of a host elsewhere: a copy of its identity, guests of its own."""
    plane = cloud.plane
    [cell] = [one for one in plane.cells.values() if not one.is_cell0]
    await asyncio.to_thread(directory.mkdir)
    shutil.copy(plane.directory.host(cell.name, host) / IDENTITY_FILE, directory)
    clock = Clock()
    driver = FakeDriver(directory, host, FakeSettings(spawn_delay=0, destroy_delay=0), clock)
    settings = compute_settings(plane.config, host)
    agent = Agent(settings, cell.uuid, host, directory, driver, plane.cell_transports[cell.uuid], clock)
    await agent.start()
    return agent, driver


async def test_the_older_of_two_agents_with_one_identity_stops_and_the_younger_builds(tmp_path: Path) -> None:
    async with running_cloud(tmp_path / "cloud", cells=1, hosts=1) as cloud:
        [(host, older)] = cloud.plane.agents.items()
        [name] = cloud.names
        younger, driver = await start_double(cloud, host, tmp_path / "double")
        async with asyncio.timeout(PATIENCE):
            await older.stopped()
        assert older.fenced
        assert not younger.fenced
        agent = await cloud.plane.databases.cells[name].read(partial(agents.get, node=younger.node))
        assert agent is not None
        assert (agent.incarnation, agent.stale_incarnation) == (2, 1)
        assert agent.stale_at is not None

        async def reported() -> bool:
            (state,) = (await cloud.plane.transport.call(SCHEDULER, GetHostStates())).hosts
            return state.incarnation == 2 and state.up

        await eventually(reported, "the younger agent's report is the host's")
        uuids = await cloud.create(2)
        assert {server.state for server in await cloud.settled(uuids)} == {State.ACTIVE}
        assert {guest.instance for guest in await driver.guests()} == set(uuids)
        assert await cloud.plane.drivers[host].guests() == (), "nothing was built where nobody is in charge any more"
        assert not younger.fenced
        await younger.stop(0)
        driver.close()


async def test_an_older_agent_that_has_nothing_to_report_is_found_by_its_heartbeat(tmp_path: Path) -> None:
    async with running_cloud(tmp_path / "cloud", cells=1, hosts=1) as cloud:
        [(host, older)] = cloud.plane.agents.items()

        async def reported() -> bool:
            return len((await cloud.plane.transport.call(SCHEDULER, GetHostStates())).hosts) == 1

        await eventually(reported, "the first agent has reported and is silent from now on")
        younger, driver = await start_double(cloud, host, tmp_path / "double")
        async with asyncio.timeout(PATIENCE):
            await older.stopped()
        assert older.fenced
        await younger.stop(0)
        driver.close()
