"""The statements for PostgreSQL, through psycopg's blocking connection.

A publish is one statement, so one round trip. Its first part raises the clock and thereby waits for other publishers;
PostgreSQL then looks again at each record that it is about to write, in its latest version, so what another publisher
has committed meanwhile is refused although the statement began before that.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors

from skep.domain.errors import Misconfigured
from skep.synchronizer.base import Changes, CursorTooOld, Epoch, Key, Record, Snapshot, Write
from skep.synchronizer.sql.server import SqlPosition, SqlServer, Wiped, new_mark, records_of
from skep.synchronizer.sql.tables import FORMAT, RecordTables, is_ours

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_SECONDS = 3
POLL_SECONDS = 1.0
"""How long a notification may be lost before somebody looks."""

_CONNECT = {
    "connect_timeout": CONNECT_SECONDS,
    # The end of a connection whose other side is gone without a word.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SESSION = """
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '60s';
SET lock_timeout = '8s';
SET idle_in_transaction_session_timeout = '15s';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off
"""
"""`synchronous_commit`: an answered claim must not be lost. The timeouts: nobody waits for ever, whoever hangs. The
planner: everything but a snapshot is a few keys or the latest changes, but its statistics of a column that grows all
the time are old, so it would read the whole table to find the newest rows, and compile code for what it thinks that
costs (measured: changes seen after 360 ms instead of 4)."""

_PREPARE_LOCK = 0x536B6570
"""Advisory lock of those who make tables: two at once would meet in the catalogue."""


class PostgresRecords(SqlServer[Connection]):
    """One cloud's records in a PostgreSQL database."""

    def __init__(self, url: sa.URL, name: str) -> None:
        self._tables = RecordTables(name)
        self._dialect = url.get_dialect()()
        self._arguments = self._dialect.create_connect_args(url)
        self._channel = f"{name}_commits"
        self._sql = _Statements(name, self._channel)

    def connect(self) -> Connection:
        """Return a connection in autocommit: each statement is a transaction."""
        positional, named = self._arguments
        connection: Connection = psycopg.connect(*positional, **{**named, **_CONNECT}, autocommit=True)
        try:
            connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def abort(self, connection: Connection) -> None:
        """Cut the wire: whoever waits for an answer hears that there is none. `close` from here would not wake him."""
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    def close(self, connection: Connection) -> None:
        """Close a connection, whatever state it is in."""
        connection.close()

    def is_away(self, error: Exception) -> bool:
        """Anything that PostgreSQL or the wire may say while it starts, stops, fails over, or is full."""
        return isinstance(
            error,
            psycopg.OperationalError
            | psycopg.InterfaceError
            | psycopg.InternalError
            | errors.InsufficientPrivilege
            | OSError,
        )

    def is_wiped(self, error: Exception) -> bool:
        """A table is gone."""
        return isinstance(error, errors.UndefinedTable)

    def prepare(self, connection: Connection, epoch: Epoch) -> None:
        """Make what is not there, under a lock."""
        if self._is_prepared(connection):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_PREPARE_LOCK,))
            for statement in self._ddl():
                connection.execute(statement)
            for statement in self._sql.begin_if_empty:
                connection.execute(statement, {"format": FORMAT, "epoch": epoch, "mark": new_mark()})

    def epoch(self, connection: Connection) -> Epoch:
        """Return the current epoch."""
        return Epoch(_one(connection.execute(self._sql.life))[0])

    def begin_epoch(self, connection: Connection, expected: Epoch, epoch: Epoch) -> Epoch:
        """Hold the clock, and empty everything."""
        with connection.transaction():
            (current, _) = _one(connection.execute(self._sql.lock))
            if current != expected:
                return Epoch(current)
            for statement in self._sql.begin_epoch:
                connection.execute(statement, {"epoch": epoch, "mark": new_mark()})
        return epoch

    def snapshot(self, connection: Connection) -> Snapshot:
        """Read the clock and all records as of one moment."""
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET LOCAL enable_seqscan = on")
            position = SqlPosition(*_one(cursor.execute(self._sql.position)))
            rows = cursor.execute(self._sql.living).fetchall()
        return Snapshot(epoch=Epoch(position.epoch), records=records_of(rows), cursor=position.cursor())

    def changes(self, connection: Connection, position: SqlPosition) -> Changes | CursorTooOld:
        """Read the clock, the cursor's mark and the changed records in one statement."""
        with connection.cursor(binary=True) as cursor:
            rows = cursor.execute(self._sql.changes, {"clock": position.clock}).fetchall()
        if not rows:
            raise Wiped("there is no clock")
        epoch, clock, mark, known = rows[0][:4]
        if (epoch, known) != (position.epoch, position.mark):
            return CursorTooOld()
        changed = [row[4:] for row in rows if row[4] is not None]
        return Changes(records=records_of(changed), cursor=SqlPosition(epoch, clock, mark).cursor())

    def publish(self, connection: Connection, writes: Sequence[Write], epoch: Epoch | None) -> frozenset[Key] | None:
        """Raise the clock, write what is as expected, notify; one statement."""
        values = {
            "namespaces": [write.key.namespace for write in writes],
            "names": [write.key.name for write in writes],
            "expected": [write.expected for write in writes],
            "bodies": [write.body for write in writes],
            "mark": new_mark(),
            "epoch": epoch,
        }
        rows = connection.execute(self._sql.publish, values).fetchall()
        if not rows:
            if epoch is not None and self.epoch(connection) != epoch:
                return None
            raise Wiped("there is no clock")
        return frozenset(Key(namespace, name) for namespace, name in rows if namespace is not None)

    def held(self, connection: Connection, keys: Sequence[Key]) -> dict[Key, Record]:
        """Read records by key."""
        values = {"namespaces": [key.namespace for key in keys], "names": [key.name for key in keys]}
        with connection.cursor(binary=True) as cursor:
            rows = cursor.execute(self._sql.held, values).fetchall()
        return {record.key: record for record in records_of(rows)}

    def trim(self, connection: Connection, *, keep_commits: int, keep_removed: float) -> int:
        """Hold the clock, and forget."""
        values = {"keep_commits": keep_commits, "keep_removed": keep_removed}
        with connection.transaction():
            _one(connection.execute(self._sql.lock))
            return sum(connection.execute(statement, values).rowcount for statement in self._sql.trim)

    def watch(self, connection: Connection, wake: Callable[[], None], stopping: threading.Event) -> None:
        """Wake at notifications; look at the clock when there was none for a while, since they may get lost."""
        connection.execute(f'LISTEN "{self._channel}"')
        seen: tuple[Any, ...] = ()
        while not stopping.is_set():
            told = False
            for _ in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
                told = True
            if told:
                wake()
                continue
            life = _one(connection.execute(self._sql.life))
            if life != seen:
                seen = life
                wake()

    def _is_prepared(self, connection: Connection) -> bool:
        """Tell whether our tables are there.

        Raises Misconfigured for a database that cannot hold any name, or whose tables are not ours.
        """
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise Misconfigured(f"synchronizer.url: the database's encoding is {encoding}; expected UTF8")
        try:
            row = connection.execute(self._sql.format).fetchone()
        except errors.UndefinedTable:
            return False
        except errors.UndefinedColumn as error:
            raise Misconfigured(f"synchronizer.name: {self._tables.life.name} is a table of another program") from error
        return is_ours(row)

    def _ddl(self) -> list[str]:
        # Bodies are small or incompressible for what it costs.
        storage = f"ALTER TABLE {self._tables.records.name} ALTER COLUMN body SET STORAGE EXTERNAL"
        return [*self._tables.ddl(self._dialect), storage]


