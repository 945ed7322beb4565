"""Waits for what must come true, with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE = 60.0
"""Seconds that a test waits for what must come true, wherever it waits: for a machine that is busy with much else.

What comes ends the wait at once, so that only a test that fails takes so long."""

T = TypeVar("T")


async def eventually(probe: Callable[[], Awaitable[T]], what: str, *, seconds: float = PATIENCE) -> T:
    """Return the first true answer of `probe`.

    Raises AssertionError naming `what` and the last answer when none came within `seconds`.
    """
    end = asyncio.get_running_loop().time() + seconds
    while True:
        answer = await probe()
        if answer:
            return answer
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"{what}: not within {seconds:g} s; last: {answer!r}")
        await asyncio.sleep(0.01)
