"""Which servers live on which hosts of a cell."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.domain.ids import InstanceUuid
from skep.domain.instances import FROZEN

MAX_NAMED = 500
"""Hosts named in one statement."""


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """A server on a host."""

    uuid: InstanceUuid
    name: str
    host: str


def on_hosts(connection: sa.Connection, hosts: Iterable[str]) -> list[Resident]:
    """Return the servers that users see on these hosts, by UUID."""
    wanted = list(hosts)
    row = instances.c
    found: list[Resident] = []
    for start in range(0, len(wanted), MAX_NAMED):
        statement = sa.select(row.uuid, row.name, row.host).where(
            row.host.in_(wanted[start : start + MAX_NAMED]),
            row.deleted_at.is_(None),
            row.state.not_in(sorted(state.value for state in FROZEN)),
        )
        found += [
            Resident(uuid=InstanceUuid(one.uuid), name=one.name, host=one.host)
            for one in connection.execute(statement.order_by(row.uuid))
        ]
    return found
