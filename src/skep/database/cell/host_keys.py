"""Keys of hosts: by which key a node's agent signs. The first that comes is bound, at enrolment or at registration."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import agents, host_keys
from skep.domain.ids import NodeUuid

row = host_keys.c


def get(connection: sa.Connection, node: NodeUuid) -> bytes | None:
    """Return the public key of a node's agent; None when it has none."""
    return connection.execute(sa.select(row.public_key).where(row.node == node)).scalar_one_or_none()


def bind(connection: sa.Connection, node: NodeUuid, host: str, public_key: bytes, now: int) -> bytes:
    """Bind a key to a node that has none; return the one that is bound, which may be another."""
    known = get(connection, node)
    if known is not None:
        return known
    values = {"node": node, "host": host, "public_key": public_key, "bound_at": now}
    connection.execute(sa.insert(host_keys), values)
    return public_key


def replace(connection: sa.Connection, node: NodeUuid, old: bytes, new: bytes, now: int) -> bytes | None:
    """Bind another key in the place of this one; return the one that is bound, which may be a third."""
    changed = sa.update(host_keys).where(row.node == node, row.public_key == old)
    connection.execute(changed.values(public_key=new, bound_at=now))
    return get(connection, node)


def release(connection: sa.Connection, node: NodeUuid) -> bool:
    """Forget a node's key, so that the next registration binds one; tell whether it had any."""
    connection.execute(sa.update(agents).where(agents.c.node == node).values(process=""))
    return connection.execute(sa.delete(host_keys).where(row.node == node)).rowcount > 0
