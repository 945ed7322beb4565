"""A handle on records in a SQL database: publishes joined into few transactions, readers woken by commits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from skep.domain.errors import Unavailable
from skep.domain.ids import new_uuid
from skep.synchronizer.base import (
    KEEP_REMOVED_SECONDS,
    Changes,
    Cursor,
    CursorTooOld,
    Epoch,
    Key,
    Published,
    Record,
    Refusal,
    Snapshot,
    Write,
    refuse_all,
)
from skep.synchronizer.sql.joining import JoinedWrites
from skep.synchronizer.sql.lane import Lane
from skep.synchronizer.sql.server import KEEP_COMMITS, SqlPosition, SqlServer, Wiped
from skep.synchronizer.waiters import Waiters

CALL_SECONDS = 10.0
"""What one transaction may take; beyond it the server counts as away."""

SNAPSHOT_SECONDS = 60.0
"""What reading all records may take."""

RETRY_SECONDS = 0.5
"""Between attempts to listen while the server is away; readers look for themselves as often."""

MOST_TRIES = 3
"""Of an operation that finds no tables: each connection has to notice for itself that its file was replaced."""

T = TypeVar("T")
Outcomes = tuple[Published | Refusal, ...]
log = structlog.get_logger("skep.synchronizer")


class SqlBackend:
    """A handle with four threads, each with a connection: one publishes, two read, one listens for commits."""

    def __init__(
        self,
        server: SqlServer[Any],
        *,
        call_seconds: float = CALL_SECONDS,
        keep_commits: int = KEEP_COMMITS,
        keep_removed: float = KEEP_REMOVED_SECONDS,
    ) -> None:
        self._server = server
        self._keep_commits = keep_commits
        self._keep_removed = keep_removed
        self._writing = Lane(server, "write", call_seconds)
        self._reading = Lane(server, "read", call_seconds)
        self._copying = Lane(server, "snapshot", max(call_seconds, SNAPSHOT_SECONDS))
        self._joined = JoinedWrites(self._publish)
        self._listener: threading.Thread | None = None
        self._listening: Any = None
        self._lock = threading.Lock()
        """Held where `_listening` changes."""
        self._stopping = threading.Event()
        self._commits = 0
        """How often we were woken; whoever compares two readings knows whether something may have changed."""
        self._waiters = Waiters()

    async def open(self) -> None:
        """Connect, and make the tables if there are none.

        Raises Unavailable when the server is away, Misconfigured when it or its tables are of another kind.
        """
        await self._prepare()
        if self._listener is None:
            run = partial(self._listen, asyncio.get_running_loop())
            self._listener = threading.Thread(target=run, name="synchronizer-listen", daemon=True)
            self._listener.start()

    async def close(self) -> None:
        """End all that runs or waits with Unavailable, and disconnect."""
        self._stopping.set()
        self._wake()
        for lane in (self._writing, self._reading, self._copying):
            await lane.close()
        if self._listener is not None:
            with self._lock:
                if self._listening is not None:
                    self._server.abort(self._listening)
            await asyncio.to_thread(self._listener.join)

    async def epoch(self) -> Epoch:
        """Return the current epoch."""
        return await self._run(self._reading, self._server.epoch)

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life without records, unless the epoch is no longer `expected`; return the current epoch."""
        another = Epoch(new_uuid())
        return await self._run(
            self._writing, lambda connection: self._server.begin_epoch(connection, expected, another)
        )

    async def snapshot(self) -> Snapshot:
        """Return all records but the removed ones, as of one moment."""
        return await self._run(self._copying, self._server.snapshot)

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        position = SqlPosition.of(cursor)
        while position is not None:
            commits = self._commits
            read = partial(_changes, self._server, position)
            changes = await self._run(self._reading, read)
            if isinstance(changes, CursorTooOld) or changes.records or loop.time() >= end:
                return changes
            if commits == self._commits and not self._stopping.is_set():
                await self._waiters.wait(end - loop.time())
        return CursorTooOld()

    async def publish(self, writes: tuple[Write, ...], *, epoch: Epoch | None = None) -> Outcomes:
        """Try each write by compare-and-swap; what waits at the same time goes in one transaction.

        Raises ValueError for a name that no database can hold.
        """
        _check_names(writes)
        return await self._joined.publish(writes, epoch) if writes else ()

    async def trim(self) -> int:
        """Forget old marks and records that were removed long ago."""
        trim = partial(self._server.trim, keep_commits=self._keep_commits, keep_removed=self._keep_removed)
        return await self._run(self._writing, trim)

    async def _prepare(self) -> None:
        epoch = Epoch(new_uuid())
        await self._writing.run(lambda connection: self._server.prepare(connection, epoch))

    async def _run(self, lane: Lane[Any], operation: Callable[[Any], T]) -> T:
        """Run it; where the tables are gone, make them first: everything in them is lost, so it is another life."""
        if self._listener is None:
            raise Unavailable("the synchronizer's backend is not open")
        wiped: Wiped | None = None
        for _ in range(MOST_TRIES):
            try:
                if wiped is not None:
                    await self._prepare()
                return await lane.run(operation)
            except Wiped as error:
                log.warning("the synchronizer's tables were missing or replaced", error=str(error))
                wiped = error
        raise Unavailable("the synchronizer's tables are missing") from wiped

    async def _publish(self, writes: Sequence[Write], epoch: Epoch | None) -> dict[Key, Published | Refusal]:
        return await self._run(self._writing, partial(_publish, self._server, writes, epoch))

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake readers after commits; the listening thread."""

        def wake() -> None:
            # A loop that has ended has no readers.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake)

        away = False
        while not self._stopping.is_set():
            try:
                with self._to_listen() as connection:
                    away = False
                    wake()
                    self._server.watch(connection, wake, self._stopping)
            except Exception as error:  # a thread that ends would leave readers unwoken for ever
                if self._stopping.is_set():
                    return
                if not (self._server.is_away(error) or self._server.is_wiped(error)):
                    log.exception("the synchronizer's listener failed")  # a bug: readers go on by looking themselves
                elif not away:
                    log.warning("the synchronizer's database announced no changes", error=str(error))
                away = True
                wake()
                self._stopping.wait(RETRY_SECONDS)

    @contextlib.contextmanager
    def _to_listen(self) -> Iterator[Any]:
        """Give a connection that `close` may abort."""
        connection = self._server.connect()
        try:
            with self._lock:
                self._listening = connection
            yield connection
        finally:
            with self._lock:
                self._listening = None
            self._server.close(connection)

    def _wake(self) -> None:
        self._commits += 1
        self._waiters.wake()


def _check_names(writes: tuple[Write, ...]) -> None:
    """Find here what would make the whole transaction fail, and with it the writes of others."""
    for write in writes:
        if b"\0" in (write.key.namespace + write.key.name).encode():
            raise ValueError(f"a record's name holds NUL: {write.key}")


def _changes(server: SqlServer[Any], position: SqlPosition, connection: Any) -> Changes | CursorTooOld:
    return server.changes(connection, position)


def _publish(
    server: SqlServer[Any], writes: Sequence[Write], epoch: Epoch | None, connection: Any
) -> dict[Key, Published | Refusal]:
    """Publish, then read what the refused ones met."""
    taken = server.publish(connection, writes, epoch)
    if taken is None:
        return dict(zip((write.key for write in writes), refuse_all(writes), strict=True))
    refused = [write.key for write in writes if write.key not in taken]
    held: dict[Key, Record] = server.held(connection, refused) if refused else {}
    return {
        write.key: Published(write.expected + 1) if write.key in taken else Refusal(held.get(write.key))
        for write in writes
    }
