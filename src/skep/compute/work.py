"""The tasks that an agent has under way, and how they end when it stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import structlog

from skep.domain.errors import SkepError
from skep.domain.ids import InstanceUuid

log = structlog.get_logger("skep.compute")


RECANCEL_SECONDS = 0.02


class Stopping(Exception):
    """The agent stops: this story goes on at its next start."""


class AgentWork:
    """Tasks of one agent. While a task is `busy` the hypervisor has something in hand and is not interrupted."""

    def __init__(self) -> None:
        self.stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[Any]] = set()

    def start(self, story: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a story beside the others. What it raises is logged, since nobody waits for it."""
        task = asyncio.create_task(story, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Mark that the running task has an operation in the hypervisor."""
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            yield
        finally:
            self._busy.discard(task)

    def check(self) -> None:
        """Raise Stopping when the agent stops; called between the steps of a story."""
        if self.stopping:
            raise Stopping

    async def stop(self, drain_seconds: float) -> None:
        """End all tasks: at once where they wait, after at most `drain_seconds` where the hypervisor works."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_seconds
        # Again until it took: asyncio.wait_for lets a cancellation go that comes together with its result.
        while self._tasks:
            drained = loop.time() >= deadline
            for task in self._tasks if drained else self._tasks - self._busy:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=RECANCEL_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, SkepError):
            log.error("work ended", task=task.get_name(), error=str(error))
        elif error is not None and not isinstance(error, Stopping):
            log.error("work failed", task=task.get_name(), exc_info=error)


class InstanceLocks:
    """One lock for each instance that somebody works on."""

    def __init__(self) -> None:
        self._locks: dict[InstanceUuid, asyncio.Lock] = {}
        self._users: dict[InstanceUuid, int] = {}

    @contextlib.asynccontextmanager
    async def hold(self, instance: InstanceUuid) -> AsyncIterator[None]:
        """Keep everybody else from working on the instance."""
        lock = self._locks.setdefault(instance, asyncio.Lock())
        self._users[instance] = self._users.get(instance, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[instance] -= 1
            if not self._users[instance]:
                del self._users[instance], self._locks[instance]
