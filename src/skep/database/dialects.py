"""What SQLite and PostgreSQL want differently: how to connect, how a writing transaction begins, which errors mean that
the database itself cannot, and whether a COMMIT came true whose answer was lost.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.pool import NullPool

from skep.database import passfile
from skep.database.compiled import STATEMENTS

WRITER_SUFFIX = "-write"
"""The name of a thread that writes ends so."""

_SQLITE_STORAGE_ERRORS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_INTERRUPT,
    }
)
_POSTGRESQL_STORAGE_STATES = ("08", "25006", "25P03", "28", "3D", "40", "53", "55", "57", "58", "XX")
"""How SQLSTATEs begin that mean: connection lost, read-only, transaction idle for too long, not let in, no such
database, rolled back to resolve a conflict, out of resources, lock not to be had, stopped, input or output failed,
internal error (PostgreSQL manual, appendix A)."""

OUTCOME_SECONDS = 10.0
"""How long the end of a transaction is waited for whose COMMIT got no answer."""

LOCK = 0x736B6570
"""Key of the advisory lock that makes one writing transaction at a time of a PostgreSQL database: "skep"."""


class Dialect(Protocol):
    """One kind of database."""

    @property
    def savepoints_first(self) -> bool:
        """Whether each unit of a batch gets its savepoint at once; else only when one of the batch has failed."""

    def engine(self) -> sa.Engine:
        """Return an engine whose connections are set up."""

    def begin_write(self, connection: sa.Connection) -> str:
        """Make the transaction that has begun the only writing one; return what names it, if anything does."""

    def came_true(self, connection: sa.Connection, name: str) -> bool | None:
        """Tell whether the transaction of this name was committed; asked when its answer was lost."""

    def cut_off(self, connection: Any) -> None:
        """Have whatever runs over a connection of the driver fail at once. Called by another thread than its user's."""

    def hung_up(self, connection: Any) -> bool:
        """Tell whether the server has ended a connection of the driver on which nothing runs now."""

    def is_storage(self, error: Exception) -> bool:
        """Tell a database that cannot (its disk, its lock, its connection) from one that was asked something wrong."""


