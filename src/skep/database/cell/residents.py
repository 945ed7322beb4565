"""Which servers live on which hosts of a cell, and what is left on a host or in a cell that is being deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import attempts, instances
from skep.database.cell.unreadable import or_none
from skep.database.cell.usage import flavor_of
from skep.database.constants import constants
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.states import FROZEN

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
            row.state.not_in(constants(FROZEN)),
        )
        found += [
            Resident(uuid=InstanceUuid(one.uuid), name=one.name, host=one.host)
            for one in connection.execute(statement.order_by(row.uuid))
        ]
    return found


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A server on a host by its owner and its size."""

    project_id: str
    flavor: Flavor


def sizes_on(connection: sa.Connection, host: str) -> list[Sized]:
    """Return owner and size of the servers that users see on a host."""
    row = instances.c
    statement = sa.select(row.uuid, row.project_id, row.body).where(
        row.host == host, row.deleted_at.is_(None), row.state.not_in(constants(FROZEN))
    )
    found = (or_none(one, _sized) for one in connection.execute(statement))
    return [one for one in found if one is not None]


def _sized(found: Any) -> Sized:
    return Sized(project_id=found.project_id, flavor=flavor_of(found.body))


class OnNode(msgspec.Struct, frozen=True, kw_only=True):
    """What a node may still have."""

    servers: int
    """Living servers whose row names it."""
    held: int
    """Open attempts there of servers that are elsewhere by now, or are deleted."""
    staged: tuple[InstanceUuid, ...]
    """Servers on their way to it, or away from it, that nobody sees yet."""


class LeftInCell(msgspec.Struct, frozen=True, kw_only=True):
    """What the database of a cell still has."""

    servers: int
    """Living rows, but for those that are staged."""
    held: int
    """Open attempts of servers that are not staged."""
    staged: int
    """Servers on their way into the cell that nobody sees yet."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.servers or self.held or self.staged)


def on_node(connection: sa.Connection, node: NodeUuid) -> OnNode:
    """Return what a node may still have."""
    row, attempt = instances.c, attempts.c
    living = sa.select(row.uuid, row.state).where(row.node == node, row.deleted_at.is_(None))
    there = {one.uuid: one.state for one in connection.execute(living)}
    opened = (
        sa.select(attempt.instance, row.state)
        .join_from(attempts, instances, row.uuid == attempt.instance, isouter=True)
        .where(attempt.node == node, attempt.open)
    )
    tried = {one.instance: one.state for one in connection.execute(opened)}
    staged = {uuid for uuid, state in (*there.items(), *tried.items()) if state == State.STAGED.value}
    return OnNode(
        servers=len(there.keys() - staged),
        held=len(tried.keys() - there.keys() - staged),
        staged=tuple(InstanceUuid(uuid) for uuid in sorted(staged)),
    )


def in_cell(connection: sa.Connection) -> LeftInCell:
    """Return what the database of a cell still has."""
    row, attempt = instances.c, attempts.c
    living = sa.select(row.state == State.STAGED.value, sa.func.count()).where(row.deleted_at.is_(None))
    counts = {bool(staged): count for staged, count in connection.execute(living.group_by(sa.text("1")))}
    held = (
        sa.select(sa.func.count())
        .select_from(attempts.join(instances, row.uuid == attempt.instance, isouter=True))
        .where(attempt.open, row.state.is_distinct_from(State.STAGED.value))
    )
    return LeftInCell(
        servers=counts.get(False, 0), staged=counts.get(True, 0), held=connection.execute(held).scalar_one()
    )
