"""Migrations of servers as rows, and lists of them."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import migrations
from skep.domain.decoding import convert
from skep.domain.ids import InstanceUuid
from skep.domain.server_migrations import LIVE_IN_PROGRESS, MigrationType, ServerMigration

row = migrations.c

_SHOWN = row.type != MigrationType.REBUILD.value
_COLUMNS = tuple(row[name] for name in ServerMigration.__struct_fields__)


class MigrationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which migrations are wanted; None: any. Newest first."""

    host: str | None = None
    """Of the source or the destination."""
    source_host: str | None = None
    instance: str | None = None
    status: str | None = None
    type: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    changed_since: int | None = None
    changed_before: int | None = None
    after: tuple[int, str] | None = None
    """Creation and UUID of the one after which the list begins."""
    limit: int | None = None


def listed(connection: sa.Connection, query: MigrationQuery) -> list[ServerMigration]:
    """Return the migrations that a query wants, newest first."""
    changed = sa.func.coalesce(row.updated_at, row.created_at)
    wanted: list[sa.ColumnElement[bool]] = [_SHOWN]
    wanted += [
        column == value
        for column, value in (
            (row.instance, query.instance),
            (row.status, query.status),
            (row.type, query.type),
            (row.project_id, query.project_id),
            (row.user_id, query.user_id),
            (row.source_host, query.source_host),
        )
        if value is not None
    ]
    if query.host is not None:
        wanted.append(sa.or_(row.source_host == query.host, row.dest_host == query.host))
    if query.changed_since is not None:
        wanted.append(changed >= query.changed_since)
    if query.changed_before is not None:
        wanted.append(changed <= query.changed_before)
    if query.after is not None:
        wanted.append(sa.tuple_(row.created_at, row.uuid) < sa.tuple_(*(sa.literal(one) for one in query.after)))
    statement = sa.select(*_COLUMNS).where(*wanted).order_by(row.created_at.desc(), row.uuid.desc())
    return [_migration(one) for one in connection.execute(statement.limit(query.limit))]


def get(connection: sa.Connection, uuid: str) -> ServerMigration | None:
    """Return a migration by its UUID."""
    found = connection.execute(sa.select(*_COLUMNS).where(row.uuid == uuid, _SHOWN)).first()
    return None if found is None else _migration(found)


def live(connection: sa.Connection, instance: InstanceUuid) -> list[ServerMigration]:
    """Return the live migrations of a server that are in progress, oldest first."""
    mine = sa.and_(row.instance == instance, row.type == MigrationType.LIVE.value, row.status.in_(LIVE_IN_PROGRESS))
    return [_migration(one) for one in connection.execute(sa.select(*_COLUMNS).where(mine).order_by(row.id))]


def of_server(connection: sa.Connection, instance: InstanceUuid, number: str) -> ServerMigration | None:
    """Return a live migration of a server by its number in the cell, also one that is over."""
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    mine = sa.and_(row.instance == instance, row.type == MigrationType.LIVE.value, row.id == int(number))
    found = connection.execute(sa.select(*_COLUMNS).where(mine)).first()
    return None if found is None else _migration(found)


def latest(connection: sa.Connection, instance: InstanceUuid, request_id: str) -> tuple[str, str | None] | None:
    """Return status and error of the move that a request asked for."""
    found = connection.execute(_LATEST, {"of": instance, "asked": request_id}).first()
    return None if found is None else (found.status, found.error)


_LATEST = sa.select(row.status, row.error).where(
    row.instance == sa.bindparam("of"), row.task_id == sa.bindparam("asked")
)


def _migration(found: Any) -> ServerMigration:
    return convert({str(name): value for name, value in found._mapping.items()}, ServerMigration)
