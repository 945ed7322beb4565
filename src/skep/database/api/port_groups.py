"""Which security groups ports have."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.api.network_rows import Condition, portions
from skep.database.api.network_tables import port_security_groups, ports


def set_groups(connection: sa.Connection, port_id: str, groups: list[str]) -> None:
    """Give a port these groups and no others."""
    connection.execute(port_security_groups.delete().where(port_security_groups.c.port_id == port_id))
    if groups:
        add_groups(connection, [port_id], groups)


def add_groups(connection: sa.Connection, port_ids: Sequence[str], groups: Sequence[str]) -> None:
    """Give ports that have none these groups, each named once."""
    rows = [{"port_id": port, "security_group_id": group} for port in port_ids for group in groups]
    connection.execute(port_security_groups.insert(), rows)


def of_ports(connection: sa.Connection, port_ids: list[str]) -> dict[str, list[str]]:
    """Return the groups of ports; every id has an entry."""
    found: dict[str, list[str]] = {one: [] for one in port_ids}
    for some in portions(port_ids):
        query = port_security_groups.select().where(port_security_groups.c.port_id.in_(some))
        for row in connection.execute(query.order_by(port_security_groups.c.security_group_id)):
            found[row.port_id].append(row.security_group_id)
    return found


def ports_with(connection: sa.Connection, group_id: str) -> bool:
    """Tell whether a port has a group."""
    query = sa.select(port_security_groups.c.port_id).where(port_security_groups.c.security_group_id == group_id)
    return connection.execute(query.limit(1)).first() is not None


def have(groups: tuple[str, ...]) -> Condition:
    """Return the condition that a port has one of these groups."""
    found = sa.select(port_security_groups.c.port_id).where(port_security_groups.c.security_group_id.in_(groups))
    return ports.c.id.in_(found)
