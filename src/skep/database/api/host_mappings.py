"""Host mappings: which cell a node belongs to, and what the operator wants of it."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.api.tables import cells, host_mappings
from skep.database.upsert import insert
from skep.domain.cells import HostMapping
from skep.domain.errors import Conflict
from skep.domain.ids import CellUuid, NodeUuid

mapping = host_mappings.c

_CELL = sa.exists().where(cells.c.uuid == mapping.cell)


def every(connection: sa.Connection) -> tuple[HostMapping, ...]:
    """Return all mappings, oldest first; this order numbers hypervisors where the API wants small integers."""
    rows = connection.execute(sa.select(host_mappings).order_by(mapping.created_at, mapping.node))
    return tuple(_mapping(row) for row in rows)


def get(connection: sa.Connection, node: NodeUuid) -> HostMapping | None:
    """Return the mapping of a node."""
    row = connection.execute(sa.select(host_mappings).where(mapping.node == node)).first()
    return None if row is None else _mapping(row)


def of_host(connection: sa.Connection, host: str) -> HostMapping | None:
    """Return the mapping of the node with this host name."""
    row = connection.execute(sa.select(host_mappings).where(mapping.host == host)).first()
    return None if row is None else _mapping(row)


def add(connection: sa.Connection, new: HostMapping) -> None:
    """Map a node. A repeat changes no more than its host name and cell: what the operator wants stays.

    Raises Conflict when another node has the host name.
    """
    for why in add_all(connection, [new]).values():
        raise Conflict(why)


def add_all(connection: sa.Connection, new: Sequence[HostMapping]) -> dict[NodeUuid, str]:
    """Map nodes, some hundreds at most, each host name once; return those not mapped, and why.

    Of each it holds what `add` says; one whose host name is another node's does not keep the others from being mapped.
    """
    named = sa.select(mapping.host, mapping.node).where(mapping.host.in_([one.host for one in new]))
    nodes = {row.host: row.node for row in connection.execute(named)}
    refused = {
        one.node: f"host {one.host} is mapped to node {nodes[one.host]} already, not to {one.node}"
        for one in new
        if nodes.get(one.host, one.node) != one.node
    }
    rows = [
        {
            "node": one.node,
            "host": one.host,
            "cell": one.cell,
            "disabled": one.disabled,
            "disabled_reason": one.disabled_reason,
            "forced_down": one.forced_down,
            "created_at": one.created_at,
            "updated_at": one.updated_at,
        }
        for one in new
        if one.node not in refused
    ]
    if rows:
        statement = insert(connection, host_mappings)
        replaced = {"host": statement.excluded.host, "cell": statement.excluded.cell}
        connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_=replaced), rows)
    return refused


def want(
    connection: sa.Connection,
    node: NodeUuid,
    now: int,
    *,
    disabled: bool | None = None,
    disabled_reason: str | None = None,
    forced_down: bool | None = None,
) -> HostMapping | None:
    """Store what the operator wants of a node (None: no change) and return its mapping; None when there is none.

    The reason goes with `disabled`: it is replaced whenever that is given. To enable a host takes its deletion back.
    """
    values: dict[str, object] = {"updated_at": now}
    if disabled is not None:
        values.update(disabled=disabled, disabled_reason=disabled_reason if disabled else None)
        if not disabled:
            values["deleting_at"] = None
    if forced_down is not None:
        values["forced_down"] = forced_down
    connection.execute(sa.update(host_mappings).where(mapping.node == node).values(**values))
    return get(connection, node)


def begin_deletion(connection: sa.Connection, node: NodeUuid, now: int) -> HostMapping | None:
    """Mark a host as being deleted: no server is mapped to it from now on; None when it is not mapped."""
    connection.execute(sa.update(host_mappings).where(mapping.node == node).values(deleting_at=now))
    return get(connection, node)


def take_deletion_back(connection: sa.Connection, node: NodeUuid, began_at: int) -> None:
    """Let servers be mapped to a host again, unless it is being deleted anew."""
    mine = sa.and_(mapping.node == node, mapping.deleting_at == began_at)
    connection.execute(sa.update(host_mappings).where(mine).values(deleting_at=None))


def deleting(connection: sa.Connection) -> list[HostMapping]:
    """Return the hosts that are being deleted."""
    rows = connection.execute(sa.select(host_mappings).where(mapping.deleting_at.is_not(None)).order_by(mapping.host))
    return [_mapping(row) for row in rows]


def remove(connection: sa.Connection, node: NodeUuid) -> bool:
    """Forget a node; tell whether it was mapped."""
    return connection.execute(sa.delete(host_mappings).where(mapping.node == node)).rowcount > 0


def without_cell(connection: sa.Connection) -> list[HostMapping]:
    """Return the hosts that are mapped to a cell that is not there."""
    return [_mapping(row) for row in connection.execute(sa.select(host_mappings).where(~_CELL))]


def remove_without_cell(connection: sa.Connection, host: str) -> bool:
    """Forget a host that is mapped to a cell that is not there; tell whether it was."""
    return connection.execute(sa.delete(host_mappings).where(mapping.host == host, ~_CELL)).rowcount > 0


def _mapping(row: sa.Row[tuple[object, ...]]) -> HostMapping:
    return HostMapping(
        node=NodeUuid(row.node),
        host=row.host,
        cell=CellUuid(row.cell),
        disabled=row.disabled,
        disabled_reason=row.disabled_reason,
        forced_down=row.forced_down,
        created_at=row.created_at,
        updated_at=row.updated_at,
        deleting_at=row.deleting_at,
    )
