"""Those who wait for the next change: each for so long, all woken together."""

from __future__ import annotations

import asyncio


class Waiters:
    """Tasks of one loop that wait until there is something new."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Wait until somebody wakes those who wait, or so many seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            self._waiting.discard(waiter)

    def wake(self) -> None:
        """Have all who wait look again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
