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


def note_refused(connection: sa.Connection, node: NodeUuid, now: int) -> None:
    """Note that an agent of a node with a key came with another, or with none."""
    connection.execute(sa.update(host_keys).where(row.node == node, row.refused_at.is_(None)).values(refused_at=now))


def note_believed(connection: sa.Connection, node: NodeUuid) -> None:
    """Note that the node's agent came with its key."""
    noted = sa.update(host_keys).where(row.node == node, row.refused_at.is_not(None))
    connection.execute(noted.values(refused_at=None))


def refused(connection: sa.Connection) -> dict[NodeUuid, int]:
    """Return the nodes of which an agent is refused for its key, and since when (microseconds since the epoch)."""
    found = connection.execute(sa.select(row.node, row.refused_at).where(row.refused_at.is_not(None)))
    return {NodeUuid(one.node): one.refused_at for one in found}


def release(connection: sa.Connection, node: NodeUuid) -> bool:
    """Forget a node's key, so that the next registration binds one; tell whether it had any."""
    connection.execute(sa.update(agents).where(agents.c.node == node).values(process=""))
    return connection.execute(sa.delete(host_keys).where(row.node == node)).rowcount > 0
