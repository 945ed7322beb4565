"""One database: units of work in, results out, many units to a commit.

A *unit* is a plain function of an open connection. Reading units run in a small pool of threads. Writing units run in
one thread that takes all that wait, gives each its own savepoint and answers them after their common COMMIT: one
statement through an async driver costs more CPU than ten that run together.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy import event, exc
from sqlalchemy.pool import NullPool

from skep.domain.errors import Overloaded, StorageUnavailable

T = TypeVar("T")
Unit = Callable[[sa.Connection], T]
CommitHook = Callable[[Literal["before", "after"], Unit[Any], contextvars.Context], None]
"""Told of each unit just before its COMMIT, and just after it while its caller has no answer yet; in the writing
thread, with the context that the unit was submitted in."""

log = structlog.get_logger("skep.database")

MAX_WAITING = 20_000
"""Write units that may wait; beyond it `write` raises Overloaded."""
_STORAGE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)
MAX_BATCH = 200
"""Write units in one transaction, so that no answer waits for a long one."""


class Database:
    """One SQLite file. Opened once per process; every service of the process shares it."""

    def __init__(self, path: Path, *, readers: int = 2, busy_timeout: float = 5.0) -> None:
        self.path = path
        self.name = path.stem
        self.busy_timeout = busy_timeout
        self.commit_hook: CommitHook | None = None
        """Tests end the process there."""
        self.engine = _engine(path, busy_timeout)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix=f"{self.name}-read")
        self._reading = threading.local()
        self._read_connections: list[sa.Connection] = []
        self._writer = _Writer(self)

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit that only reads, on a consistent view.

        Raises StorageUnavailable when the database cannot be read now.
        """
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, unit)

    async def write(self, unit: Unit[T], *, intake: bool = False) -> T:
        """Run a unit in a transaction shared with others and return its result once it is committed.

        What the unit raises is raised here and only its own changes are undone. Units with `intake` (a user waits)
        go before the others.

        Raises StorageUnavailable when nothing can be stored now, Overloaded when too many units wait.
        """
        return await self._writer.submit(unit, intake)

    @property
    def waiting(self) -> int:
        """Write units that have not begun."""
        return self._writer.waiting

    async def close(self) -> None:
        """Finish what was submitted and close the file."""
        await asyncio.to_thread(self._writer.stop)
        self._readers.shutdown()
        for connection in self._read_connections:
            connection.close()
        self.engine.dispose()

    def _read(self, unit: Unit[T]) -> T:
        connection: sa.Connection | None = getattr(self._reading, "connection", None)
        try:
            if connection is None:
                connection = self.engine.connect()
                self._reading.connection = connection
                self._read_connections.append(connection)
            with connection.begin():
                return unit(connection)
        except (exc.DBAPIError, sqlite3.Error) as error:
            if not _is_storage(error):
                raise
            raise StorageUnavailable(f"database {self.name} cannot be read: {_cause(error)}") from error


class _Job(Generic[T]):
    __slots__ = ("context", "future", "loop", "outcome", "unit")

    def __init__(self, unit: Unit[T], loop: asyncio.AbstractEventLoop) -> None:
        self.unit = unit
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.outcome: tuple[bool, Any] = (False, None)
        self.context: contextvars.Context | None = None


class _Writer:
    """The thread that writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._intake: collections.deque[_Job[Any]] = collections.deque()
        self._work: collections.deque[_Job[Any]] = collections.deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{database.name}-write", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._intake) + len(self._work)

    def submit(self, unit: Unit[T], intake: bool) -> asyncio.Future[T]:
        if self._stopping:
            raise StorageUnavailable(f"database {self._database.name} is closed")
        if self.waiting >= MAX_WAITING:
            raise Overloaded(f"database {self._database.name} has {self.waiting} writes waiting")
        job = _Job(unit, asyncio.get_running_loop())
        if self._database.commit_hook is not None:
            job.context = contextvars.copy_context()
        with self._wake:
            (self._intake if intake else self._work).append(job)
            self._wake.notify()
        return job.future

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        connection: sa.Connection | None = None
        while batch := self._next_batch():
            try:
                if connection is None:
                    connection = self._database.engine.connect()
                self._commit(connection, batch)
                self._tell("after", batch)
            except (exc.SQLAlchemyError, sqlite3.Error) as error:
                connection = self._fail(connection, batch, error)
            self._answer(batch)
        if connection is not None:
            connection.close()

    def _next_batch(self) -> list[_Job[Any]]:
        with self._wake:
            while not (self._intake or self._work or self._stopping):
                self._wake.wait()
            batch: list[_Job[Any]] = []
            for queue in (self._intake, self._work):
                while queue and len(batch) < MAX_BATCH:
                    batch.append(queue.popleft())
            return batch

    def _commit(self, connection: sa.Connection, batch: list[_Job[Any]]) -> None:
        transaction = connection.begin()
        try:
            for job in batch:
                job.outcome = _run_unit(connection, job.unit)
            self._tell("before", batch)
            transaction.commit()
        except BaseException:
            # A full disk has rolled back by itself, so this may fail too; the first error is the one that tells.
            with contextlib.suppress(exc.SQLAlchemyError, sqlite3.Error):
                transaction.rollback()
            raise

    def _tell(self, moment: Literal["before", "after"], batch: list[_Job[Any]]) -> None:
        hook = self._database.commit_hook
        if hook is None:
            return
        for job in batch:
            if job.context is not None:
                hook(moment, job.unit, job.context)

    def _fail(self, connection: sa.Connection | None, batch: list[_Job[Any]], error: Exception) -> sa.Connection | None:
        """Answer the whole batch with the reason: a failed transaction stored nothing of it."""
        log.warning("database cannot store", database=self._database.name, error=_cause(error), units=len(batch))
        for job in batch:
            job.outcome = (
                False,
                StorageUnavailable(f"database {self._database.name} cannot store: {_cause(error)}"),
            )
        if connection is not None:
            connection.invalidate()
            connection.close()
        return None

    def _answer(self, batch: list[_Job[Any]]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
        for job in batch:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, jobs in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, jobs)


def _run_unit(connection: sa.Connection, unit: Unit[T]) -> tuple[bool, Any]:
    """Run a unit under its own savepoint; what it raises is its outcome, unless storing itself failed."""
    savepoint = connection.begin_nested()
    try:
        value = unit(connection)
    except Exception as error:
        if _is_storage(error):
            raise
        savepoint.rollback()
        return False, error
    savepoint.commit()
    return True, value


def _is_storage(error: Exception) -> bool:
    """Tell a database that cannot store (its disk, its lock) from one that was asked something wrong."""
    original = getattr(error, "orig", error)
    code = getattr(original, "sqlite_errorcode", None)
    return isinstance(original, sqlite3.Error) and code is not None and code & 0xFF in _STORAGE_ERRORS


def _resolve(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        good, value = job.outcome
        if good:
            job.future.set_result(value)
        else:
            job.future.set_exception(value)


def _cause(error: BaseException) -> str:
    original = getattr(error, "orig", None)
    return str(original if original is not None else error)


def _engine(path: Path, busy_timeout: float) -> sa.Engine:
    engine = sa.create_engine(
        f"sqlite:///{path}",
        poolclass=NullPool,
        connect_args={"check_same_thread": False, "timeout": busy_timeout},
    )

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if threading.current_thread().name.endswith("-write") else "BEGIN")

    return engine
