"""Waits for what must come true, with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE = 120.0
"""Seconds that a test waits for what must come true, wherever it waits: for a machine that is busy with much else.

What comes ends the wait at once, so that only a test that fails takes so long."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.05
PART = 0.02
"""Of the time that was waited: the pause until the next look."""

T = TypeVar("T")


async def eventually(probe: Callable[[], Awaitable[T]], what: str, *, seconds: float = PATIENCE) -> T:
    """Return the first true answer of `probe`. What takes longer is asked for less often: each look takes time, too.

    Raises AssertionError naming `what` and the last answer when none came within `seconds`.
    """
    began = asyncio.get_running_loop().time()
    while True:
        answer = await probe()
        if answer:
            return answer
        waited = asyncio.get_running_loop().time() - began
        if waited > seconds:
            raise AssertionError(f"{what}: not within {seconds:g} s; last: {answer!r}")
        await asyncio.sleep(min(LONGEST_PAUSE, max(SHORTEST_PAUSE, waited * PART)))
