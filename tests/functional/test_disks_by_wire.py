"""Cold moves in a whole cell whose hosts share nothing: disks go from agent to agent, whoever ends meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from skep.compute.agent import ARRIVALS
from skep.compute.disk_doors import DiskDoors
from skep.compute.disk_wire import BLOCK, Pace
from skep.compute.drivers.fake import GUESTS_FILE
from skep.compute.drivers.guest_log import read_events
from skep.compute.exchange import Exchange
from skep.contracts.cloud import Cloud, running_cloud
from skep.contracts.eventually import PATIENCE, eventually
from skep.database import Connection
from skep.database.cell.tables import agents
from skep.domain.capabilities import Capability
from skep.domain.disk_doors import DiskDoor
from skep.domain.instances import Instance, State
from tests.functional.test_cold_moves import (
    CONTENT,
    WIRED,
    becomes,
    confirm,
    disk_file,
    disk_of,
    disks,
    move,
    only_attempt,
    revert,
    server_with_disk,
)

HOSTS = ("cell1-host1", "cell1-host2")
LARGE = b"".join(number.to_bytes(4) for number in range(11 * BLOCK // 4)) + b"its end"
"""Twelve blocks."""


class _Held:
    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.cut = False


class Gate:
    """Holds what a source sends each time when two more blocks have gone, until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._held = _Held()
        self._until = 2 * BLOCK
        self.sent = 0

    async def take(self, number: int) -> None:
        if self.sent >= self._until:
            self.reached.set()
            held = self._held
            await held.opened.wait()
            if held.cut:
                raise ConnectionResetError
        self.sent += number

    def hold_again(self) -> None:
        """Let two blocks more go. What was held is cut: a source sees only with the next byte that its target ended."""
        self._until = self.sent + 2 * BLOCK
        self._held.cut = True
        self.open()
        self.reached, self._held = asyncio.Event(), _Held()

    def begin_anew(self) -> None:
        """Hold what goes next as at first."""
        self.sent = 0
        self.hold_again()

    def open(self) -> None:
        self._held.opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()

    async def take(_pace: Pace, number: int) -> None:
        await made.take(number)

    monkeypatch.setattr(Pace, "take", take)
    return made


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> list[DiskDoor]:
    """All doors that were opened."""
    found: list[DiskDoor] = []
    opening: Callable[..., Awaitable[DiskDoor]] = DiskDoors.open

    async def open_one(self: DiskDoors, *asked: object) -> DiskDoor:
        found.append(await opening(self, *asked))
        return found[-1]

    monkeypatch.setattr(DiskDoors, "open", open_one)
    return found


@asynccontextmanager
async def cloud_in(root: Path) -> AsyncIterator[Cloud]:
    async with running_cloud(root, WIRED, cells=1, hosts=2) as cloud:
        yield cloud


async def on_its_way(cloud: Cloud, gate: Gate) -> tuple[Instance, str, str]:
    """Have a server whose disk is partly there on another host; return it, its host and the other one."""
    server = await server_with_disk(cloud)
    disk_file(cloud, server, server.attempt).write_bytes(LARGE)
    await move(cloud, server)
    assert server.host is not None
    [target] = set(HOSTS) - {server.host}
    await held(cloud, gate, target)
    return server, server.host, target


async def held(cloud: Cloud, gate: Gate, target: str) -> None:
    """Wait until all has arrived that the gate lets go."""
    async with asyncio.timeout(PATIENCE):
        await gate.reached.wait()

    async def arrived() -> bool:
        return sum(path.stat().st_size for path in arriving(cloud, target)) == gate.sent

    await eventually(arrived, "what was sent has arrived")


def arriving(cloud: Cloud, host: str) -> list[Path]:
    return list((cloud.directory.host("cell1", host) / ARRIVALS).glob("*/*"))


