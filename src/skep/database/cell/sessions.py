"""Sessions of agents as rows: which run of an agent began the latest, with which key, and who may do without."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import agents, host_keys, unsigned_hosts
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid

RELEASED = ""
"""The process of an agent whose key was released: none that registers is this one."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the keys of an agent's session are derived from, on this side."""

    identity: AgentIdentity
    exchange_key: bytes | None


def of_node(connection: sa.Connection, node: NodeUuid) -> SessionRow | None:
    """Return the session of a node's agent; None for a node that the cell does not know."""
    return _found(connection, agents.c.node == node)


def of_host(connection: sa.Connection, host: str) -> SessionRow | None:
    """Return the session of a host's agent; None for a host that the cell does not know."""
    return _found(connection, agents.c.host == host)


def is_stale(connection: sa.Connection, identity: AgentIdentity, run: int) -> bool:
    """Tell whether a younger run of this agent has begun a session, or another one with this number."""
    keys = host_keys.c
    youngest = connection.execute(sa.select(keys.run, keys.process).where(keys.node == identity.node)).first()
    if youngest is None or youngest.run is None or run > youngest.run:
        return False
    return bool(run < youngest.run or youngest.process != identity.process)


def begin(connection: sa.Connection, identity: AgentIdentity, run: int, exchange_key: bytes) -> None:
    """Note the session of a run that has registered; from now on nothing unsigned is believed of its host."""
    values = {"run": run, "process": identity.process, "exchange_key": exchange_key}
    connection.execute(sa.update(host_keys).where(host_keys.c.node == identity.node).values(**values))
    connection.execute(sa.delete(unsigned_hosts).where(unsigned_hosts.c.node == identity.node))


def may_be_unsigned(connection: sa.Connection, node: NodeUuid) -> bool:
    """Tell whether an agent of a node may do without a session.

    Either the node was there before sessions were, and has begun none; or a conductor of an older release has
    registered a run of its agent since (the cell goes back to that release), and no newer one a session.
    """
    marked = sa.select(unsigned_hosts.c.node).where(unsigned_hosts.c.node == node)
    admitted = _admitted_without(agents.c.node).where(agents.c.node == node)
    return connection.execute(sa.union_all(marked, admitted)).first() is not None


def unsigned(connection: sa.Connection) -> list[str]:
    """Return the names of the hosts whose agents may do without a session, in order."""
    marked = sa.select(unsigned_hosts.c.host)
    return sorted(connection.execute(sa.union(marked, _admitted_without(agents.c.host))).scalars())


def _admitted_without(column: sa.Column[str]) -> sa.Select[Any]:
    """Return the agents whose latest run was registered, and began no session."""
    known = agents.outerjoin(host_keys, host_keys.c.node == agents.c.node)
    other = sa.or_(host_keys.c.process.is_(None), host_keys.c.process != agents.c.process)
    return sa.select(column).select_from(known).where(agents.c.process != RELEASED, other)


def forget(connection: sa.Connection, node: NodeUuid) -> None:
    """Forget that a node may speak unsigned: it was retired, and comes back as a new one."""
    connection.execute(sa.delete(unsigned_hosts).where(unsigned_hosts.c.node == node))


def _found(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> SessionRow | None:
    known = agents.outerjoin(host_keys, host_keys.c.node == agents.c.node)
    exchange_key = sa.case((host_keys.c.process == agents.c.process, host_keys.c.exchange_key)).label("exchange_key")
    wanted = sa.select(agents.c.node, agents.c.host, host_keys.c.process, exchange_key)
    found = connection.execute(wanted.select_from(known).where(condition)).first()
    if found is None:
        return None
    process = Incarnation(found.process or "")
    identity = AgentIdentity(node=NodeUuid(found.node), host=found.host, process=process)
    return SessionRow(identity=identity, exchange_key=found.exchange_key)
