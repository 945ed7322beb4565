"""A reconciler: a pass over rows, run when nudged and periodically, one code path for repair and for normal work.

A pass takes no input. It reads what is to be done, does some of it and says whether there is more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from skep.domain.errors import SkepError
from skep.telemetry import tracing
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

GATHER_SECONDS = 0.02
"""Between the beginnings of two passes over what users ask for: several requests share one, and its transactions."""

Pass = Callable[[], Awaitable[bool]]
"""Does some of the work there is; True when there is more to do at once."""


class Loop:
    """Runs one pass again and again, never two at once."""

    def __init__(self, name: str, work: Pass, *, every: float, apart: float = 0.0) -> None:
        """Run every `every` seconds, and when nudged; two passes begin at least `apart` seconds after one another."""
        self.name = name
        self.every = every
        self._apart = apart
        self._not_before = 0.0
        self._work = work
        self._nudged = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with a pass at once: what an earlier process left is found by the first."""
        self._nudged.set()
        self._task = asyncio.create_task(self._run(), name=self.name)

    def nudge(self) -> None:
        """Something changed: run a pass soon."""
        self._nudged.set()

    async def stop(self) -> None:
        """Finish the pass under way and stop."""
        self._stopping = True
        self._nudged.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _run(self) -> None:
        tracing.leave()
        while True:
            await self._wait()
            if self._stopping:
                return
            if self._apart:
                await self._gather()
            self._nudged.clear()
            await self._pass()

    async def _gather(self) -> None:
        """Let what comes right after the last pass wait for what else comes; after a pause a pass begins at once."""
        loop = asyncio.get_running_loop()
        left = self._not_before - loop.time()
        if left > 0:
            await asyncio.sleep(left)
        self._not_before = loop.time() + self._apart

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self.every):
                await self._nudged.wait()
        except TimeoutError:
            return

    async def _pass(self) -> None:
        try:
            if await self._work():
                self._nudged.set()
        except SkepError as error:
            log.warning("pass failed", loop=self.name, error=str(error))
        except Exception:
            log.exception("pass failed", loop=self.name)
