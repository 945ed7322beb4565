"""Cells as the API database knows them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import sqlalchemy as sa

from skep.database.api import (
    aggregates,
    credentials,
    ends,
    enrolments,
    retired_hosts,
    revoked_nats_users,
)
from skep.database.api.tables import cells, host_mappings
from skep.database.api.tables import instance_mappings as mapping_rows
from skep.domain.cells import Cell
from skep.domain.credentials import Scope
from skep.domain.ids import CellUuid, InstanceUuid

MAX_NAMED = 500
"""Servers named in one statement."""


_OLDEST = (cells.c.uuid, cells.c.name, cells.c.disabled)
"""What the table has in every release: cells are listed before a database of an older one is brought up."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cell is; what is empty follows from the configuration. A URL with a password stands here twice."""

    database_url: str = ""
    """As it may be shown."""
    database_url_sealed: bytes | None = None
    """The whole, encrypted, if it has a password."""
    transport_url: str = ""
    transport_url_sealed: bytes | None = None


NOWHERE = Addresses()
"""Says nothing: everything follows from the configuration."""


def every(connection: sa.Connection) -> tuple[Cell, ...]:
    """Return all cells by name, cell0 among them if it has a row."""
    rows = connection.execute(sa.select(*_OLDEST).order_by(cells.c.name)).mappings()
    return tuple(_cell(row) for row in rows)


def located(connection: sa.Connection) -> tuple[tuple[Cell, Addresses], ...]:
    """Return all cells by name, each with where it is."""
    names = Addresses.__struct_fields__
    asked = sa.select(*_OLDEST, *(cells.c[name] for name in names)).order_by(cells.c.name)
    return tuple(
        (_cell(row), Addresses(**{name: row[name] for name in names})) for row in connection.execute(asked).mappings()
    )


def located_in_any_release(connection: sa.Connection) -> tuple[tuple[Cell, Addresses], ...]:
    """Return all cells as `located` does, of a database that may be of an older release, or empty."""
    inspector = sa.inspect(connection)
    if not inspector.has_table("cells"):
        return ()
    if any(column["name"] == "database_url" for column in inspector.get_columns("cells")):
        return located(connection)
    return tuple((cell, NOWHERE) for cell in every(connection))


def get(connection: sa.Connection, uuid: CellUuid) -> Cell | None:
    """Return one cell."""
    row = connection.execute(sa.select(*_OLDEST).where(cells.c.uuid == uuid)).mappings().first()
    return None if row is None else _cell(row)


def add(connection: sa.Connection, cell: Cell, now: int, addresses: Addresses = NOWHERE) -> bool:
    """Store a new cell; tell whether its UUID and name were free."""
    taken = sa.select(cells.c.uuid).where((cells.c.uuid == cell.uuid) | (cells.c.name == cell.name))
    if connection.execute(taken).first() is not None:
        return False
    where = msgspec.structs.asdict(addresses)
    row = {"uuid": cell.uuid, "name": cell.name, "disabled": cell.disabled, "created_at": now, **where}
    connection.execute(sa.insert(cells).values(row))
    return True


def move(connection: sa.Connection, uuid: CellUuid, addresses: Addresses) -> bool:
    """Say that a cell is elsewhere from now on; tell whether there is such a cell."""
    where = msgspec.structs.asdict(addresses)
    return connection.execute(sa.update(cells).where(cells.c.uuid == uuid).values(where)).rowcount > 0


def set_disabled(connection: sa.Connection, uuid: CellUuid, disabled: bool) -> bool:
    """Let a cell get new servers or not; tell whether there is such a cell. To enable it takes its deletion back."""
    values: dict[str, object] = {"disabled": disabled} if disabled else {"disabled": False, "deleting_at": None}
    return connection.execute(sa.update(cells).where(cells.c.uuid == uuid).values(values)).rowcount > 0


