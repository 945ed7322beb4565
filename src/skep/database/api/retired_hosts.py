"""Retired hosts: what an operator has deleted above, and what its cell is still to forget."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import aggregates, host_mappings, revoked_nats_users
from skep.database.api.enrolment_tables import retired_hosts
from skep.database.api.revoked_nats_users import Revoked
from skep.database.upsert import insert
from skep.domain.ids import CellUuid, NodeUuid

row = retired_hosts.c


class RetiredHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is to be forgotten by its cell."""

    node: NodeUuid
    host: str
    cell: CellUuid
    process: str
    """The run of its agent that the cell knew when it was retired; empty where it knew none."""
    retired_at: int
    """Microseconds since the epoch."""


def add(connection: sa.Connection, new: RetiredHost) -> None:
    """Take a host out of the mappings and aggregates, note that its cell is to forget it, and end its NATS user."""
    host_mappings.remove(connection, new.node)
    aggregates.forget_host(connection, new.host)
    values = msgspec.structs.asdict(new)
    statement = insert(connection, retired_hosts).values(**values)
    connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_=values))
    ended = Revoked(node=new.node, host=new.host, cell=new.cell, revoked_at=new.retired_at)
    revoked_nats_users.add(connection, ended)


def every(connection: sa.Connection) -> list[RetiredHost]:
    """Return the hosts that their cells are still to forget, oldest first."""
    query = sa.select(retired_hosts).order_by(row.retired_at, row.node)
    names = RetiredHost.__struct_fields__
    return [RetiredHost(**{name: one[name] for name in names}) for one in connection.execute(query).mappings()]


def is_pending(connection: sa.Connection, node: NodeUuid) -> bool:
    """Tell whether a node's cell is still to forget it."""
    return connection.execute(sa.select(row.node).where(row.node == node)).first() is not None


def forgotten(connection: sa.Connection, host: RetiredHost) -> None:
    """Note that the cell has forgotten a host. One that was retired once more meanwhile stays."""
    mine = sa.and_(row.node == host.node, row.retired_at == host.retired_at)
    connection.execute(sa.delete(retired_hosts).where(mine))


def remove_of(connection: sa.Connection, cell: CellUuid) -> None:
    """Forget the retired hosts of a cell that goes."""
    connection.execute(sa.delete(retired_hosts).where(row.cell == cell))
