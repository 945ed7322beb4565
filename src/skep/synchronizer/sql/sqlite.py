"""The statements for SQLite: one file in write-ahead mode, shared by the processes of one machine."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from skep.domain.errors import Misconfigured
from skep.synchronizer.base import Changes, CursorTooOld, Epoch, Key, Record, Snapshot, Write
from skep.synchronizer.sql.server import SqlPosition, SqlServer, Wiped, new_mark, records_of
from skep.synchronizer.sql.tables import FORMAT, RecordTables, is_ours

BUSY_SECONDS = 5.0
"""How long a writer waits for another process's."""

POLL_SECONDS = 0.01
"""How often a reader looks whether another connection has committed: one number in shared memory."""

_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
"""Microseconds since the epoch."""


class FileReplaced(Exception):
    """Another file is where the database was opened: what we are connected to is nobody's."""


class SqliteConnection(sqlite3.Connection):
    """A connection that knows which file it has open."""

    path: Path
    inode: int

    def check(self) -> None:
        """Raise FileReplaced when the file was deleted or another one put in its place.

        SQLite itself would go on with the old one, apart from everybody who connects later.
        """
        if _inode(self.path) != self.inode:
            raise FileReplaced(f"{self.path} is another file now")


class SqliteRecords(SqlServer[SqliteConnection]):
    """One cloud's records in a SQLite file."""

    def __init__(self, url: sa.URL, name: str) -> None:
        self._path = Path(url.database or "")
        self._tables = RecordTables(name)
        self._dialect = url.get_dialect()()
        self._life, self._commits, self._records = f"{name}_life", f"{name}_commits", f"{name}_records"

    def connect(self) -> SqliteConnection:
        """Return a connection that begins transactions only where it is told to."""
        # Between opening and looking the file may be replaced; the inode read before is then the older one.
        self._path.touch()
        inode = _inode(self._path)
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=SqliteConnection
        )
        connection.path, connection.inode = self._path, inode
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def abort(self, connection: SqliteConnection) -> None:
        """Interrupt what runs on it."""
        connection.interrupt()

    def close(self, connection: SqliteConnection) -> None:
        """Close a connection."""
        connection.close()

    def is_away(self, error: Exception) -> bool:
        """Busy, full, unreadable, replaced; everything but a wrong statement."""
        return isinstance(error, FileReplaced | OSError) or (
            isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.ProgrammingError)
        )

    def is_wiped(self, error: Exception) -> bool:
        """A table is gone, or the file."""
        gone = isinstance(error, sqlite3.OperationalError) and "no such table" in str(error)
        return gone or isinstance(error, FileReplaced)

    def prepare(self, connection: SqliteConnection, epoch: Epoch) -> None:
        """Make what is not there."""
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if self._is_prepared(connection):
                return
            for statement in self._tables.ddl(self._dialect):
                connection.execute(statement)
            for table in (self._records, self._commits):
                connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {self._commits} (clock, mark) VALUES (0, ?)", (new_mark(),))
            connection.execute(
                f"INSERT INTO {self._life} (one, format, epoch, clock) VALUES (1, ?, ?, 0)", (FORMAT, epoch)
            )

    def epoch(self, connection: SqliteConnection) -> Epoch:
        """Return the current epoch."""
        with _transaction(connection, "BEGIN"):
            return Epoch(self._position(connection).epoch)

    def begin_epoch(self, connection: SqliteConnection, expected: Epoch, epoch: Epoch) -> Epoch:
        """Empty everything, unless somebody else did."""
        with _transaction(connection, "BEGIN IMMEDIATE"):
            current = Epoch(self._position(connection).epoch)
            if current != expected:
                return current
            for table in (self._records, self._commits):
                connection.execute(f"DELETE FROM {table}")
            connection.execute(f"UPDATE {self._life} SET epoch = ?", (epoch,))
            self._tick(connection)
        return epoch

    def snapshot(self, connection: SqliteConnection) -> Snapshot:
        """Read the clock and all records as of one moment."""
        with _transaction(connection, "BEGIN"):
            position = self._position(connection)
            rows = connection.execute(
                f"SELECT namespace, name, generation, body FROM {self._records} WHERE removed_at IS NULL"
            ).fetchall()
        return Snapshot(epoch=Epoch(position.epoch), records=records_of(rows), cursor=position.cursor())

    def changes(self, connection: SqliteConnection, position: SqlPosition) -> Changes | CursorTooOld:
        """Read the clock, the cursor's mark and the changed records as of one moment."""
        with _transaction(connection, "BEGIN"):
            latest = self._position(connection)
            known = connection.execute(
                f"SELECT mark FROM {self._commits} WHERE clock = ?", (position.clock,)
            ).fetchone()
            if latest.epoch != position.epoch or known != (position.mark,):
                return CursorTooOld()
            rows = connection.execute(
                f"SELECT namespace, name, generation, body FROM {self._records} WHERE changed > ?", (position.clock,)
            ).fetchall()
        return Changes(records=records_of(rows), cursor=latest.cursor())

    def publish(
        self, connection: SqliteConnection, writes: Sequence[Write], epoch: Epoch | None
    ) -> frozenset[Key] | None:
        """Raise the clock, write what is as expected."""
        with _transaction(connection, "BEGIN IMMEDIATE"):
            if epoch is not None and self._position(connection).epoch != epoch:
                return None
            clock = self._tick(connection)
            return frozenset(write.key for write in writes if self._write(connection, clock, write))

    def held(self, connection: SqliteConnection, keys: Sequence[Key]) -> dict[Key, Record]:
        """Read records by key."""
        with _transaction(connection, "BEGIN"):
            rows = [row for key in keys if (row := self._held(connection, key))]
        return {record.key: record for record in records_of(rows)}

    def trim(self, connection: SqliteConnection, *, keep_commits: int, keep_removed: float) -> int:
        """Forget; a reader that has not read of a forgotten record's removal must begin anew."""
        old = f"removed_at < {_NOW} - {int(keep_removed * 1_000_000)}"
        with _transaction(connection, "BEGIN IMMEDIATE"):
            position = self._position(connection)
            (last,) = connection.execute(f"SELECT max(changed) FROM {self._records} WHERE {old}").fetchone()
            removed = connection.execute(f"DELETE FROM {self._records} WHERE {old}").rowcount
            oldest = max(last or 0, position.clock - keep_commits)
            return removed + connection.execute(f"DELETE FROM {self._commits} WHERE clock < ?", (oldest,)).rowcount

    def watch(self, connection: SqliteConnection, wake: Callable[[], None], stopping: threading.Event) -> None:
        """Wake when another connection has committed; this one never does, so it sees all."""
        seen = None
        while not stopping.wait(POLL_SECONDS):
            connection.check()
            version = connection.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                wake()

    def _is_prepared(self, connection: SqliteConnection) -> bool:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({self._life})")]
        if not columns:
            return False
        if "format" not in columns:
            raise Misconfigured(f"synchronizer.name: {self._life} is a table of another program")
        row = connection.execute(f"SELECT format FROM {self._life}").fetchone()
        return is_ours(row)

    def _position(self, connection: SqliteConnection) -> SqlPosition:
        row = connection.execute(
            f"SELECT epoch, clock, mark FROM {self._life} JOIN {self._commits} USING (clock)"
        ).fetchone()
        if row is None:
            raise Wiped("there is no clock")
        return SqlPosition(*row)

    def _tick(self, connection: SqliteConnection) -> int:
        row = connection.execute(f"UPDATE {self._life} SET clock = clock + 1 RETURNING clock").fetchall()
        if not row:
            raise Wiped("there is no clock")
        clock: int = row[0][0]
        connection.execute(f"INSERT INTO {self._commits} (clock, mark) VALUES (?, ?)", (clock, new_mark()))
        return clock

    def _write(self, connection: SqliteConnection, clock: int, write: Write) -> bool:
        removed_at = "NULL" if write.body else _NOW
        if write.expected:
            changed = connection.execute(
                f"UPDATE {self._records} SET generation = ?, changed = ?, removed_at = {removed_at}, body = ?"
                " WHERE namespace = ? AND name = ? AND generation = ?",
                (write.expected + 1, clock, write.body, write.key.namespace, write.key.name, write.expected),
            )
        else:
            changed = connection.execute(
                f"INSERT INTO {self._records} (generation, changed, removed_at, body, namespace, name)"
                f" VALUES (1, ?, {removed_at}, ?, ?, ?) ON CONFLICT DO NOTHING",
                (clock, write.body, write.key.namespace, write.key.name),
            )
        return changed.rowcount == 1

    def _held(self, connection: SqliteConnection, key: Key) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = connection.execute(
            f"SELECT namespace, name, generation, body FROM {self._records} WHERE namespace = ? AND name = ?",
            (key.namespace, key.name),
        ).fetchone()
        return row


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def _transaction(connection: SqliteConnection, begin: str) -> Iterator[None]:
    """Run what is inside in a transaction, on the file that everybody else has open too."""
    connection.check()
    connection.execute(begin)
    try:
        yield
    except BaseException:
        # A full disk has rolled back by itself.
        if connection.in_transaction:
            connection.rollback()
        raise
    connection.execute("COMMIT")
