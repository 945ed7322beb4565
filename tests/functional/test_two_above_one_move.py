"""Two super conductors work on one cold move between cells: it is done once, whoever is killed or paused on the way."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import instance_mappings, moves
from skep.database.api.tables import leases
from skep.database.cell import between_cells
from skep.database.cell.between_cells import Seeking
from skep.domain.ids import Incarnation, InstanceUuid
from skep.domain.instances import State
from skep.reconciler.lease import Lease
from skep.reconciler.loop import Loop
from skep.super_conductor.between_cells import BetweenCells
from skep.telemetry.steps import CrashPoint, Steps
from tests.functional.test_moving_between_cells import (
    BACK,
    FORTH,
    content,
    leaves_nothing_on,
    moved,
    rests,
    with_disk,
)
from tests.functional.test_shelving import CONTENT, Shelving
from tests.functional.test_unshelving_elsewhere import (
    cell_of,
    clean,
    nothing_left,
    only_in,
    states,
    super_conductor,
    two_cells,
)

CASES = [(step, when, *BACK[number % len(BACK)]) for number, (step, when) in enumerate(FORTH)]
"""Each point of the way, and of the way back."""


class _Killed(Exception):
    """What every step of a conductor raises that was killed."""


class Conductor:
    """What one process above the cells does for moves between them."""

    def __init__(self, cloud: Shelving, name: str) -> None:
        parts = super_conductor(cloud)._parts
        self.steps = Steps(parts.steps.metrics)
        self.parts = own = dataclasses.replace(parts, owner=Incarnation(name), steps=self.steps)
        self.story = BetweenCells(own)
        self.loop = Loop(name, self.story.run, every=0.05)
        self._lease = Lease(own.api, leases, own.owner, "super_conductor", super_conductor(cloud).clock, seconds=2.0)
        self.came = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def start(self) -> None:
        await self.lives()
        self.loop.start()

    async def lives(self) -> None:
        await self._lease.start()

    async def is_not_heard(self) -> None:
        """Let its lease end, as that of a process that is dead, or that does nothing for long."""
        await self._lease.stop()

    def ends_at(self, step: str, when: str, *, killed: bool) -> None:
        """Have it do nothing from a point on: ever again, or until it may go on."""

        async def hook(point: CrashPoint) -> None:
            if (point.step, point.when) == (step, when):
                self.came.set()
            if self.came.is_set() and killed:
                raise _Killed
            if self.came.is_set():
                await self.goes_on.wait()

        self.steps.crash_hook = hook


@asynccontextmanager
async def none_above(root: Path) -> AsyncIterator[Shelving]:
    """Open two cells in whose moves nobody above takes part, but those that a test starts."""
    async with two_cells(root) as cloud:
        await super_conductor(cloud)._between_cells.stop()
        yield cloud


async def is_nobodys(cloud: Shelving, uuid: InstanceUuid) -> bool:
    mapping = await cloud.cloud.plane.databases.api.read(partial(instance_mappings.get, instance=uuid))
    return mapping is not None and mapping.owner is None


async def through(
    cloud: Shelving, uuid: InstanceUuid, action: str, point: tuple[str, str], *, killed: bool, **ends: State
) -> None:
    """Have a move begun by one conductor, which stops at a point, and ended by another; the rows are `ends` then."""
    first, second = Conductor(cloud, f"first-{action}"), Conductor(cloud, f"second-{action}")
    first.ends_at(*point, killed=killed)
    await first.start()
    await cloud.act(uuid, action)
    async with asyncio.timeout(PATIENCE):
        await first.came.wait()
    if killed:
        await first.loop.stop()
    await first.is_not_heard()
    await second.start()
    await rests(cloud, uuid, **ends)
    await eventually(partial(is_nobodys, cloud, uuid), "no conductor owns the server, a dead one least of all")
    known = await cell_of(cloud, uuid), await moved(cloud, uuid), await cloud.guests()
    first.goes_on.set()
    await first.loop.stop()
    await second.loop.stop()
    await second.is_not_heard()
    assert (await cell_of(cloud, uuid), await moved(cloud, uuid), await cloud.guests()) == known
    assert set((await states(cloud, uuid)).items()) == set(ends.items())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "paused"])
@pytest.mark.parametrize(("step", "when", "step_back", "when_back"), CASES)
async def test_another_conductor_finishes_and_the_first_changes_nothing(
    tmp_path: Path, step: str, when: str, step_back: str, when_back: str, killed: bool
) -> None:
    async with none_above(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        await through(cloud, uuid, "migrate", (step, when), killed=killed, cell1=State.AWAY, cell2=State.RESIZED)
        assert await cell_of(cloud, uuid) == "cell2"
        assert await content(cloud, uuid) == CONTENT
        back = (step_back, when_back)
        await through(cloud, uuid, "revertResize", back, killed=killed, cell1=State.ACTIVE, cell2=State.MOVED)
        assert await cell_of(cloud, uuid) == "cell1"
        assert await content(cloud, uuid) == CONTENT
        await leaves_nothing_on(cloud, "cell2-host1")
        await clean(cloud)


async def test_two_that_are_told_of_it_at_once_move_it_once(tmp_path: Path) -> None:
    async with none_above(tmp_path) as cloud:
        await only_in(cloud, "cell1", "cell2")
        both = [Conductor(cloud, name) for name in ("one", "other")]
        for one in both:
            await one.start()
        uuid = await with_disk(cloud)
        home = await cell_of(cloud, uuid)
        for _ in range(4):
            away = "cell2" if home == "cell1" else "cell1"
            await only_in(cloud, away)
            await cloud.act(uuid, "migrate")
            await cloud.calm(uuid, "VERIFY_RESIZE")
            await cloud.act(uuid, "revertResize")
            await cloud.calm(uuid, "ACTIVE")
            await rests(cloud, uuid, **{home: State.ACTIVE, away: State.MOVED})
            await leaves_nothing_on(cloud, f"{away}-host1")
            await cloud.act(uuid, "migrate")
            await cloud.calm(uuid, "VERIFY_RESIZE")
            assert await cloud.ask(uuid, "confirmResize") == 204
            await rests(cloud, uuid, **{home: State.MOVED, away: State.ACTIVE})
            await leaves_nothing_on(cloud, f"{home}-host1")
            assert await content(cloud, uuid) == CONTENT
            home = away
        assert [one[0] for one in await moved(cloud, uuid)] == ["reverted", "confirmed"] * 4
        assert (await cloud.session.ask("DELETE", f"/servers/{uuid}")).status_code == 204
        await cloud.calm(uuid, "")
        await nothing_left(cloud)
        await clean(cloud)
        for one in both:
            await one.loop.stop()
            await one.is_not_heard()


@pytest.mark.parametrize("late", [False, True], ids=["before it is handed over", "while it is handed over"])
async def test_one_that_comes_too_late_with_a_host_keeps_nobody_from_handing_it_over(
    tmp_path: Path, late: bool
) -> None:
    """It has taken a number above that of the move, and with that the mapping was refused to the other."""
    async with none_above(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        first, second = Conductor(cloud, "first"), Conductor(cloud, "second")
        await second.lives()
        [home] = [cell for cell, one in cloud.cloud.plane.cells.items() if one.name == "cell1"]
        api = cloud.cloud.plane.databases.api
        taken: list[int] = []

        async def come(point: CrashPoint) -> None:
            part = await cloud.cell.read(partial(between_cells.part, instance=uuid))
            if point.step != "hand_over" or part is None:
                return
            if not late and not taken and point.when == "before":
                taken.append(1)
                await second.story._seek(
                    second.parts.cells[home], Seeking(uuid=part.move.uuid, instance=uuid, highest=1)
                )
            elif late and not taken and point.when == "before":
                now = cloud.cloud.clock.now()
                taking = partial(moves.take, owner=second.parts.owner, instance=uuid, cell=home, attempt=1, now=now)
                number = await api.write(taking)
                assert number is not None
                taken.append(number)
            elif late and len(taken) == 1 and point.when == "after":
                giving = partial(moves.take_no_more, owner=second.parts.owner, instance=uuid, taken=taken[0])
                await api.write(giving)
                taken.append(0)

        first.steps.crash_hook = come
        await first.start()
        await cloud.act(uuid, "migrate")
        await cloud.calm(uuid, "VERIFY_RESIZE")
        assert taken
        assert await cell_of(cloud, uuid) == "cell2"
        await first.loop.stop()
        await first.is_not_heard()
        await second.is_not_heard()


@pytest.mark.parametrize("point", [("follow_move", "before"), ("hand_over", "before")], ids=["staged", "handed over"])
async def test_one_that_comes_too_late_and_dies_keeps_nobody_from_handing_it_over(
    tmp_path: Path, point: tuple[str, str]
) -> None:
    """It died between two writes: it has taken a number, and gives it back no more."""
    async with none_above(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        first = Conductor(cloud, "first")
        [home] = [cell for cell, one in cloud.cloud.plane.cells.items() if one.name == "cell1"]
        api = cloud.cloud.plane.databases.api
        taken: list[int] = []

        async def come(at: CrashPoint) -> None:
            part = await cloud.cell.read(partial(between_cells.part, instance=uuid))
            if (at.step, at.when) != point or part is None or taken:
                return
            now, highest = cloud.cloud.clock.now(), part.highest
            dead = Incarnation("dead")
            taking = partial(moves.take, owner=dead, instance=uuid, cell=home, attempt=highest, now=now)
            number = await api.write(taking)
            assert number is not None
            taken.append(number)

        first.steps.crash_hook = come
        await first.start()
        await cloud.act(uuid, "migrate")
        await rests(cloud, uuid, cell1=State.AWAY, cell2=State.RESIZED)
        assert taken
        assert await cell_of(cloud, uuid) == "cell2"
        await eventually(partial(is_nobodys, cloud, uuid), "nobody owns the server")
        await cloud.act(uuid, "revertResize")
        await rests(cloud, uuid, cell1=State.ACTIVE, cell2=State.MOVED)
        assert await content(cloud, uuid) == CONTENT
        await clean(cloud)
        await first.loop.stop()
        await first.is_not_heard()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_one_that_dies_while_it_stages_owns_nothing(tmp_path: Path, when: str) -> None:
    """Its lease outlives it for a while. Another that goes on meanwhile finds what is staged, and seeks no host."""
    async with none_above(tmp_path) as cloud:
        uuid = await with_disk(cloud)
        await only_in(cloud, "cell2")
        first, second = Conductor(cloud, "first"), Conductor(cloud, "second")
        first.ends_at("stage_move", when, killed=True)
        await first.start()
        await cloud.act(uuid, "migrate")
        async with asyncio.timeout(PATIENCE):
            await first.came.wait()
        await first.loop.stop()
        await second.start()
        if when == "before":
            await first.is_not_heard()
        await rests(cloud, uuid, cell1=State.AWAY, cell2=State.RESIZED)
        await first.is_not_heard()
        await eventually(partial(is_nobodys, cloud, uuid), "nobody owns the server")
        await second.loop.stop()
        await second.is_not_heard()
