"""Revoked NATS users of hosts: what was issued to them up to a second is void. Credentials are issued after it."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import sqlalchemy as sa

from skep.database.api.enrolment_tables import revoked_nats_users
from skep.database.upsert import insert
from skep.domain.clock import SECOND
from skep.domain.ids import CellUuid, NodeUuid

row = revoked_nats_users.c


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """The user of one host that was revoked."""

    node: NodeUuid
    host: str
    cell: CellUuid
    revoked_at: int
    """Microseconds since the epoch."""

    @property
    def second(self) -> int:
        """The last second since the epoch in which anything that was issued is void."""
        return self.revoked_at // SECOND


def add(connection: sa.Connection, new: Revoked) -> None:
    """Make void what was issued to a host's user until now; a later revocation outdoes an earlier one."""
    values = msgspec.structs.asdict(new)
    statement = insert(connection, revoked_nats_users).values(**values)
    later = statement.excluded.revoked_at > row.revoked_at
    connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_=values, where=later))


def issue_second(connection: sa.Connection, node: NodeUuid, now: int) -> int:
    """Return the second since the epoch that credentials of a node bear so that they are not void."""
    found = connection.execute(sa.select(row.revoked_at).where(row.node == node)).scalar_one_or_none()
    return now // SECOND if found is None else max(now // SECOND, found // SECOND + 1)


def by_cell(connection: sa.Connection) -> dict[CellUuid, dict[NodeUuid, Revoked]]:
    """Return the revoked users of all cells."""
    found: dict[CellUuid, dict[NodeUuid, Revoked]] = defaultdict(dict)
    names = Revoked.__struct_fields__
    query = sa.select(revoked_nats_users).order_by(row.cell, row.node)
    for one in connection.execute(query).mappings():
        revoked = Revoked(**{name: one[name] for name in names})
        found[revoked.cell][revoked.node] = revoked
    return dict(found)


def remove_of(connection: sa.Connection, cell: CellUuid) -> None:
    """Forget the revoked users of a cell that goes: its account goes with it."""
    connection.execute(sa.delete(revoked_nats_users).where(row.cell == cell))
