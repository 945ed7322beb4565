"""One scheduler of a crowd: a process that can be killed, on a transport of its own and a backend that loses calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from skep.domain.clock import Clock
from skep.domain.errors import Unavailable
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Epoch, Published, Refusal, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import Address, Subscription
from tests.support.decision_logs import MemoryLog
from tests.support.stores.memory import MemoryStore

Fate = Literal["call", "answer", "none"]
"""What is lost of a publish."""


class Gone(Exception):
    """The process that was asked is dead."""


class Here:
    """A transport of one process: its handlers are called in place, and with the process they go."""

    def __init__(self) -> None:
        self.handlers: dict[type[Any], Any] = {}
        self.under_way: set[asyncio.Task[Any]] = set()
        self.proves_senders = True
        self.dead = False

    async def serve(self, _address: Address, handlers: Any) -> Subscription:
        self.handlers.update(handlers)
        return self

    async def serve_cells(self, _role: Address, _handlers: Any) -> Subscription:
        return self  # there is no cell here that would ask

    async def close(self) -> None:
        self.handlers.clear()

    async def call(self, message: Any) -> Any:
        if self.dead:
            raise Gone
        task = asyncio.ensure_future(self.handlers[type(message)](message, None))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.dead:
                raise Gone from None
            raise


class FarBackend(MemoryBackend):
    """A handle that takes turns of the loop for each call, and loses calls and answers, as often as it is told."""

    def __init__(self, store: MemoryStore, dice: random.Random) -> None:
        super().__init__(records=store.records)
        self.dice = dice
        self.turns = 6
        self.lag = 6
        """Most turns of the loop that news take, beside those of a call."""
        self.loses = 0.0
        self.fates: list[Fate] = []
        """What becomes of the next publishes; then it is drawn."""
        self.dead = False
        self.deaf = False
        """Nothing is heard of what others write but what is asked for."""
        self.before: Callable[[tuple[Write, ...]], Awaitable[None]] | None = None
        self.after: Callable[[tuple[Write, ...]], Awaitable[None]] | None = None
        """Awaited before and after each publish."""

    async def _travel(self) -> None:
        for _ in range(self.dice.randrange(self.turns)):
            await asyncio.sleep(0)
        if self.dead:
            raise Unavailable("this process is dead")

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        await self._travel()
        if self.before is not None:
            await self.before(writes)
        fate: Fate = self.fates.pop(0) if self.fates else "none"
        if self.dice.random() < self.loses:
            fate = self.dice.choice(("call", "answer"))
        if fate == "call":
            raise Unavailable("the call was lost")
        outcomes = await super().publish(writes, epoch=epoch)
        if self.after is not None:
            await self.after(writes)
        await self._travel()
        if fate == "answer":
            raise Unavailable("the answer was lost")
        return outcomes

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        await self._travel()
        if self.deaf and wait:
            await asyncio.get_running_loop().create_future()
        changes = await super().changes(cursor, wait=wait)
        for _ in range(self.dice.randrange(self.lag)):
            await asyncio.sleep(0)
        await self._travel()
        return changes


class Process:
    """One scheduler, which can be killed."""

    def __init__(self, store: MemoryStore, dice: random.Random, settings: SchedulerSettings) -> None:
        self.backend = FarBackend(store, dice)
        self.here = Here()
        self.now = 0.0
        self.conflicts = 0
        self.gates: list[asyncio.Event] = []
        """What its writes may wait for; all are open in the end."""
        self.log = MemoryLog(settings, every=200)
        self.service = SchedulerService(
            self.here,  # type: ignore[arg-type]  # it serves, and sends nothing
            self.backend,
            settings,
            Clock(),
            on_conflict=self._met,
            monotonic=lambda: self.now,
            decision_log=self.log,
        )

    def _met(self) -> None:
        self.conflicts += 1

    async def kill(self) -> None:
        """End it where it stands, as SIGKILL does: nothing is finished, nothing more is written."""
        self.here.dead = self.backend.dead = True
        commits = self.service._commits
        tasks = [*self.here.under_way, *self.service._tasks, *([commits._drain] if commits._drain else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
