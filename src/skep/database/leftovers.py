"""Rows that no living server needs: what a run must not leave behind."""

from __future__ import annotations

import sqlalchemy as sa

_ORPHANED = "owner IS NOT NULL AND owner NOT IN (SELECT owner FROM leases WHERE lapses_at > :now)"
_DEAD = "(i.uuid IS NULL OR i.deleted_at IS NOT NULL OR i.attempt <> a.attempt)"
_LOST = "p.server IS NOT NULL AND (m.instance IS NULL OR m.deleted_at IS NOT NULL)"
_ABOVE = (
    "SELECT count(*) FROM build_requests",
    "SELECT count(*) FROM instance_mappings WHERE cell IS NULL AND deleted_at IS NULL",
    f"SELECT count(*) FROM instance_mappings WHERE {_ORPHANED}",  # noqa: S608 - constants of this module
    f"SELECT count(*) FROM ports p LEFT JOIN instance_mappings m ON m.instance = p.server WHERE {_LOST}",  # noqa: S608 - constants of this module
)
_IN_CELL = (
    "SELECT count(*) FROM instances WHERE state = 'staged'",
    f"SELECT count(*) FROM attempts a LEFT JOIN instances i ON i.uuid = a.instance WHERE a.open AND {_DEAD}",  # noqa: S608 - constants of this module
    f"SELECT count(*) FROM instances WHERE {_ORPHANED}",  # noqa: S608 - constants of this module
)


def above(connection: sa.Connection, now: int) -> int:
    """Count what is left in the API database."""
    return _count(connection, _ABOVE, now)


def in_cell(connection: sa.Connection, now: int) -> int:
    """Count what is left in the database of a cell."""
    return _count(connection, _IN_CELL, now)


def _count(connection: sa.Connection, statements: tuple[str, ...], now: int) -> int:
    return sum(
        int(connection.execute(sa.text(statement), {"now": now} if ":now" in statement else {}).scalar_one())
        for statement in statements
    )
