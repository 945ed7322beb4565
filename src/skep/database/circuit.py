"""Whether a database answers: who asks one that fell silent is told so at once, until it has answered a probe.

Without it everybody who needs something of a database that hangs would wait the full time, again and again, and their
threads with them. What waits for one database never waits for another: each has its own threads and its own circuits,
one for reading and one for writing, for a database may well do the one and not the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from skep.domain.errors import StorageUnavailable, Unavailable

T = TypeVar("T")

PROBE_PAUSE_SECONDS = 0.25
"""Between a probe that failed and the next."""

log = structlog.get_logger("skep.database")


class Circuit:
    """One way into one database: closed, or open while a silent database is probed."""

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
        self._answered = True

    @property
    def is_open(self) -> bool:
        """Whether nobody is let through now."""
        return self._probing is not None and not self._probing.done()

    @property
    def answers(self) -> bool:
        """Whether the latest that was heard of the database was an answer, no silence and no failure."""
        return self._answered and not self.is_open

    async def through(self, ask: Callable[[], Awaitable[T]], within: float) -> T:
        """Ask the database, and wait for `within` seconds at most.

        Raises StorageUnavailable when it did not answer in time, or has not for a while. What was asked may happen
        later all the same, unless it had not begun.
        """
        if self.is_open:
            raise StorageUnavailable(f"database {self._name} does not answer")
        try:
            async with asyncio.timeout(within):
                answer = await ask()
        except TimeoutError:
            self._open()
            raise StorageUnavailable(f"database {self._name} did not answer in {within:g} s") from None
        except StorageUnavailable:
            self._answered = False
            raise
        self._answered = True
        return answer

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    def _open(self) -> None:
        self._answered = False
        if not self.is_open:
            log.warning("database is silent", database=self._name)
            self._probing = asyncio.create_task(self._until_answered(), name=f"probe {self._name}")

    async def _until_answered(self) -> None:
        while True:
            if await self._answers_probe():
                break
            await asyncio.sleep(PROBE_PAUSE_SECONDS)
        self._answered = True
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