class _Statements:
    """All SQL, for one name of the tables (letters, digits and underscores only)."""

    def __init__(self, name: str, channel: str) -> None:
        life, commits, records = f"{name}_life", f"{name}_commits", f"{name}_records"
        self.format = f"SELECT format FROM {life}"
        self.life = f"SELECT epoch, clock FROM {life} WHERE one = 1"
        self.lock = f"SELECT epoch, clock FROM {life} WHERE one = 1 FOR UPDATE"
        mark = f"(SELECT mark FROM {commits} c WHERE c.clock = l.clock)"
        self.position = f"SELECT epoch, clock, {mark} FROM {life} l WHERE one = 1"
        self.living = f"SELECT namespace, name, generation, body FROM {records} WHERE removed_at IS NULL"
        self.changes = f"""
            SELECT l.epoch, l.clock, {mark}, (SELECT mark FROM {commits} c WHERE c.clock = %(clock)s::bigint),
                r.namespace, r.name, r.generation, r.body
            FROM {life} l LEFT JOIN {records} r ON r.changed > %(clock)s::bigint WHERE l.one = 1
            """
        self.held = f"""
            SELECT namespace, name, generation, body
            FROM unnest(%(namespaces)b::text[], %(names)b::text[]) AS w (namespace, name)
            JOIN {records} USING (namespace, name)
            """
        self.publish = _publish(life, commits, records, channel)
        empty = f"NOT EXISTS (SELECT FROM {life})"
        self.begin_if_empty = (
            f"DELETE FROM {records} WHERE {empty}",
            f"DELETE FROM {commits} WHERE {empty}",
            f"INSERT INTO {commits} (clock, mark) SELECT 0, %(mark)s WHERE {empty}",
            f"INSERT INTO {life} (one, format, epoch, clock) SELECT 1, %(format)s, %(epoch)s, 0 WHERE {empty}",
        )
        self.begin_epoch = (
            f"DELETE FROM {records}",
            f"DELETE FROM {commits}",
            f"UPDATE {life} SET epoch = %(epoch)s, clock = clock + 1",
            f"INSERT INTO {commits} (clock, mark) SELECT clock, %(mark)s FROM {life}",
            f'NOTIFY "{channel}"',
        )
        self.trim = _trim(life, commits, records)


