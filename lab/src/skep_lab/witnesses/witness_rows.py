"""What the databases say, read from outside: SQL of its own on read-only connections, none of Skep's functions."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg

GUEST_STATES = ("active", "stopped", "paused", "suspended", "rescued", "soft_deleted", "resized", "shelved")
"""States of a server whose host has its guest."""
AWAY = "away"
"""State of the row of a server that a move has taken to another cell, until its user has confirmed it."""
SETTLED = (*GUEST_STATES, "shelved_offloaded", "error")
"""States of servers that are built."""

_KEPT = (
    "SELECT m.instance, m.source_host, m.source_attempt FROM migrations m JOIN instances k ON k.uuid = m.instance "
    "WHERE m.step IS NULL AND m.status = 'finished' AND m.dest_attempt = k.attempt "
    "AND k.state IN ('resized', 'away') AND k.deleted_at IS NULL"
)
"""What the host that a server left keeps of it, until its user has confirmed the move."""
_UNOWNED = "owner IS NOT NULL AND owner NOT IN (SELECT owner FROM leases WHERE lapses_at > :now)"

_ABOVE = {
    "build request of a server that is placed or gone": (
        "SELECT b.instance FROM build_requests b LEFT JOIN instance_mappings m ON m.instance = b.instance "
        "WHERE m.instance IS NULL OR m.cell IS NOT NULL OR m.deleted_at IS NOT NULL"
    ),
    "quota unit without its server": (
        "SELECT q.instance FROM quota_charges q LEFT JOIN instance_mappings m ON m.instance = q.instance "
        "WHERE m.instance IS NULL OR m.deleted_at IS NOT NULL"
    ),
    "sum of quota that is not the sum of its units": (
        "SELECT s.project_id FROM quota_sums s LEFT JOIN quota_charges q ON q.project_id = s.project_id "
        "GROUP BY s.project_id HAVING s.instances <> coalesce(sum(q.instances), 0) "
        "OR s.cores <> coalesce(sum(q.cores), 0) OR s.ram <> coalesce(sum(q.ram), 0)"
    ),
    "request spec without its server": (
        "SELECT s.instance FROM request_specs s LEFT JOIN instance_mappings m ON m.instance = s.instance "
        "WHERE m.instance IS NULL OR m.deleted_at IS NOT NULL"
    ),
    "group member that is gone": (
        "SELECT g.instance FROM server_group_members g LEFT JOIN instance_mappings m ON m.instance = g.instance "
        "WHERE m.instance IS NULL OR m.deleted_at IS NOT NULL"
    ),
    "image that nobody fills": (
        "SELECT i.id FROM images i LEFT JOIN awaited_images a ON a.image_id = i.id "
        "WHERE i.status = 'queued' AND a.image_id IS NULL"
    ),
    "image that is awaited of a server to which nothing is done": "SELECT image_id FROM awaited_images",
    "mapping owned by nobody living": f"SELECT instance FROM instance_mappings WHERE {_UNOWNED}",
}
_INTERFACES = {
    "port without its server": (
        "SELECT p.id FROM ports p LEFT JOIN instance_mappings m ON m.instance = p.server "
        "WHERE p.server IS NOT NULL AND (m.instance IS NULL OR m.deleted_at IS NOT NULL)"
    ),
    "port made for no server": "SELECT id FROM ports WHERE made_for_server AND server IS NULL",
    "ports of one server on one network": (
        "SELECT server FROM ports WHERE made_for_server GROUP BY server, network_id HAVING count(*) > 1"
    ),
    "server that is not told of its interfaces": "SELECT instance FROM changed_interfaces",
}
"""Of databases that have ports of servers."""
_IN_CELL = {
    "staged row": "SELECT uuid FROM instances WHERE state = 'staged'",
    "open attempt without its server": (
        "SELECT a.instance FROM attempts a LEFT JOIN instances i ON i.uuid = a.instance "
        "WHERE a.open AND (i.uuid IS NULL OR i.deleted_at IS NOT NULL OR i.attempt <> a.attempt) "
        f"AND NOT EXISTS ({_KEPT} AND m.instance = a.instance AND m.source_attempt = a.attempt)"
    ),
    "move under way of a server that nothing is done to": (
        "SELECT m.instance FROM migrations m LEFT JOIN instances i ON i.uuid = m.instance "
        "WHERE m.step IS NOT NULL AND (i.uuid IS NULL OR i.deleted_at IS NOT NULL OR i.task IS NULL)"
    ),
    "finished move of a server that waits for nothing": (
        "SELECT m.instance FROM migrations m LEFT JOIN instances i ON i.uuid = m.instance "
        "WHERE m.step IS NULL AND m.status = 'finished' "
        "AND (i.uuid IS NULL OR i.deleted_at IS NOT NULL OR i.state NOT IN ('resized', 'away', 'error'))"
    ),
    "row owned by nobody living": f"SELECT uuid FROM instances WHERE {_UNOWNED}",
    "secret of a server that is built": (
        f"SELECT uuid FROM instances WHERE secrets IS NOT NULL AND state IN {(*SETTLED, 'deleted')}"
    ),
}


_PORTS = "SELECT server, count(*) FROM ports WHERE made_for_server AND server IS NOT NULL GROUP BY server"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is not deleted, as the row of its cell says it."""

    uuid: str
    name: str
    cell: str
    state: str
    task: str | None
    host: str | None
    attempt: int
    fault: str
    config_drive: bool = False
    """Whether it was promised one."""
    interfaces: int = 0
    """How many its users see."""

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done for it."""
        return self.state in SETTLED and self.task is None


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A server that lives, as the API database says it."""

    cell: str | None
    deleting: bool


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """All databases of a state directory, each read at one moment of its own."""

    mapped: dict[str, Mapped]
    rows: tuple[Row, ...]
    leaked: tuple[str, ...]
    kept: frozenset[tuple[str, str, int]] = frozenset()
    """What hosts keep of servers that have left them: host, instance and attempt."""
    ports: dict[str, int] = {}
    """How many ports were made for each server."""


