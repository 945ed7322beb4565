"""Work that a request begins and that goes on after its answer: bounded, and ended with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from skep.domain.errors import TooManyRequests
from skep.telemetry import tracing
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BUSY_SECONDS = 60
"""After so many seconds a client may ask again for what there was no room for."""


class Background:
    """The work of one process, of one kind."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Raise TooManyRequests while as much is under way as may be."""
        if len(self._tasks) >= self._most:
            raise TooManyRequests.until(BUSY_SECONDS)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work beside the requests; what it raises is logged."""
        task = asyncio.create_task(_apart(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            log.warning("work given up", work=task.get_name())
        elif task.exception() is not None:
            log.error("work failed", work=task.get_name(), exc_info=task.exception())


async def _apart(work: Coroutine[Any, Any, None]) -> None:
    tracing.leave()
    await work
