"""The thread that writes: takes all units that wait, commits them together, answers each."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy import exc

from skep.database import once
from skep.database.dialects import WRITER_SUFFIX, Dialect
from skep.domain.errors import OutcomeUnknown, Overloaded, StorageUnavailable

T = TypeVar("T")
Unit = Callable[[sa.Connection], T]
CommitHook = Callable[[Literal["before", "after"], Unit[Any], contextvars.Context], None]
"""Told of each unit just before its COMMIT, and just after it while its caller has no answer yet; in the writing
thread, with the context that the unit was submitted in."""

MAX_WAITING = 20_000
"""Write units that may wait; beyond it `submit` raises Overloaded."""
MAX_BATCH = 200
"""Write units in one transaction, so that no answer waits for a long one."""

log = structlog.get_logger("skep.database")


class _Job(Generic[T]):
    __slots__ = ("context", "future", "loop", "outcome", "unit")

    def __init__(self, unit: Unit[T], loop: asyncio.AbstractEventLoop) -> None:
        self.unit = unit
        self.loop = loop
        self.future: asyncio.Future[T] = loop.create_future()
        self.outcome: tuple[bool, Any] = (False, None)
        self.context: contextvars.Context | None = None


class _UnitFailed(Exception):
    """A unit of a batch without savepoints raised: the batch runs again with them."""


class _CommitUnknown(exc.SQLAlchemyError):
    """A COMMIT without an answer that could not be asked about either."""


class Writer:
    """Serves one database of one process."""

    def __init__(self, name: str, engine: sa.Engine, dialect: Dialect) -> None:
        self.commit_hook: CommitHook | None = None
        self._name = name
        self._engine = engine
        self._dialect = dialect
        self._intake: collections.deque[_Job[Any]] = collections.deque()
        self._work: collections.deque[_Job[Any]] = collections.deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._given_up = False
        self._since: tuple[float, Any] | None = None
        self._thread = threading.Thread(target=self._run, name=f"{name}{WRITER_SUFFIX}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Units that have not begun."""
        return len(self._intake) + len(self._work)

    def submit(self, unit: Unit[T], intake: bool) -> asyncio.Future[T]:
        """Have a unit run; units with `intake` go before the others.

        Raises StorageUnavailable once stopped, Overloaded when too many wait.
        """
        if self._stopping:
            raise StorageUnavailable(f"database {self._name} is closed")
        if self.waiting >= MAX_WAITING:
            raise Overloaded(f"database {self._name} has {self.waiting} writes waiting")
        job = _Job(unit, asyncio.get_running_loop())
        if self.commit_hook is not None:
            job.context = contextvars.copy_context()
        with self._wake:
            (self._intake if intake else self._work).append(job)
            self._wake.notify()
        return job.future

    @property
    def under_way(self) -> list[tuple[float, Any]]:
        """The transaction under way, if any: since when (monotonic seconds), over which connection of the driver."""
        since = self._since
        return [] if since is None else [since]

    def give_up(self) -> None:
        """Do nothing more of what waits: it is answered with StorageUnavailable."""
        self._given_up = True

    def stop(self) -> None:
        """Finish what was submitted; end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        connection: sa.Connection | None = None
        while (batch := self._next_batch()) is not None:
            if not batch:
                continue
            try:
                if self._given_up:
                    raise exc.InvalidRequestError("the database is closed")
                if connection is not None and self._dialect.hung_up(connection.connection.driver_connection):
                    connection.invalidate()
                    connection.close()
                    connection = None
                if connection is None:
                    connection = self._engine.connect()
                self._since = (time.monotonic(), connection.connection.driver_connection)
                self._commit(connection, batch)
                self._tell("after", batch)
            except (exc.SQLAlchemyError, sqlite3.Error) as error:
                connection = self._fail(connection, batch, error)
            finally:
                self._since = None
            self._answer(batch)
        if connection is not None:
            connection.close()

    def _next_batch(self) -> list[_Job[Any]] | None:
        """Wait for units and return some, without those that nobody waits for any more; None: we stop."""
        with self._wake:
            while not (self._intake or self._work or self._stopping):
                self._wake.wait()
            if not (self._intake or self._work):
                return None
            batch: list[_Job[Any]] = []
            for queue in (self._intake, self._work):
                while queue and len(batch) < MAX_BATCH:
                    job = queue.popleft()
                    if not job.future.cancelled():
                        batch.append(job)
            return batch

    def _commit(self, connection: sa.Connection, batch: list[_Job[Any]]) -> None:
        savepoints = self._dialect.savepoints_first
        try:
            self._transaction(connection, batch, savepoints=savepoints)
        except _UnitFailed:
            self._transaction(connection, batch, savepoints=True)

    def _transaction(self, connection: sa.Connection, batch: list[_Job[Any]], *, savepoints: bool) -> None:
        transaction = connection.begin()
        name = ""
        try:
            name = self._dialect.begin_write(connection)
            with once.shared(connection):
                for job in batch:
                    job.outcome = self._run_unit(connection, job.unit, savepoint=savepoints)
            self._tell("before", batch)
        except BaseException:
            # A full disk has rolled back by itself, so this may fail too; the first error is the one that tells.
            with contextlib.suppress(exc.SQLAlchemyError, sqlite3.Error):
                transaction.rollback()
            raise
        try:
            transaction.commit()
        except BaseException as error:
            with contextlib.suppress(exc.SQLAlchemyError, sqlite3.Error):
                transaction.rollback()
            if not (isinstance(error, exc.SQLAlchemyError) and name):
                raise
            true = self._came_true(name)
            if true is None:
                raise _CommitUnknown(cause(error)) from error
            if not true:
                raise

    def _came_true(self, name: str) -> bool | None:
        """Ask, over another connection, about a COMMIT without an answer; None where that cannot be found out."""
        try:
            with self._engine.connect() as connection:
                return self._dialect.came_true(connection, name)
        except exc.SQLAlchemyError as error:
            log.warning("outcome of a commit unknown", database=self._name, error=cause(error))
            return None

    def _run_unit(self, connection: sa.Connection, unit: Unit[T], *, savepoint: bool) -> tuple[bool, Any]:
        """Run a unit, under its own savepoint if there are any; what it raises is its outcome, unless storing fails."""
        if not savepoint:
            try:
                return True, unit(connection)
            except Exception as error:
                if self._dialect.is_storage(error):
                    raise
                raise _UnitFailed from error
        # Not SQLAlchemy's nested transaction, which costs three times as much as these two statements.
        connection.exec_driver_sql("SAVEPOINT unit")
        try:
            value = unit(connection)
        except Exception as error:
            if self._dialect.is_storage(error):
                raise
            once.forget()
            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT unit")
            connection.exec_driver_sql("RELEASE SAVEPOINT unit")
            return False, error
        connection.exec_driver_sql("RELEASE SAVEPOINT unit")
        return True, value

    def _tell(self, moment: Literal["before", "after"], batch: list[_Job[Any]]) -> None:
        hook = self.commit_hook
        if hook is None:
            return
        for job in batch:
            if job.context is not None:
                hook(moment, job.unit, job.context)

    def _fail(self, connection: sa.Connection | None, batch: list[_Job[Any]], error: Exception) -> sa.Connection | None:
        """Answer the whole batch with the reason: a failed transaction stored nothing of it, or nobody knows."""
        log.warning("database did not store", database=self._name, error=cause(error), units=len(batch))
        reason = f"database {self._name} cannot store: {cause(error)}"
        if isinstance(error, _CommitUnknown):
            reason = f"database {self._name} did not confirm a commit: {cause(error)}"
        kind = OutcomeUnknown if isinstance(error, _CommitUnknown) else StorageUnavailable
        for job in batch:
            job.outcome = (False, kind(reason))
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


def _resolve(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        good, value = job.outcome
        if good:
            job.future.set_result(value)
        else:
            job.future.set_exception(value)


def cause(error: BaseException) -> str:
    """Return what the driver said, on one line."""
    original = getattr(error, "orig", None)
    return " ".join(str(original if original is not None else error).split())
