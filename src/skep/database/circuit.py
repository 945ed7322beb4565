"""Whether a database answers: who asks one that fell silent is told so at once, until it has answered a probe.

Without it everybody who needs something of a database that hangs would wait the full time, again and again, and their
threads with them. What waits for one database never waits for another: each has its own threads and its own circuits,
one for reading and one for writing, for a database may well do the one and not the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

from skep.domain.errors import StorageUnavailable, Unavailable

T = TypeVar("T")

DOUBT_SECONDS = 0.1
"""After an answer that was late: how long others wait for the first probe. A database that was only busy answers it."""
PROBE_PAUSE_SECONDS = 0.25
"""After the first probe that failed; each time twice as long."""
LONGEST_PAUSE_SECONDS = 2.0
"""A database that is back is used again after this time at the latest."""
LATE_SECONDS = 0.02
"""A process whose timers come later than this has too little of the processor to judge others."""
BUSY_SHARE = 0.5
"""Nor may one judge that used more than this share of a processor itself while it waited."""

log = structlog.get_logger("skep.database")


class Circuit:
    """One way into one database: closed, or open while a silent database is probed.

    One that fails instead (nobody listens there) lets everybody through, for that costs no time, but is probed too, so
    that `answers` does not depend on anybody's asking.
    """

    def __init__(
        self, name: str, probe: Callable[[], Awaitable[object]], *, patience: float, cut_off: Callable[[], None]
    ) -> None:
        """`probe` asks the database for as little as there is. One that failed, or got no answer in `patience` seconds,
        has what hangs cut off by `cut_off`, so that the next may get another connection.
        """
        self._name = name
        self._probe = probe
        self._patience = patience
        self._cut_off = cut_off
        self._probing: asyncio.Task[None] | None = None
        self._doubting: asyncio.Task[None] | None = None
        self._silent = False
        self._doubted_until = 0.0
        """By the loop's clock: it may still be that the database was only busy."""

    @property
    def is_open(self) -> bool:
        """Whether nobody is let through now."""
        return self._silent and not self.answers

    @property
    def answers(self) -> bool:
        """Whether the latest that was heard of the database was an answer, no silence and no failure."""
        return self._probing is None or self._probing.done()

    async def through(self, ask: Callable[[], Awaitable[T]], within: float) -> T:
        """Ask the database, and wait for `within` seconds at most.

        Raises StorageUnavailable when it did not answer in time, or has not for a while. What was asked may happen
        later all the same, unless it had not begun.
        """
        if self.is_open and not await self._was_busy(within):
            raise StorageUnavailable(f"database {self._name} does not answer")
        try:
            return await _Wait(asyncio.ensure_future(ask()), within).over()
        except _Silent:
            self._silent = True
            self._begin_probing("database is silent")
            raise StorageUnavailable(f"database {self._name} did not answer in {within:g} s") from None
        except StorageUnavailable:
            self._begin_probing("database fails")
            raise

    def doubt(self) -> None:
        """Probe, for another way into the database had no answer in time: what hangs on this one is cut off.

        Everybody is let through meanwhile, and it counts as silent only once a probe says so.
        """
        if self.answers and (self._doubting is None or self._doubting.done()):
            self._doubting = asyncio.create_task(self._settle_doubt(), name=f"doubt {self._name}")

    async def close(self) -> None:
        """Stop probing."""
        for task in (self._doubting, self._probing):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def _was_busy(self, within: float) -> bool:
        """Wait for the first probe if it has just begun; tell whether the database has answered it."""
        doubted = self._doubted_until - asyncio.get_running_loop().time()
        if self._probing is None or doubted <= 0:
            return False
        await asyncio.wait({self._probing}, timeout=min(within, doubted))
        return not self.is_open

    def _begin_probing(self, why: str) -> None:
        if self.answers:
            log.warning(why, database=self._name)
            self._doubted_until = asyncio.get_running_loop().time() + DOUBT_SECONDS
            self._probing = asyncio.create_task(self._until_answered(), name=f"probe {self._name}")

    async def _settle_doubt(self) -> None:
        if not await self._answers_probe():
            self._begin_probing("database is silent")

    async def _until_answered(self) -> None:
        pause = PROBE_PAUSE_SECONDS
        while True:
            if await self._answers_probe():
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._silent = False
        log.info("database answers again", database=self._name)

    async def _answers_probe(self) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                await self._probe()
        except TimeoutError:
            self._cut_off()
            return False
        except Unavailable as error:
            # Where no new connection is made, that is known before the old ones have hung for long enough.
            log.debug("probe failed", database=self._name, error=str(error))
            self._cut_off()
            return False
        return True


class _Silent(Exception):
    """No answer came in time; what was asked may raise a TimeoutError of its own, which is an answer."""


class _Wait(Generic[T]):
    """The wait for one answer. A process that had no time to hear one waits twice as long before it blames others.

    One timer and the answer's own future: `asyncio.wait` costs several times as much as a short read.
    """

    __slots__ = ("_asked", "_began", "_given_up", "_loop", "_second", "_timer", "_used", "_within")

    def __init__(self, asked: asyncio.Future[T], within: float) -> None:
        self._asked = asked
        self._within = within
        self._loop = asked.get_loop()
        self._began, self._used = self._loop.time(), time.process_time()
        self._timer = self._loop.call_later(within, self._late)
        self._second = False
        self._given_up = False

    async def over(self) -> T:
        """Return the answer. Raises _Silent without one; whoever is cancelled meanwhile asks no more."""
        try:
            return await self._asked
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._given_up and task is not None and not task.cancelling():
                raise _Silent from None
            raise
        finally:
            self._timer.cancel()

    def _late(self) -> None:
        waited = self._loop.time() - self._began
        busy = time.process_time() - self._used > waited * BUSY_SHARE
        if not self._second and (busy or waited > self._within + LATE_SECONDS):
            self._second = True
            self._timer = self._loop.call_later(self._within, self._late)
            return
        self._given_up = self._asked.cancel()
