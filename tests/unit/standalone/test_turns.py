"""Whose turn it is to have a password hashed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from skep.domain.errors import Overloaded
from skep.standalone.identity.turns import Place, Turns


class Row:
    """Begins turns in order and notes who had one."""

    def __init__(self, running: int = 1, waiting: int = 100) -> None:
        self.turns = Turns(running, waiting)
        self.had: list[str] = []
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, place: Place) -> asyncio.Task[None]:
        async def wait() -> None:
            try:
                await self.turns.begin(place)
            except Overloaded:
                self.refused.append(name)
            else:
                self.had.append(name)

        task = asyncio.create_task(wait())
        self._tasks.append(task)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def serve(self, count: int) -> list[str]:
        """End so many turns; return who had one since."""
        before = len(self.had)
        for _ in range(count):
            self.turns.end()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return self.had[before:]


async def test_a_crowd_at_one_address_does_not_starve_another() -> None:
    row = Row()
    for number in range(90):
        await row.come(f"crowd{number}", Place("192.0.2.1", "admin", known=False))
    await row.come("other", Place("192.0.2.2", "admin", known=False))
    assert "other" in await row.serve(2)


async def test_a_crowd_for_one_user_does_not_starve_another_at_the_same_address() -> None:
    row = Row()
    for number in range(90):
        await row.come(f"crowd{number}", Place("192.0.2.1", "admin", known=False))
    await row.come("other", Place("192.0.2.1", "demo", known=False))
    assert "other" in await row.serve(2)


async def test_who_is_known_has_every_second_turn() -> None:
    row = Row()
    await row.come("first", Place("a", "a", known=False))
    for number in range(4):
        for known in (True, False):
            await row.come(f"{known}{number}", Place(f"{number}", "u", known=known))
    served = await row.serve(8)
    assert [name[0] for name in served] == ["T", "F"] * 4


async def test_those_of_one_place_keep_their_order() -> None:
    row = Row()
    for name in "abcd":
        await row.come(name, Place("x", "u"))
    await row.serve(3)
    assert row.had == ["a", "b", "c", "d"]


async def test_when_the_row_is_full_the_longest_part_gives() -> None:
    row = Row(waiting=4)
    for name in "abcde":
        await row.come(name, Place("crowd", "u"))
    await row.come("f", Place("crowd", "u"))
    assert row.refused == ["f"]
    await row.come("other", Place("other", "u"))
    assert row.refused == ["f", "e"]
    assert row.turns.waiting == 4
    assert "other" in await row.serve(2)


async def test_who_gives_up_leaves_no_gap() -> None:
    row = Row()
    await row.come("a", Place("x", "u"))
    gone = await row.come("b", Place("x", "u"))
    await row.come("c", Place("x", "u"))
    gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
    assert await row.serve(1) == ["c"]
    assert await row.serve(1) == []
    await row.come("d", Place("x", "u"))
    assert row.had[-1] == "d"


@pytest.mark.parametrize("at", ["before", "after"])
async def test_a_turn_that_meets_one_who_gives_up_goes_on(at: str) -> None:
    row = Row()
    await row.come("a", Place("x", "u"))
    gone = await row.come("b", Place("x", "u"))
    await row.come("c", Place("x", "u"))
    if at == "before":
        gone.cancel()
        row.turns.end()
    else:
        row.turns.end()
        gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert row.had == ["a", "c"]
    assert row.turns.waiting == 0
