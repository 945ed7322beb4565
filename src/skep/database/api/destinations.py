"""Where servers may go: cells and hosts that are there and take builds.

A decision of placement is older than the write that follows it, and an operator may delete or disable its host or its
cell between the two. So what maps a server asks here, in its own transaction. All writes of the API database are
serial: what is marked as being deleted gets no server after its mark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import cells, host_mappings
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, NodeUuid

cell_row, host_row = cells.c, host_mappings.c


class StagedMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that stands staged in a cell and waits to be mapped to it."""

    instance: InstanceUuid
    attempt: int
    revision: int
    node: NodeUuid | None
    """Where it is to be built; None in cell0."""
    although_disabled: bool = False
    """Its host may be disabled: an administrator named it, or no filter looks at that."""


def still_open(connection: sa.Connection, cell: CellUuid, placements: Sequence[StagedMember]) -> list[StagedMember]:
    """Return those of a cell's placements whose cell and host take builds."""
    if not cell_is_open(connection, cell):
        return []
    nodes = {placement.node for placement in placements if placement.node is not None}
    takes = open_nodes(connection, cell, nodes) if nodes else {}
    return [
        one
        for one in placements
        if one.node is None or takes.get(one.node, False) or (one.although_disabled and one.node in takes)
    ]


def cell_is_open(connection: sa.Connection, cell: CellUuid) -> bool:
    """Tell whether servers may be mapped to a cell. cell0 takes all that have no host."""
    if cell == CELL0:
        return True
    known = sa.select(cell_row.uuid).where(
        cell_row.uuid == cell, cell_row.deleting_at.is_(None), cell_row.disabled.is_(False)
    )
    return connection.execute(known).first() is not None


def cell_takes_hosts(connection: sa.Connection, cell: CellUuid) -> bool:
    """Tell whether a cell is there and stays: new hosts, tokens and credentials of others would be left over."""
    known = sa.select(cell_row.uuid).where(cell_row.uuid == cell, cell_row.deleting_at.is_(None))
    return connection.execute(known).first() is not None


def open_nodes(connection: sa.Connection, cell: CellUuid, nodes: Collection[NodeUuid]) -> dict[NodeUuid, bool]:
    """Return those of `nodes` that are hosts of the cell and are not being deleted; of each, whether it takes servers.

    One that takes none is disabled or forced down: only an administrator who names it gets it all the same.
    """
    known = sa.select(host_row.node, host_row.disabled, host_row.forced_down).where(
        host_row.node.in_(set(nodes)), host_row.cell == cell, host_row.deleting_at.is_(None)
    )
    return {NodeUuid(one.node): not (one.disabled or one.forced_down) for one in connection.execute(known)}
