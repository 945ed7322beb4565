"""Cells as the API database knows them."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api import credentials, instance_mappings, quotas, server_groups
from skep.database.api.tables import cells, host_mappings
from skep.database.api.tables import instance_mappings as mapping_rows
from skep.domain.cells import Cell
from skep.domain.credentials import Scope
from skep.domain.ids import CellUuid, InstanceUuid

MAX_NAMED = 500
"""Servers named in one statement."""


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


def servers(connection: sa.Connection, uuid: CellUuid) -> list[InstanceUuid]:
    """Return the servers that are mapped to a cell and not deleted."""
    mapping = mapping_rows.c
    query = sa.select(mapping.instance).where(mapping.cell == uuid, mapping.deleted_at.is_(None))
    return [InstanceUuid(instance) for instance in connection.scalars(query)]


def hosts(connection: sa.Connection, uuid: CellUuid) -> list[str]:
    """Return the names of the hosts that are mapped to a cell."""
    mapping = host_mappings.c
    return list(connection.scalars(sa.select(mapping.host).where(mapping.cell == uuid).order_by(mapping.host)))


def remove(connection: sa.Connection, uuid: CellUuid) -> None:
    """Forget a cell, its credentials and the mappings of its hosts. Whoever calls has seen that it holds no server."""
    credentials.remove_of(connection, Scope("cell", uuid))
    connection.execute(sa.delete(host_mappings).where(host_mappings.c.cell == uuid))
    connection.execute(sa.delete(cells).where(cells.c.uuid == uuid))


def give_up(connection: sa.Connection, uuid: CellUuid, now: int) -> int:
    """Forget a cell whose database is lost: its servers count as deleted from now on; return how many those were."""
    lost = servers(connection, uuid)
    for part in (lost[start : start + MAX_NAMED] for start in range(0, len(lost), MAX_NAMED)):
        instance_mappings.close(connection, part, now)
        quotas.credit(connection, part)
        server_groups.remove_members(connection, part)
    remove(connection, uuid)
    return len(lost)


def _cell(row: sa.Row[tuple[object, ...]]) -> Cell:
    return Cell(uuid=CellUuid(row.uuid), name=row.name, disabled=row.disabled)