class Sqlite:
    """A file. One process writes at a time; a COMMIT has failed when it says so."""

    savepoints_first = True

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout

    def engine(self) -> sa.Engine:
        """Return an engine with full durability; only writers take the file's lock when they begin."""
        engine = sa.create_engine(
            f"sqlite:///{self._path}",
            poolclass=NullPool,
            connect_args={"check_same_thread": False, "timeout": self._busy_timeout},
            execution_options={"compiled_cache": STATEMENTS},
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
            writes = threading.current_thread().name.endswith(WRITER_SUFFIX)
            # The driver itself: through SQLAlchemy this one word costs as much as a short read.
            driver: Any = connection.connection.driver_connection
            driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    def begin_write(self, connection: sa.Connection) -> str:  # noqa: ARG002 - BEGIN IMMEDIATE has done it
        """Do nothing: the lock of the file is held."""
        return ""

    def came_true(self, connection: sa.Connection, name: str) -> bool | None:  # noqa: ARG002 - see the class
        """Return False: a COMMIT that did not succeed stored nothing."""
        return False

    def cut_off(self, connection: Any) -> None:
        """Interrupt the statement: it ends with SQLITE_INTERRUPT. Waiting for a lock ends by itself."""
        connection.interrupt()

    def hung_up(self, connection: Any) -> bool:  # noqa: ARG002 - see below
        """Return False: nobody is at the other end of a file."""
        return False

    def is_storage(self, error: Exception) -> bool:
        """Tell by SQLite's result code."""
        return sqlite_code(error) in _SQLITE_STORAGE_ERRORS


def sqlite_code(error: Exception) -> int | None:
    """Return SQLite's primary result code of an error, of the driver or of SQLAlchemy; None: it has none."""
    original = getattr(error, "orig", error)
    code: int | None = getattr(original, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(original, sqlite3.Error) and code is not None else None


class Postgresql:
    """A server. Units of all processes are serial, as they are with SQLite: an advisory lock lets one transaction write
    at a time, and each carries many units. Whoever holds it and falls silent is cut off by the server.
    """

    savepoints_first = False

    def __init__(self, url: sa.URL, busy_timeout: float) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self._milliseconds = max(1, round(busy_timeout * 1000))

    def engine(self) -> sa.Engine:
        """Return an engine whose connections give up in time, whatever happens to the server or on the way to it."""
        limits = {
            "statement_timeout": self._milliseconds,
            "lock_timeout": self._milliseconds,
            "idle_in_transaction_session_timeout": self._milliseconds,
        }
        engine = sa.create_engine(
            self._url,
            poolclass=NullPool,
            connect_args={
                "application_name": "skep",
                "client_encoding": "utf8",
                "connect_timeout": 3,
                "keepalives_idle": 2,
                "keepalives_interval": 1,
                "keepalives_count": 3,
                "tcp_user_timeout": self._milliseconds,
                "options": " ".join(f"-c {name}={value}" for name, value in limits.items())
                + " -c synchronous_commit=on -c timezone=UTC",
            },
            execution_options={"compiled_cache": STATEMENTS},
        )

        @event.listens_for(engine, "connect")
        def _on_connect(connection: psycopg.Connection[Any], _record: Any) -> None:
            if not threading.current_thread().name.endswith(WRITER_SUFFIX):
                # Said with BEGIN then: a statement of its own would cost each read a round trip.
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

        return passfile.follow(engine)

    def begin_write(self, connection: sa.Connection) -> str:
        """Take the lock, which ends with the transaction; return the transaction's id."""
        statement = f"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock({LOCK})"
        return str(connection.exec_driver_sql(statement).one()[0])

    def came_true(self, connection: sa.Connection, name: str) -> bool | None:
        """Ask the server, again while the transaction is in progress there: its client is gone, so it will end."""
        deadline = time.monotonic() + OUTCOME_SECONDS
        while True:
            asked = connection.exec_driver_sql("SELECT pg_xact_status(%s::xid8)", (name,))
            known: str | None = asked.scalar()
            if known != "in progress" or time.monotonic() > deadline:
                return None if known in (None, "in progress") else known == "committed"
            time.sleep(0.05)

    def cut_off(self, connection: Any) -> None:
        """End both directions of the socket. Its number stays, so nothing else gets it while libpq still holds it."""
        with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def hung_up(self, connection: Any) -> bool:
        """Look at the socket: between two transactions nothing comes there but the end, or the reason for it."""
        line = select.poll()
        try:
            line.register(connection.fileno(), select.POLLIN)
            return bool(line.poll(0))
        except (psycopg.Error, OSError):
            return True

    def is_storage(self, error: Exception) -> bool:
        """Tell by the class of the SQLSTATE; without one the connection is lost."""
        original = getattr(error, "orig", error)
        if not isinstance(original, psycopg.Error):
            return False
        if original.sqlstate is None:
            return isinstance(original, psycopg.OperationalError | psycopg.InterfaceError)
        return original.sqlstate.startswith(_POSTGRESQL_STORAGE_STATES)


def dialect_of(location: Path | str, busy_timeout: float) -> Dialect:
    """Return the kind of database that a file or a SQLAlchemy URL names. Raises ValueError for another kind."""
    if isinstance(location, Path):
        return Sqlite(location, busy_timeout)
    try:
        url = sa.make_url(location)
    except exc.ArgumentError as error:
        raise ValueError("no SQLAlchemy URL, such as postgresql://USER@HOST/NAME or sqlite:///FILE") from error
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database:
        return Sqlite(Path(url.database), busy_timeout)
    if backend == "postgresql":
        return Postgresql(url, busy_timeout)
    raise ValueError(f"{backend}: databases are kept in SQLite files or in PostgreSQL")