def stored_in(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def start(cloud: Cloud, host: str) -> None:
    [cell] = [cell for cell in cloud.plane.cells.values() if cell.name == "cell1"]
    await cloud.plane.start_agent(cell, host)


async def restart(cloud: Cloud, host: str) -> None:
    await cloud.stop_agent(host)
    await start(cloud, host)


async def no_door(cloud: Cloud) -> None:
    async def probe() -> bool:
        made = [agent._doors for agent in cloud.plane.agents.values()]
        return all(one is not None and not one.number for one in made)

    await eventually(probe, "all doors are shut")


async def test_a_server_goes_there_and_back_and_no_secret_is_left(
    tmp_path: Path, doors: list[DiskDoor], capfd: pytest.CaptureFixture[str]
) -> None:
    async with cloud_in(tmp_path) as cloud:
        server = await server_with_disk(cloud)
        await move(cloud, server)
        moved = await becomes(cloud, server.uuid, State.RESIZED)
        assert moved.host != server.host
        assert disk_of(cloud, moved) == CONTENT
        assert disks(cloud) == 2
        assert len(doors) == 1
        await revert(cloud, server.uuid)
        back = await becomes(cloud, server.uuid, State.ACTIVE)
        assert (back.host, disk_of(cloud, back)) == (server.host, CONTENT)
        await only_attempt(cloud, back)
        await no_door(cloud)
        assert len(doors) == 1, "its disks were here"
        said = "".join(capfd.readouterr())
        assert "door to disks opened" in said
        assert doors[0].token not in said
        stored = stored_in(tmp_path)
        assert len(stored) > 5
        assert not [path for path, content in stored.items() if doors[0].token.encode() in content]


async def cut(cloud: Cloud, source: str) -> None:
    """Cut all connections to the doors of a host."""
    held_open = cloud.plane.agents[source]._doors
    assert held_open is not None
    for door in held_open._doors.values():
        for connection in tuple(door.connections):
            connection.cancel()


async def test_whoever_ends_in_the_midst_costs_no_byte(tmp_path: Path, gate: Gate, doors: list[DiskDoor]) -> None:
    async with cloud_in(tmp_path) as cloud:
        server, source, target = await on_its_way(cloud, gate)
        for ending, host in ((cut, source), (restart, source), (restart, target)):
            await ending(cloud, host)
            gate.hold_again()
            await held(cloud, gate, target)
        await cloud.restart()
        gate.hold_again()
        await held(cloud, gate, target)
        gate.open()
        moved = await becomes(cloud, server.uuid, State.RESIZED)
        assert moved.host == target
        assert disk_of(cloud, moved) == LARGE
        assert gate.sent == len(LARGE)
        assert len(doors) == 4, "the connection that was cut went on through the same one"
        await no_door(cloud)
        await confirm(cloud, server.uuid)
        await only_attempt(cloud, await becomes(cloud, server.uuid, State.ACTIVE))


async def test_a_delete_in_the_midst_leaves_nothing(tmp_path: Path, gate: Gate) -> None:
    """Also where the target is away meanwhile: what it has of the disk goes when it comes back."""
    async with cloud_in(tmp_path) as cloud:
        server, _, target = await on_its_way(cloud, gate)
        await cloud.delete(server.uuid)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0
        await no_door(cloud)
        gate.begin_anew()
        server, _, target = await on_its_way(cloud, gate)
        await cloud.stop_agent(target)
        await cloud.delete(server.uuid)
        assert arriving(cloud, target) != []
        await start(cloud, target)
        await cloud.gone([server.uuid])
        await cloud.nothing_left()
        assert disks(cloud) == 0
        await no_door(cloud)


async def say(cloud: Cloud, host: str, *, wired: bool) -> None:
    """Have the cell think that the agent of a host is of a release that knows no wire, or that it is not."""

    def unit(connection: Connection) -> None:
        said = connection.execute(sa.select(agents.c.capabilities).where(agents.c.host == host)).scalar_one()
        able = [one for one in json.loads(said) if one != Capability.MOVE_BY_WIRE]
        able += [Capability.MOVE_BY_WIRE] if wired else []
        connection.execute(agents.update().where(agents.c.host == host).values(capabilities=json.dumps(able)))

    await cloud.plane.databases.cells["cell1"].write(unit)


async def test_where_one_side_knows_no_wire_the_guest_is_not_touched(tmp_path: Path, doors: list[DiskDoor]) -> None:
    async with cloud_in(tmp_path) as cloud:
        server = await server_with_disk(cloud)
        assert server.host is not None
        home = cloud.directory.host("cell1", server.host)
        before = read_events(home / GUESTS_FILE)
        for old in HOSTS:
            await say(cloud, old, wired=False)
            await move(cloud, server)
            after = await becomes(cloud, server.uuid, State.ACTIVE)
            assert (after.host, after.attempt) == (server.host, server.attempt)
            assert after.fault is not None
            assert "No valid host" in after.fault.message
            await only_attempt(cloud, after)
            await say(cloud, old, wired=True)
        assert read_events(home / GUESTS_FILE) == before
        assert doors == []


async def test_an_exchange_is_used_where_both_hosts_see_it(tmp_path: Path, doors: list[DiskDoor]) -> None:
    async with cloud_in(tmp_path) as cloud:
        server = await server_with_disk(cloud)
        for shared in (True, False):
            for host, agent in cloud.plane.agents.items():
                assert agent._host is not None
                agent._host.exchange = Exchange(tmp_path / ("exchange" if shared else host))
            await move(cloud, server)
            moved = await becomes(cloud, server.uuid, State.RESIZED)
            assert disk_of(cloud, moved) == CONTENT
            assert len(doors) == (0 if shared else 1)
            await confirm(cloud, server.uuid)
            server = await becomes(cloud, server.uuid, State.ACTIVE)
            await only_attempt(cloud, server)
        left = [path.name for place in ("exchange", *HOSTS) for path in (tmp_path / place).glob("*")]
        assert left == []