def _publish(life: str, commits: str, records: str, channel: str) -> str:
    now = "(extract(epoch FROM now()) * 1000000)::bigint"
    removed_at = f"CASE WHEN w.body = '' THEN {now} END"
    return f"""
        WITH tick AS (
            UPDATE {life} SET clock = clock + 1 WHERE one = 1 AND epoch = coalesce(%(epoch)s::text, epoch)
            RETURNING clock
        ),
        marked AS (INSERT INTO {commits} (clock, mark) SELECT clock, %(mark)s FROM tick),
        wanted AS MATERIALIZED (
            SELECT * FROM unnest(
                %(namespaces)b::text[], %(names)b::text[], %(expected)b::bigint[], %(bodies)b::bytea[]
            ) AS w (namespace, name, expected, body)
        ),
        changed AS (
            UPDATE {records} r
            SET generation = w.expected + 1, changed = tick.clock, removed_at = {removed_at}, body = w.body
            FROM tick, wanted w
            WHERE r.namespace = w.namespace AND r.name = w.name AND r.generation = w.expected
            RETURNING r.namespace, r.name
        ),
        made AS (
            INSERT INTO {records} (namespace, name, generation, changed, removed_at, body)
            SELECT w.namespace, w.name, 1, tick.clock, {removed_at}, w.body
            FROM tick, wanted w WHERE w.expected = 0
            ON CONFLICT DO NOTHING
            RETURNING namespace, name
        )
        SELECT namespace, name FROM changed
        UNION ALL SELECT namespace, name FROM made
        UNION ALL SELECT NULL, pg_notify('{channel}', '')::text FROM tick
        """


def _trim(life: str, commits: str, records: str) -> tuple[str, ...]:
    """A reader that has not read of a forgotten record's removal must begin anew: the marks before it go first."""
    old = "removed_at < ((extract(epoch FROM now()) - %(keep_removed)s) * 1000000)::bigint"
    last = f"WITH old AS MATERIALIZED (SELECT changed FROM {records} WHERE {old}) SELECT max(changed) FROM old"
    return (
        f"DELETE FROM {commits} WHERE clock < ({last})",
        f"DELETE FROM {records} WHERE {old}",
        f"DELETE FROM {commits} WHERE clock < (SELECT clock - %(keep_commits)s FROM {life})",
    )


def _one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    row = cursor.fetchone()
    if row is None:
        raise Wiped("there is no clock")
    return row
