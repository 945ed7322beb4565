"""Work that waits for another service ends as a whole."""

from __future__ import annotations

import asyncio

import pytest

from skep.domain.errors import Unavailable
from skep.neighbours.at_once import at_once


class Counted:
    """Counts the work that is going on and the work that has ended."""

    def __init__(self) -> None:
        self.going_on = self.most = self.ended = 0

    async def work(self, outcome: int | Exception) -> int:
        self.going_on += 1
        self.most = max(self.most, self.going_on)
        await asyncio.sleep(0)
        self.going_on -= 1
        self.ended += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_answers_stand_in_the_order_of_the_work() -> None:
    counted = Counted()
    assert await at_once((counted.work(number) for number in range(20)), limit=3) == list(range(20))
    assert counted.most == 3
    assert await at_once([]) == []


async def test_all_work_has_ended_when_an_error_is_raised() -> None:
    counted = Counted()
    with pytest.raises(Unavailable, match="first"):
        await at_once([counted.work(Unavailable("first")), *(counted.work(number) for number in range(20))], limit=2)
    assert counted.ended == 21


async def test_a_bug_is_not_hidden_by_a_service_that_is_away() -> None:
    counted = Counted()
    outcomes = [Unavailable("away"), ValueError("bug"), Unavailable("away")]
    with pytest.raises(ValueError, match="bug"):
        await at_once(counted.work(outcome) for outcome in outcomes)
