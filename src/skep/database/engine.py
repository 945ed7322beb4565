"""One database: units of work in, results out, many units to a commit.

A *unit* is a plain function of an open connection. Reading units run in a small pool of threads, and short ones of a
SQLite file where they are asked for (`short_reads`). Writing units run in one thread that takes all that wait and
answers them after their common COMMIT: one statement through an async driver costs more CPU than ten that run together.
A unit that raises undoes its own changes only. A unit may be run again from its beginning, so it changes nothing but
the database.

A database may hang, too. Who must not hang with it says how long to wait (`within`); after one silence everybody who
does is refused at once until the database has answered a probe (`circuit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from skep.database.circuit import Circuit
from skep.database.dialects import Sqlite, dialect_of
from skep.database.readers import Readers
from skep.database.short_reads import NotAtOnce, ShortReads
from skep.database.writer import CommitHook, Unit, Writer, cause
from skep.domain.errors import StorageUnavailable

T = TypeVar("T")

__all__ = ["CommitHook", "Database", "Unit"]

CLOSE_SECONDS = 10.0
"""How long the end of what is under way is waited for when a database is closed; then its connections are cut."""


class _UnderWay(NamedTuple):
    """A read."""

    since: float
    """Monotonic seconds."""
    driver: Any
    """The driver's connection."""
    is_bounded: bool
    """Whether its caller waits for so long and no longer."""


