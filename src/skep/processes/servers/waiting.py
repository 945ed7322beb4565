"""Waiting for a server that was started."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 0.01


async def until(condition: Callable[[], Awaitable[bool]], what: str, *, seconds: float) -> None:
    """Ask again and again until the condition is true. Raises AssertionError when it is not in time."""
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds:g} s: {what}")
        await asyncio.sleep(PAUSE_SECONDS)
