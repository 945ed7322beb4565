"""Whether a database answers: who asks one that fell silent is told so at once, until it has answered a probe.

Without it everybody who needs something of a database that hangs would wait the full time, again and again, and their
threads with them. What waits for one database never waits for another: each has its own threads and its own circuits,
one for reading and one for writing, for a database may well do the one and not the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from skep.domain.errors import StorageUnavailable, Unavailable

T = TypeVar("T")

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
        """`probe` asks the database for as little as there is. One that got no answer in `patience` seconds has what
        hangs cut off by `cut_off`, so that the next may get another connection.
        """
        self._name = name
        self._probe = probe
        self._patience = patience
        self._cut_off = cut_off
        self._probing: asyncio.Task[None] | None = None
        self._silent = False

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
        if self.is_open:
            raise StorageUnavailable(f"database {self._name} does not answer")
        asked = asyncio.ensure_future(ask())
        try:
            if await _in_time(asked, within):
                return asked.result()
        except StorageUnavailable:
            self._begin_probing("database fails")
            raise
        finally:
            asked.cancel()
        self._silent = True
        self._begin_probing("database is silent")
        raise StorageUnavailable(f"database {self._name} did not answer in {within:g} s")

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    def _begin_probing(self, why: str) -> None:
        if self.answers:
            log.warning(why, database=self._name)
            self._probing = asyncio.create_task(self._until_answered(), name=f"probe {self._name}")

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
            log.debug("probe failed", database=self._name, error=str(error))
            return False
        return True


async def _in_time(asked: asyncio.Future[T], within: float) -> bool:
    """Wait for an answer; a process that had no time itself to hear one waits twice as long before it blames others."""
    loop = asyncio.get_running_loop()
    began, used = loop.time(), time.process_time()
    done, _ = await asyncio.wait({asked}, timeout=within)
    if not done:
        waited = loop.time() - began
        busy = time.process_time() - used > waited * BUSY_SHARE
        if busy or waited > within + LATE_SECONDS:
            done, _ = await asyncio.wait({asked}, timeout=within)
    return bool(done)
