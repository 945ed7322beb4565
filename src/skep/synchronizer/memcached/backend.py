"""The contract of `synchronizer/base.py`, kept with a memcached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured, StorageUnavailable, Unavailable
from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Epoch, Published, Refusal, Snapshot, Write, refuse_all
from skep.synchronizer.memcached import capacity, commands
from skep.synchronizer.memcached.healing import Healer
from skep.synchronizer.memcached.lives import LifeEnded, MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.losses import Losses
from skep.synchronizer.memcached.reading import MemcachedPosition, Reader
from skep.synchronizer.memcached.server import Connect, MemcachedClient
from skep.synchronizer.memcached.trimming import Trimmer
from skep.synchronizer.memcached.writing import MemcachedWriter

FIRST_PAUSE = 0.004
LONGEST_PAUSE = 0.025
"""Seconds between two looks at the heads of the logs by a reader that waits: longer the longer nothing happens."""

MOST_LIVES = 10
"""An operation that was overtaken by so many new epochs gives up."""

log = structlog.get_logger("skep.synchronizer")
T = TypeVar("T")


class MemcachedBackend:
    """One handle on the records of one cloud in one memcached."""

    def __init__(
        self,
        *,
        connect: Connect,
        name: str,
        expected_hosts: int,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a handle; `connect` makes a connection, `name` begins the names of all items."""
        clock = clock or Clock()
        self._name = name
        self._expected_hosts = expected_hosts
        self._monotonic = monotonic
        self._server = MemcachedClient(connect)
        self._lives = MemcachedLives(self._server, name, expected_hosts)
        self._losses = Losses(self._server, self._lives)
        self._reader = Reader(self._server, self._lives, self._losses)
        self._writer = MemcachedWriter(self._server, self._lives, self._losses, clock)
        self._healer = Healer(self._server, self._lives, self._losses, self._reader, self._writer, monotonic=monotonic)
        self._trimmer = Trimmer(
            self._server,
            self._lives,
            self._losses,
            self._reader,
            self._writer,
            self._healer,
            clock=clock,
            monotonic=monotonic,
        )

    async def open(self) -> None:
        """Connect, look whether the server can serve, begin a life if there is none.

        Raises Misconfigured with the numbers when the server is too small or too old.
        """
        connection = await self._server.connection("reading")
        statistics = await connection.statistics()
        capacity.check(await connection.statistics("settings"), self._expected_hosts)
        # An older server answers this with two errors; so it is the last thing that its connection is asked.
        (reply,) = await connection.execute([commands.probe(f"{self._name}:probe".encode())])
        if reply.status != b"HD" or not reply.cas:
            connection.close()
            version = statistics.get("version", "?")
            raise Misconfigured(f"synchronizer: memcached {version} is too old: it returns no token of a stored value")
        if lost := capacity.losses(statistics):
            log.warning("memcached lost items before: it is too small, or other clients fill it", lost=lost)
        await self._lives.join()

    async def close(self) -> None:
        """Disconnect. Readers that wait for changes end with Unavailable."""
        if not self._server.closing.is_set():
            with contextlib.suppress(Unavailable, LifeEnded):  # whoever trims ends the log otherwise
                await self._writer.end_log()
        self._server.close()

    async def epoch(self) -> Epoch:
        """Return the current epoch."""
        return (await self._lives.join()).epoch

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life, unless the epoch is no longer `expected`; return the current epoch."""
        return (await self._lives.begin(expected)).epoch

    async def snapshot(self) -> Snapshot:
        """Return all records but the removed ones."""
        return await self._in_a_life(self._reader.snapshot)

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        position = MemcachedPosition.parse(cursor)
        if position is None:
            return CursorTooOld()
        end = self._monotonic() + wait
        pause = FIRST_PAUSE
        while True:
            answer = await self._in_a_life(lambda life: self._changes(life, position))
            left = end - self._monotonic()
            if isinstance(answer, CursorTooOld) or answer.records or left <= 0:
                return answer
            await self._server.pause(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap, many in one round trip."""

        async def write(life: MemcachedLife) -> tuple[Published | Refusal, ...]:
            if epoch is not None and life.epoch != epoch:
                life = await self._lives.join()
                if life.epoch != epoch:
                    return refuse_all(writes)
            return await self._writer.publish(life, writes)

        return await self._in_a_life(write)

    async def trim(self) -> int:
        """Forget records removed long ago, and logs of writers that went away; return how many."""
        return await self._in_a_life(self._trimmer.trim)

    async def look(self) -> None:
        """Look now for what was not told and for what was lost; `changes` does it by itself every second."""
        await self._in_a_life(self._healer.look)

    async def _changes(self, life: MemcachedLife, position: MemcachedPosition) -> Changes | CursorTooOld:
        if position.epoch != life.epoch:
            return CursorTooOld()
        await self._healer.look_if_due(life)
        return await self._reader.changes(life, position)

    async def _in_a_life(self, operation: Callable[[MemcachedLife], Awaitable[T]]) -> T:
        """Do it in the current life; in the next one when that ends meanwhile."""
        for _ in range(MOST_LIVES):
            with contextlib.suppress(LifeEnded):
                return await operation(await self._lives.current())
        raise StorageUnavailable("memcached lost the records of several epochs in a row")
