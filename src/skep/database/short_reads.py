"""Short reads of a SQLite file, run where they are asked for: in the thread of the loop.

A thread of its own needs the interpreter for each row that it reads and gives it back in between. On several cores the
interpreter goes from core to core with that, and a short read costs several times its own work
([decision 1101](../../../docs/decisions/1101-short-reads-in-the-loop.md)). What is long is left to the threads.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from operator import length_hint
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from skep.database.dialects import Sqlite, sqlite_code

T = TypeVar("T")

STEPS = 1_000
"""Of SQLite's virtual machine between two looks at how many they are."""
MOST_STEPS = 30_000
"""For one unit: a millisecond or so, and as much again of Python for the rows that come of them."""
MOST_BYTES = 512 * 1024
"""Of texts and bytes that one unit is given: to decode so much takes a millisecond or two."""


class NotAtOnce(Exception):
    """A thread has to run the unit: it takes too long here, or the file cannot be read without waiting."""


class ShortReads:
    """Units that the thread of a loop runs itself; for files, locks and long units, others wait."""

    def __init__(self, engine: sa.Engine, dialect: Sqlite) -> None:
        self._engine = engine
        self._dialect = dialect
        self._connection: sa.Connection | None = None
        self._thread: int | None = None
        """The first that ran a unit: the only one that does."""
        self._looks = 0
        self._given = 0
        """Bytes, to the unit that runs."""
        self._connecting = threading.Lock()

    def run(self, unit: Callable[[sa.Connection], T]) -> T:
        """Run a unit on a consistent view. Raises NotAtOnce, and what the unit raises."""
        connection = self._connection
        if connection is None or (self._thread or threading.get_ident()) != threading.get_ident():
            raise NotAtOnce
        self._thread = threading.get_ident()
        self._looks = 0
        self._given = 0
        try:
            with connection.begin():
                return unit(connection)
        except (exc.DBAPIError, sqlite3.Error) as error:
            if not self._dialect.is_storage(error):
                raise
            if sqlite_code(error) != sqlite3.SQLITE_INTERRUPT:
                self.disconnect()
            raise NotAtOnce from error

    def connect(self) -> None:
        """Make ready for the next unit, in a thread that may wait. Raises what the database says."""
        with self._connecting:
            if self._connection is not None:
                return
            connection = self._engine.connect()
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA busy_timeout=0")
            driver.set_progress_handler(self._is_long, STEPS)
            driver.row_factory = self._counted
            self._connection = connection

    def disconnect(self) -> None:
        """Let go of the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _is_long(self) -> bool:
        self._looks += 1
        return self._looks * STEPS > MOST_STEPS

    def _counted(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row as it is. Raises NotAtOnce when too much has been read: large rows take few steps."""
        self._given += sum(map(length_hint, row))
        if self._given > MOST_BYTES:
            raise NotAtOnce
        return row
