"""Work on one thing that one process may do at a time: what it has taken it takes anew before that is stale."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from skep.domain.errors import SkepError
from skep.super_conductor.parts import Parts

T = TypeVar("T")

RENEWALS = 3
"""How often what is taken is taken anew in the time after which it would be stale."""


class TakenWork(Protocol):
    """What this process has taken."""

    async def again(self, now: int) -> bool:
        """Take it anew; False where another process has it."""
        ...

    async def leave(self) -> None:
        """Let any process take it, if this one still has it."""
        ...


async def alone(parts: Parts, taken: TakenWork, work: Coroutine[Any, Any, T]) -> T | None:
    """Do what one process may do at a time, and take it anew before it is stale: a request may last longer.

    None: another process has taken it, since this one was silent for too long; its own work is cut off. Raises what
    the work raises; any process may do it again then.
    """
    every = parts.settings.lease_seconds / RENEWALS
    doing = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({doing}, timeout=every))[0]:
            if not await taken.again(parts.clock.now()):
                return None
        return doing.result()
    except SkepError:
        await _cut_off(doing)
        await taken.leave()
        raise
    finally:
        await _cut_off(doing)


async def _cut_off(doing: asyncio.Future[Any]) -> None:
    """Have something end, if it has not; whoever cuts it off needs nothing of it any more."""
    if not doing.done():
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