def begin_deletion(connection: sa.Connection, uuid: CellUuid, now: int) -> None:
    """Mark a cell as being deleted: nothing is mapped to it from now on. A repeat changes nothing."""
    mine = sa.and_(cells.c.uuid == uuid, cells.c.deleting_at.is_(None))
    connection.execute(sa.update(cells).where(mine).values(disabled=True, deleting_at=now))


def deleting(connection: sa.Connection) -> dict[CellUuid, int]:
    """Return the cells that are being deleted, each with since when."""
    query = sa.select(cells.c.uuid, cells.c.deleting_at).where(cells.c.deleting_at.is_not(None))
    return {CellUuid(one.uuid): one.deleting_at for one in connection.execute(query)}


def servers(connection: sa.Connection, uuid: CellUuid) -> list[InstanceUuid]:
    """Return the servers that are mapped to a cell and not deleted."""
    mapping = mapping_rows.c
    query = sa.select(mapping.instance).where(mapping.cell == uuid, mapping.deleted_at.is_(None))
    return [InstanceUuid(instance) for instance in connection.scalars(query)]


def seal_addresses_anew(connection: sa.Connection, renew: Callable[[bytes], bytes | None]) -> int:
    """Replace each sealed address by what `renew` makes of it, None: it stays; return how many were replaced."""
    count = 0
    for column in (cells.c.database_url_sealed, cells.c.transport_url_sealed):
        stored = sa.select(cells.c.uuid, column).where(column.is_not(None))
        for uuid, sealed in connection.execute(stored).all():
            renewed = renew(sealed)
            if renewed is not None:
                mine = sa.update(cells).where(cells.c.uuid == uuid, column == sealed)
                count += connection.execute(mine.values({column.name: renewed})).rowcount
    return count


def server_counts(connection: sa.Connection) -> dict[CellUuid, int]:
    """Return how many servers are mapped to each cell that has any and are not deleted."""
    mapping = mapping_rows.c
    query = sa.select(mapping.cell, sa.func.count()).where(mapping.cell.is_not(None), mapping.deleted_at.is_(None))
    return {CellUuid(cell): count for cell, count in connection.execute(query.group_by(mapping.cell))}


def hosts(connection: sa.Connection, uuid: CellUuid) -> list[str]:
    """Return the names of the hosts that are mapped to a cell."""
    mapping = host_mappings.c
    return list(connection.scalars(sa.select(mapping.host).where(mapping.cell == uuid).order_by(mapping.host)))


def remove_deleted(connection: sa.Connection, uuid: CellUuid) -> list[str] | None:
    """Forget a cell that is being deleted, and return the hosts that went with it; None while servers are mapped to it.

    None too when its deletion was taken back. Whoever calls has seen, after the mark, that its database holds nothing.
    """
    if uuid not in deleting(connection) or servers(connection, uuid):
        return None
    gone = hosts(connection, uuid)
    remove(connection, uuid)
    return gone


def remove(connection: sa.Connection, uuid: CellUuid) -> None:
    """Forget a cell, its credentials and its hosts. Whoever calls has seen that it holds no server."""
    for host in hosts(connection, uuid):
        aggregates.forget_host(connection, host)
    credentials.remove_of(connection, Scope("cell", uuid))
    enrolments.remove_of(connection, uuid)
    retired_hosts.remove_of(connection, uuid)
    revoked_nats_users.remove_of(connection, uuid)
    connection.execute(sa.delete(host_mappings).where(host_mappings.c.cell == uuid))
    connection.execute(sa.delete(cells).where(cells.c.uuid == uuid))


def give_up(connection: sa.Connection, uuid: CellUuid, now: int) -> int:
    """Forget a cell whose database is lost: its servers count as deleted from now on; return how many those were."""
    lost = servers(connection, uuid)
    for part in (lost[start : start + MAX_NAMED] for start in range(0, len(lost), MAX_NAMED)):
        ends.end(connection, part, now)
    remove(connection, uuid)
    return len(lost)


def _cell(row: sa.RowMapping) -> Cell:
    return Cell(uuid=CellUuid(row["uuid"]), name=row["name"], disabled=row["disabled"])
