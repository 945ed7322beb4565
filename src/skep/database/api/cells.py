"""Cells as the API database knows them."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.tables import cells
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid


def every(connection: sa.Connection) -> tuple[Cell, ...]:
    """Return all cells by name, cell0 among them if it has a row."""
    rows = connection.execute(sa.select(cells).order_by(cells.c.name))
    return tuple(_cell(row) for row in rows)


def get(connection: sa.Connection, uuid: CellUuid) -> Cell | None:
    """Return one cell."""
    row = connection.execute(sa.select(cells).where(cells.c.uuid == uuid)).first()
    return None if row is None else _cell(row)


def add(connection: sa.Connection, cell: Cell, now: int) -> bool:
    """Store a new cell; tell whether its UUID and name were free."""
    taken = sa.select(cells.c.uuid).where((cells.c.uuid == cell.uuid) | (cells.c.name == cell.name))
    if connection.execute(taken).first() is not None:
        return False
    connection.execute(sa.insert(cells).values(uuid=cell.uuid, name=cell.name, disabled=cell.disabled, created_at=now))
    return True


def set_disabled(connection: sa.Connection, uuid: CellUuid, disabled: bool) -> bool:
    """Let a cell get new servers or not; tell whether there is such a cell."""
    changed = connection.execute(sa.update(cells).where(cells.c.uuid == uuid).values(disabled=disabled))
    return changed.rowcount > 0


def _cell(row: sa.Row[tuple[object, ...]]) -> Cell:
    return Cell(uuid=CellUuid(row.uuid), name=row.name, disabled=row.disabled)
