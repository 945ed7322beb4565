"""A database goes back to when a start, stop or reboot was under way: it is not done twice, and rows say what is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from skep.compute.drivers.guest_log import GuestEvent, read_events
from skep.contracts.cloud import Cloud, running_cloud
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task
from tests.functional.going_back.story import CONFIG, remembered
from tests.functional.going_back.test_since import in_doubt
from tests.functional.going_back.test_walk import over
from tests.functional.test_power import ask
from tests.support.going_back import Copies, copied, put_back

TASKS = (Task.POWERING_OFF, Task.POWERING_ON, Task.REBOOTING)
EXPECTED = {
    Task.POWERING_OFF: (State.STOPPED, PowerState.SHUTDOWN),
    Task.POWERING_ON: (State.ACTIVE, PowerState.RUNNING),
    Task.REBOOTING: (State.ACTIVE, PowerState.RUNNING),
}


@dataclass(frozen=True)
class Powered:
    """A cloud in which a server was stopped, one started and one rebooted, and copies of its databases meanwhile."""

    root: Path
    copies: Mapping[str, Copies]
    servers: Mapping[Task, InstanceUuid]

    def under_way(self, task: Task) -> list[Path]:
        """Return the copies in which an action is under way, oldest first."""
        copies = self.copies["cell1"]
        return [file for file, said in zip(copies.files, copies.states, strict=True) if f"'{task.value}'" in said]

    def moment(self, copy: Path) -> dict[str, Path]:
        """Return copies of all databases from the moment of one."""
        at = copy.stat().st_mtime_ns
        return {
            name: [one for one in copies.files if one.stat().st_mtime_ns <= at][-1]
            for name, copies in self.copies.items()
        }


def events(root: Path) -> tuple[GuestEvent, ...]:
    """Return what has ever happened to guests."""
    return tuple(event for file in sorted(root.glob("hosts/*/*/guests.log")) for event in read_events(file))


async def as_asked(cloud: Cloud, servers: Mapping[Task, InstanceUuid]) -> None:
    found = {one.uuid: one for one in await cloud.settled(list(servers.values()))}
    power = {guest.instance: guest.power_state for guest in await cloud.guests()}
    for task, uuid in servers.items():
        server = found[uuid]
        assert (server.state, server.power_state, power[uuid]) == (*EXPECTED[task], EXPECTED[task][1]), task


async def recorded(root: Path) -> Powered:
    async with running_cloud(root / "now", CONFIG, cells=1, hosts=1) as cloud:
        servers = dict(zip(TASKS, await cloud.create(len(TASKS)), strict=True))
        await cloud.settled(list(servers.values()))
        await ask(cloud, servers[Task.POWERING_ON], Task.POWERING_OFF)
        await cloud.settled(list(servers.values()))
        with copied(cloud.plane.databases, root / "copies") as copies:
            for task, uuid in servers.items():
                await ask(cloud, uuid, task)
                await cloud.settled([uuid])
        await as_asked(cloud, servers)
        await remembered(cloud)
    return Powered(root / "now", copies, servers)


@pytest.fixture(scope="module")
def powered(tmp_path_factory: pytest.TempPathFactory) -> Powered:
    return asyncio.run(recorded(tmp_path_factory.mktemp("powered")))


@pytest.mark.parametrize("together", [False, True], ids=["the cell alone", "all"])
@pytest.mark.parametrize("task", TASKS, ids=str)
async def test_an_action_that_was_under_way(powered: Powered, task: Task, together: bool, tmp_path: Path) -> None:
    copy = powered.under_way(task)[0]
    put_back(powered.root, powered.moment(copy) if together else {"cell1": copy}, tmp_path / "back")
    before = events(tmp_path / "back")
    assert before
    async with running_cloud(tmp_path / "back", CONFIG, cells=1, hosts=1) as cloud:
        await over(cloud)
        found = await cloud.settled(list(powered.servers.values()))
        assert {one.uuid: one.attempt for one in found} == dict.fromkeys(powered.servers.values(), 1)
        mine = powered.servers[task]
        power = {guest.instance: guest.power_state for guest in await cloud.guests()}
        [server] = [one for one in found if one.uuid == mine]
        assert (server.state, power[mine]) == EXPECTED[task]
        assert await in_doubt(cloud) == set()
    again = [one for one in events(tmp_path / "back")[len(before) :] if one.instance == mine]
    assert not again
