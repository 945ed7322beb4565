"""Host mappings: which cell a node belongs to, and what the operator wants of it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.api.tables import host_mappings
from skep.database.upsert import insert
from skep.domain.cells import HostMapping
from skep.domain.ids import NodeUuid

row = host_mappings.c


def add(connection: sa.Connection, mapping: HostMapping) -> None:
    """Map a node to its cell. A node that is mapped already takes the new name and cell and keeps the operator's wishes.

    A host name that another node holds is given to the node that came last: the older one must register again under
    another name.
    """
    connection.execute(host_mappings.delete().where(row.host == mapping.host, row.node != mapping.node))
    statement = insert(connection, host_mappings).values(
        node=mapping.node, host=mapping.host, cell=mapping.cell, created_at=mapping.created_at
    )
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["node"],
            set_={
                "host": statement.excluded.host,
                "cell": statement.excluded.cell,
                "updated_at": statement.excluded.created_at,
            },
        )
    )


def list_all(connection: sa.Connection) -> list[HostMapping]:
    """Return all mapped hosts in the order in which they came."""
    query = sa.select(host_mappings).order_by(row.created_at, row.host)
    return [_mapping(found) for found in connection.execute(query)]


def by_host(connection: sa.Connection, host: str) -> HostMapping | None:
    """Return the mapping of a host by its name."""
    found = connection.execute(sa.select(host_mappings).where(row.host == host)).first()
    return None if found is None else _mapping(found)


def by_node(connection: sa.Connection, node: NodeUuid) -> HostMapping | None:
    """Return the mapping of a node."""
    found = connection.execute(sa.select(host_mappings).where(row.node == node)).first()
    return None if found is None else _mapping(found)


def wish(connection: sa.Connection, node: NodeUuid, now: int, **wishes: Any) -> bool:
    """Write what the operator wants (`disabled`, `disabled_reason`, `forced_down`); False when there is no such node."""
    changed = connection.execute(host_mappings.update().where(row.node == node).values(updated_at=now, **wishes))
    return changed.rowcount == 1


def remove(connection: sa.Connection, node: NodeUuid) -> bool:
    """Unmap a node; its agent, if it still lives, is mapped again when it registers."""
    return connection.execute(host_mappings.delete().where(row.node == node)).rowcount == 1


def _mapping(found: Any) -> HostMapping:
    return HostMapping(
        node=found.node,
        host=found.host,
        cell=found.cell,
        disabled=found.disabled,
        disabled_reason=found.disabled_reason,
        forced_down=found.forced_down,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )
