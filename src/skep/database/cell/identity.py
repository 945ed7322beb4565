"""Which cell a database belongs to. Whoever opens it for the level above writes that down; its conductors read it."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import identity, instances
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid

ONLY = 1


def read(connection: sa.Connection) -> Cell | None:
    """Return the cell that this is (whether it is disabled stands above), None for a database without an owner."""
    row = connection.execute(sa.select(identity)).first()
    return None if row is None else Cell(uuid=CellUuid(row.uuid), name=row.name)


def claim(connection: sa.Connection, cell: Cell, now: int) -> Cell:
    """Make this the database of `cell` unless it is another's; return whose it is."""
    found = read(connection)
    if found is not None:
        return found
    connection.execute(sa.insert(identity).values(only=ONLY, uuid=cell.uuid, name=cell.name, created_at=now))
    return cell


def holds_servers(connection: sa.Connection) -> bool:
    """Tell whether there is a row of any server, deleted ones too."""
    return connection.execute(sa.select(instances.c.uuid).limit(1)).first() is not None
