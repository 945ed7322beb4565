"""Work that waits for another service, some of it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from skep.domain.errors import Unavailable

T = TypeVar("T")

AT_ONCE = 8
"""Servers whose things are looked at or made at the same time."""


async def at_once(work: Iterable[Awaitable[T]], limit: int = AT_ONCE) -> list[T]:
    """Return what all of it returns, in its order; all of it has ended when one of its errors is raised."""
    places = asyncio.Semaphore(limit)

    async def one(awaited: Awaitable[T]) -> T:
        async with places:
            return await awaited

    outcomes = await asyncio.gather(*(one(awaited) for awaited in work), return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # What the service does not explain goes first: it is a bug.
    for error in sorted(errors, key=lambda error: isinstance(error, Unavailable)):
        raise error
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
