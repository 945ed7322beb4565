"""One database: units of work in, results out, many units to a commit.

A *unit* is a plain function of an open connection. Reading units run in a small pool of threads. Writing units run in
one thread that takes all that wait and answers them after their common COMMIT: one statement through an async driver
costs more CPU than ten that run together. A unit that raises undoes its own changes only. A unit may be run again from
its beginning before it is committed, so it changes nothing but the database.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from skep.database.dialects import dialect_of
from skep.database.writer import CommitHook, Unit, Writer, cause
from skep.domain.errors import StorageUnavailable

T = TypeVar("T")

__all__ = ["CommitHook", "Database", "Unit"]


class Database:
    """A SQLite file or a PostgreSQL database. Opened once per process; every service of the process shares it."""

    def __init__(self, location: Path | str, *, name: str = "", readers: int = 2, busy_timeout: float = 5.0) -> None:
        """Take a file or a SQLAlchemy URL. `busy_timeout`: seconds after which a lock or an answer is given up.

        `name` is what messages call it; by default the file's or the database's own. Raises ValueError for a URL of
        another kind of database.
        """
        self.location = location
        self.name = name or _name_of(location)
        self.busy_timeout = busy_timeout
        self._dialect = dialect_of(location, busy_timeout)
        self.engine = self._dialect.engine()
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix=f"{self.name}-read")
        self._reading = threading.local()
        self._read_connections: list[sa.Connection] = []
        self._writer = Writer(self.name, self.engine, self._dialect)

    @property
    def commit_hook(self) -> CommitHook | None:
        """Told of commits; tests end the process there."""
        return self._writer.commit_hook

    @commit_hook.setter
    def commit_hook(self, hook: CommitHook | None) -> None:
        self._writer.commit_hook = hook

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
        """Finish what was submitted and disconnect."""
        await asyncio.to_thread(self._writer.stop)
        self._readers.shutdown()
        for connection in self._read_connections:
            connection.close()
        self.engine.dispose()

    def _read(self, unit: Unit[T]) -> T:
        try:
            connection: sa.Connection | None = getattr(self._reading, "connection", None)
            if connection is None:
                connection = self.engine.connect()
                self._reading.connection = connection
                self._read_connections.append(connection)
            with connection.begin():
                return unit(connection)
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


def _name_of(location: Path | str) -> str:
    if isinstance(location, Path):
        return location.stem
    database = sa.make_url(location).database or ""
    return Path(database).stem