class WitnessConnection(Protocol):
    """As the drivers of SQLite and PostgreSQL have it."""

    def execute(self, query: str, values: dict[str, int], /) -> Iterable[tuple[Any, ...]]:
        """Run a query."""


class _Postgresql:
    """Takes queries with `:now`, as SQLite does."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, query: str, values: dict[str, int], /) -> Iterable[tuple[Any, ...]]:
        return self._connection.execute(query.replace(":now", "%(now)s").encode(), values)


def read(state: Path) -> Rows:
    """Read the databases of a state directory."""
    return read_databases({path.stem: f"file:{path}?mode=ro" for path in (state / "db").glob("*.db")})


def read_databases(urls: Mapping[str, str]) -> Rows:
    """Read databases, `api` and those of cells by their names: files as SQLite's URIs, or postgresql://...

    The API's is read first: a server on its way down is then seen in one of them.
    """
    mapped: dict[str, Mapped] = {}
    rows: list[Row] = []
    away: list[Row] = []
    leaked: list[str] = []
    kept: set[tuple[str, str, int]] = set()
    ports: dict[str, int] = {}
    for name in sorted(urls, key=lambda name: (name != "api", name)):
        with _opened(urls[name]) as connection:
            if name == "api":
                mapped = _mapped(connection)
                leaked += _leaked(connection, "api", _ABOVE)
                if _has(connection, "ports", "server"):
                    leaked += _leaked(connection, "api", _INTERFACES)
                    ports = dict(connection.execute(_PORTS, {}))
            else:
                found = list(_rows(connection, name))
                rows += [row for row in found if row.state != AWAY]
                away += [row for row in found if row.state == AWAY]
                leaked += _leaked(connection, name, _IN_CELL)
                kept |= {(host, instance, attempt) for instance, host, attempt in connection.execute(_KEPT, {})}
    rest = {row.uuid for row in rows if row.state in ("resized", "error")}
    leaked += [
        f"{row.cell}: away of a server that does not come back: {row.uuid}" for row in away if row.uuid not in rest
    ]
    return Rows(mapped=mapped, rows=tuple(rows), leaked=tuple(leaked), kept=frozenset(kept), ports=ports)


@contextmanager
def _opened(url: str) -> Iterator[WitnessConnection]:
    """Connect, and read at one moment."""
    if url.startswith("file:"):
        with closing(sqlite3.connect(url, uri=True)) as file:
            file.execute("BEGIN")
            yield file
        return
    plain = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, connect_timeout=5, options="-c statement_timeout=10000") as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        yield _Postgresql(connection)


def _mapped(connection: WitnessConnection) -> dict[str, Mapped]:
    found = connection.execute(
        "SELECT m.instance, c.name, m.delete_intent_at IS NOT NULL FROM instance_mappings m "
        "LEFT JOIN cells c ON c.uuid = m.cell WHERE m.deleted_at IS NULL",
        {},
    )
    return {uuid: Mapped(cell=cell, deleting=bool(deleting)) for uuid, cell, deleting in found}


def _rows(connection: WitnessConnection, cell: str) -> Iterator[Row]:
    vifs = "vifs" if _has(connection, "instances", "vifs") else "NULL"
    found = connection.execute(
        f"SELECT uuid, name, state, task, host, attempt, fault, body, {vifs} FROM instances WHERE deleted_at IS NULL",
        {},
    )
    for uuid, name, state, task, host, attempt, fault, body, interfaces in found:
        yield Row(
            uuid=uuid,
            name=name,
            cell=cell,
            state=state,
            task=task,
            host=host,
            attempt=attempt,
            fault=bytes(fault).decode(errors="replace") if fault is not None else "",
            config_drive=bool(json.loads(bytes(body)).get("config_drive")),
            interfaces=len(json.loads(bytes(interfaces))) if interfaces is not None else 0,
        )


def _has(connection: WitnessConnection, table: str, column: str) -> bool:
    """Tell whether a database has a column: those of releases before do not have all."""
    if isinstance(connection, _Postgresql):
        query = f"SELECT 1 FROM information_schema.columns WHERE table_name = '{table}' AND column_name = '{column}'"
    else:
        query = f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{column}'"
    return any(True for _ in connection.execute(query, {}))


def _leaked(connection: WitnessConnection, database: str, queries: dict[str, str]) -> Iterator[str]:
    now = {"now": time.time_ns() // 1000}
    for what, query in queries.items():
        for (subject,) in connection.execute(query, now if ":now" in query else {}):
            yield f"{database}: {what}: {subject}"
