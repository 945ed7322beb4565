"""Cells, as rows of the API database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.api.tables import cells
from skep.database.upsert import insert
from skep.domain.cells import Cell

row = cells.c


def ensure(connection: sa.Connection, cell: Cell, now: int) -> None:
    """Write a cell unless one of its name is there; that one stays as it is, its UUID too."""
    connection.execute(
        insert(connection, cells).on_conflict_do_nothing(),
        {"uuid": cell.uuid, "name": cell.name, "disabled": cell.disabled, "created_at": now},
    )


def list_all(connection: sa.Connection) -> list[Cell]:
    """Return all cells, cell0 too, by name."""
    return [_cell(found) for found in connection.execute(sa.select(cells).order_by(row.name))]


def by_name(connection: sa.Connection, name: str) -> Cell | None:
    """Return the cell of a name."""
    found = connection.execute(sa.select(cells).where(row.name == name)).first()
    return None if found is None else _cell(found)


def set_disabled(connection: sa.Connection, name: str, disabled: bool) -> bool:
    """Let a cell get new servers or not; False when there is no such cell."""
    return connection.execute(cells.update().where(row.name == name).values(disabled=disabled)).rowcount == 1


def _cell(found: Any) -> Cell:
    return Cell(uuid=found.uuid, name=found.name, disabled=found.disabled)