class Database:
    """A SQLite file or a PostgreSQL database. Opened once per process; every service of the process shares it."""

    commit_hook_of_new: ClassVar[CommitHook | None] = None
    """`commit_hook` of every database that is made from now on: a process opens some long after its start."""

    def __init__(
        self,
        location: Path | str,
        *,
        name: str = "",
        readers: int = 2,
        busy_timeout: float = 5.0,
        short_reads: bool = False,
    ) -> None:
        """Take a file or a SQLAlchemy URL. `busy_timeout`: seconds after which a lock or an answer is given up.

        `name` is what messages call it; by default the file's or the database's own. `short_reads`: of a file, the
        thread that asks runs them itself; its units wait for nothing else. Raises ValueError for a URL of another kind
        of database.
        """
        self.location = location
        self.name = name or _name_of(location)
        self.busy_timeout = busy_timeout
        self.read_within = math.inf
        """How many seconds a reader who does not say so waits."""
        self._dialect = dialect_of(location, busy_timeout)
        self.engine = self._dialect.engine()
        self._short_reads: ShortReads | None = None
        if short_reads and isinstance(self._dialect, Sqlite):
            self._short_reads = ShortReads(self.engine, self._dialect)
        self._readers = Readers(self.name, readers)
        self._probes = Readers(f"{self.name}-probe", 1)
        """Asks whether the database answers; that all readers are busy says nothing of it."""
        self._reading = threading.local()
        self._read_connections: list[sa.Connection] = []
        self._reads: dict[int, _UnderWay] = {}
        """By thread."""
        self._writer = Writer(self.name, self.engine, self._dialect)
        self._writer.commit_hook = type(self).commit_hook_of_new
        self._patience = busy_timeout + 1.0
        self.reading = Circuit(
            self.name,
            lambda: self._probes.submit(partial(self._read, probe)),
            patience=self._patience,
            cut_off=partial(self._cut_off, busy_timeout),
        )
        self.writing = Circuit(
            self.name, lambda: self.write(probe), patience=self._patience, cut_off=partial(self._cut_off, busy_timeout)
        )

    @property
    def commit_hook(self) -> CommitHook | None:
        """Told of commits; tests end the process there."""
        return self._writer.commit_hook

    @commit_hook.setter
    def commit_hook(self, hook: CommitHook | None) -> None:
        self._writer.commit_hook = hook

    @property
    def answers(self) -> bool:
        """Whether the latest that those with no time to lose heard of the database was an answer."""
        return self.reading.answers and self.writing.answers

    async def read(self, unit: Unit[T], *, within: float | None = None) -> T:
        """Run a unit that only reads, on a consistent view.

        Raises StorageUnavailable when the database cannot be read now, or not `within` so many seconds (`read_within`
        if nothing is said; infinite: as long as it takes).
        """
        if self._short_reads is not None and self.reading.answers:
            # As far as a thread would: others have their turn, and a caller that was cancelled hears of it.
            await asyncio.sleep(0)
            with contextlib.suppress(NotAtOnce):
                return self._short_reads.run(unit)
        seconds = self.read_within if within is None else within
        if seconds != math.inf:
            try:
                return await self.reading.through(lambda: self._readers.submit(partial(self._read, unit)), seconds)
            except StorageUnavailable:
                self._free_threads()
                raise
        return await self._readers.submit(partial(self._read, unit, is_bounded=False))

    async def read_as_it_is(self, unit: Unit[T], *, within: float) -> T:
        """Run a unit that only reads, in a database whose tables may be those of another release.

        Raises StorageUnavailable as `read` does, and where the database does not answer as the unit expects.
        """
        try:
            return await self.read(unit, within=within)
        except exc.DBAPIError as error:
            raise StorageUnavailable(f"it cannot be read: {error.orig}") from error

    async def write(self, unit: Unit[T], *, intake: bool = False, within: float | None = None) -> T:
        """Run a unit in a transaction shared with others and return its result once it is committed.

        What the unit raises is raised here and only its own changes are undone. Units with `intake` (a user waits)
        go before the others. A caller that is cancelled while its unit waits takes the unit with it.

        Raises StorageUnavailable when nothing can be stored now, or nothing is known of it `within` so many seconds
        (what had begun may be stored later all the same), Overloaded when too many units wait.
        """
        if within is not None:
            return await self.writing.through(lambda: self._writer.submit(unit, intake), within)
        return await self._writer.submit(unit, intake)

    @property
    def waiting(self) -> int:
        """Write units that have not begun."""
        return self._writer.waiting

    async def close(self) -> None:
        """Finish what was submitted and disconnect; a database that hangs is cut off after a while."""
        await self.reading.close()
        await self.writing.close()
        ending = asyncio.ensure_future(asyncio.to_thread(self._end_threads))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(ending)
        while not ending.done():
            self._writer.give_up()
            self._cut_off(0.0)
            await asyncio.wait({ending}, timeout=0.2)
        await ending
        if self._short_reads is not None:
            self._short_reads.disconnect()
        for connection in self._read_connections:
            connection.close()
        self.engine.dispose()

    def _end_threads(self) -> None:
        self._writer.stop()
        self._readers.stop()
        self._probes.stop()

    def _cut_off(self, seconds: float) -> None:
        """End the connections over which something has been under way for so long: whoever waits gets an error."""
        before = time.monotonic() - seconds
        under_way = [(one.since, one.driver) for one in [*self._reads.values()]]
        for since, driver in [*under_way, *self._writer.under_way]:
            if since <= before:
                self._dialect.cut_off(driver)

    def _free_threads(self) -> None:
        """End reads that hang and that nobody waits for any more, or waits for without an end; find out whether the
        writer hangs, who may not be waited for with an end either.

        The database may answer others meanwhile: a probe of reading has a thread and a connection of its own, and
        notices none of them.
        """
        now = time.monotonic()
        for thread, one in [*self._reads.items()]:
            age = now - one.since
            if (age >= self.busy_timeout and self._readers.is_left(thread)) or (
                age >= self._patience and not one.is_bounded
            ):
                self._dialect.cut_off(one.driver)
        if self.reading.is_open:
            self.writing.doubt()

    def _read(self, unit: Unit[T], *, is_bounded: bool = True) -> T:
        try:
            connection: sa.Connection | None = getattr(self._reading, "connection", None)
            if connection is not None and self._dialect.hung_up(self._reading.driver):
                self._disconnect_reader()
                connection = None
            if connection is None:
                connection = self.engine.connect()
                self._reading.connection = connection
                self._reading.driver = connection.connection.driver_connection
                self._read_connections.append(connection)
            self._reads[threading.get_ident()] = _UnderWay(time.monotonic(), self._reading.driver, is_bounded)
            try:
                with connection.begin():
                    value = unit(connection)
                if self._short_reads is not None:
                    # This one has been read, whatever the next may find.
                    with contextlib.suppress(exc.DBAPIError):
                        self._short_reads.connect()
                return value
            finally:
                del self._reads[threading.get_ident()]
        except (exc.DBAPIError, sqlite3.Error) as error:
            if not self._dialect.is_storage(error):
                raise
            self._disconnect_reader()
            raise StorageUnavailable(f"database {self.name} cannot be read: {cause(error)}") from error

    def _disconnect_reader(self) -> None:
        """Let this thread connect anew the next time."""
        connection: sa.Connection | None = getattr(self._reading, "connection", None)
        if connection is not None:
            self._reading.connection = None
            self._read_connections.remove(connection)
            connection.invalidate()
            connection.close()


def probe(connection: sa.Connection) -> None:
    """Ask a database for an answer, and for nothing else."""
    connection.exec_driver_sql("SELECT 1")


def _name_of(location: Path | str) -> str:
    if isinstance(location, Path):
        return location.stem
    database = sa.make_url(location).database or ""
    return Path(database).stem
