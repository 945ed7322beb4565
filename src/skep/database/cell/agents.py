"""Agents: which hosts the cell has, and which run of each agent is the youngest."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database import once
from skep.database.cell import host_keys, resending, sessions
from skep.database.cell.tables import agents, retired_agents
from skep.domain.errors import StaleAgent
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import NodeUuid

row = agents.c


class RegisteredAgent(AgentIdentity, frozen=True, kw_only=True):
    """An agent that has registered with the cell."""

    incarnation: int
    mapped: bool
    fenced_at: int | None = None
    """Since when an operator says that its host is dead for good."""
    fence_due_at: int | None = None
    """When that takes effect, unless it is taken back before."""
    fence_in_effect: bool = False
    """What was on the host is given up."""
    stale_incarnation: int | None = None
    """The latest older run that spoke beside a younger one: two agents have this identity."""
    stale_at: int | None = None
    """When that was, microseconds since the epoch."""
    deleting_at: int | None = None
    """Since when the host is being deleted; no build goes there any more."""
    understands: frozenset[str] | None = None
    """The wire names of the messages that it takes; None: it has not said it to this cell."""
    capabilities: frozenset[str] | None = None
    """What its driver can do; None: it has not said it to this cell."""


def register(
    connection: sa.Connection,
    identity: AgentIdentity,
    now: int,
    understands: Collection[str] = (),
    capabilities: Collection[str] | None = None,
) -> RegisteredAgent:
    """Write an agent: a new process raises the incarnation, a repeat of the same one does not.

    A node that comes under another host's name, or a host that comes with another node, is a new identity: the row is
    keyed by the node, and a name that another node holds is refused by the database.
    """
    known = get(connection, identity.node)
    said = _said(identity.process, understands, capabilities)
    if known is not None and known.process == identity.process and known.host == identity.host:
        able = None if capabilities is None else frozenset(capabilities)
        if not understands or (known.understands, known.capabilities) == (frozenset(understands), able):
            return known
        connection.execute(agents.update().where(row.node == identity.node).values(**said))
        return msgspec.structs.replace(known, understands=frozenset(understands), capabilities=able)
    if known is None:
        connection.execute(
            agents.insert(),
            {
                "node": identity.node,
                "host": identity.host,
                "incarnation": _after_retirement(connection, identity.node),
                "process": identity.process,
                "mapped": False,
                "registered_at": now,
                **said,
            },
        )
    else:
        connection.execute(
            agents.update()
            .where(row.node == identity.node)
            .values(
                host=identity.host,
                incarnation=row.incarnation + 1,
                process=identity.process,
                mapped=sa.and_(row.mapped, row.host == identity.host),
                registered_at=now,
                **said,
            )
        )
        resending.host_started(connection, identity.host, identity.node)
    registered = get(connection, identity.node)
    assert registered is not None
    return registered


def _said(process: str, understands: Collection[str], capabilities: Collection[str] | None) -> dict[str, str | None]:
    """Return the columns of what an agent says of itself; none where it says nothing."""
    if not understands:
        return {}
    able = None if capabilities is None else json.dumps(sorted(capabilities))
    return {"understands": json.dumps(sorted(understands)), "understood_of": process, "capabilities": able}


def get(connection: sa.Connection, node: NodeUuid) -> RegisteredAgent | None:
    """Return the agent of a node."""
    found = connection.execute(sa.select(agents).where(row.node == node)).first()
    return None if found is None else _agent(found)


def has(connection: sa.Connection, host: str) -> bool:
    """Tell whether the cell has an agent of this host."""
    return connection.execute(sa.select(agents.c.node).where(row.host == host).limit(1)).first() is not None


def check_current(connection: sa.Connection, host: str, incarnation: int | None) -> None:
    """Raise StaleAgent when a younger agent of this host has registered than the one that speaks."""
    if incarnation is None:
        return
    current = connection.execute(_CURRENT, {"of": host}).scalar_one_or_none()
    if current is not None and incarnation < current:
        raise StaleAgent(f"agent {incarnation} of host {host} is older than agent {current}, which has registered")


_CURRENT = sa.select(row.incarnation).where(row.host == sa.bindparam("of"))
"""Made once: it is asked with every step of a build."""


def taking(connection: sa.Connection, hosts: Collection[str], wire_name: str) -> set[str]:
    """Return those of `hosts` whose agents take this message, as far as they said."""
    if not hosts:
        return set()
    found = connection.execute(_OF_HOSTS, {"on": sorted(set(hosts))})
    return {agent.host for agent in map(_agent, found) if wire_name in (agent.understands or ())}


_OF_HOSTS = sa.select(agents).where(row.host.in_(sa.bindparam("on", expanding=True)))


def without(connection: sa.Connection, wire_name: str, capability: str) -> list[NodeUuid]:
    """Return the nodes whose agents do not take this message, or whose drivers lack this, as far as they said."""

    def look() -> list[NodeUuid]:
        return [
            NodeUuid(found.node)
            for found in connection.execute(_ABILITIES)
            if found.understood_of != found.process
            or wire_name not in _words(found.understands)
            or capability not in _words(found.capabilities)
        ]

    # Moves that begin together share what was found.
    return once.made(connection, ("without", wire_name, capability), look)


_ABILITIES = sa.select(row.node, row.process, row.understood_of, row.understands, row.capabilities).order_by(row.host)


def lacks(connection: sa.Connection, host: str, capability: str) -> bool:
    """Tell whether the agent of a host has said what its driver can do, and this is not among it."""
    found = connection.execute(_OF_HOST, {"on": host}).first()
    able = None if found is None else _agent(found).capabilities
    return able is not None and capability not in able


def is_able(connection: sa.Connection, host: str, capability: str) -> bool:
    """Tell whether the agent of a host has said that its driver can do this."""
    found = connection.execute(_OF_HOST, {"on": host}).first()
    return found is not None and capability in (_agent(found).capabilities or ())


def having(connection: sa.Connection, nodes: Collection[NodeUuid], capability: str) -> set[NodeUuid]:
    """Return those of `nodes` whose agents have said in their present run that their drivers can do this."""
    found = connection.execute(sa.select(agents).where(row.node.in_(sorted(nodes))))
    return {agent.node for agent in map(_agent, found) if capability in (agent.capabilities or ())}


_OF_HOST = sa.select(agents).where(row.host == sa.bindparam("on"))


def note_stale(connection: sa.Connection, node: NodeUuid, incarnation: int, now: int) -> None:
    """Note that an older agent spoke beside a younger one with its identity."""
    connection.execute(agents.update().where(row.node == node).values(stale_incarnation=incarnation, stale_at=now))


def noted(connection: sa.Connection) -> list[RegisteredAgent]:
    """Return the agents of fenced hosts, marked ones too, and those beside which an older one spoke."""
    where = sa.or_(row.stale_at.is_not(None), row.fenced_at.is_not(None), row.fence_marked_at.is_not(None))
    return [_agent(found) for found in connection.execute(sa.select(agents).where(where))]


def raise_incarnation(connection: sa.Connection, node: NodeUuid, process: str, above: int) -> int | None:
    """Give the agent a number above one that schedulers know; None when it is no longer this process' agent.

    For a database that was set back: the numbers that it gives were given before.
    """
    mine = sa.and_(row.node == node, row.process == process)
    lower = sa.and_(mine, row.incarnation <= above)
    connection.execute(agents.update().where(lower).values(incarnation=above + 1))
    return connection.execute(sa.select(row.incarnation).where(mine)).scalar_one_or_none()


def list_all(connection: sa.Connection) -> list[RegisteredAgent]:
    """Return all agents of the cell."""
    return [_agent(found) for found in connection.execute(sa.select(agents).order_by(row.host))]


def unmapped(connection: sa.Connection) -> list[RegisteredAgent]:
    """Return the agents whose node the API database does not map to this cell yet."""
    return [_agent(found) for found in connection.execute(sa.select(agents).where(row.mapped.is_(False)))]


def mark_mapped(connection: sa.Connection, nodes: Sequence[NodeUuid]) -> None:
    """Note that nodes are mapped to this cell."""
    connection.execute(agents.update().where(row.node.in_(nodes)).values(mapped=True))


def unmark_mapped(connection: sa.Connection, node: NodeUuid) -> bool:
    """Note that a node is not mapped, so that the API level maps it; False when that is noted already."""
    mine = sa.and_(row.node == node, row.mapped)
    return connection.execute(agents.update().where(mine).values(mapped=False)).rowcount > 0


def retire(connection: sa.Connection, node: NodeUuid, process: str) -> bool:
    """Forget an agent and its key, so that its node may come again as a new host; tell whether it was known.

    Where another run than `process` has registered since, the host is here again: it is only to be mapped anew.
    """
    mine = sa.and_(row.node == node, row.process == process)
    number = connection.execute(sa.delete(agents).where(mine).returning(row.incarnation)).scalar_one_or_none()
    if number is not None:
        connection.execute(sa.insert(retired_agents).values(node=node, incarnation=number))
        host_keys.release(connection, node)
        sessions.forget(connection, node)
        return True
    connection.execute(agents.update().where(row.node == node).values(mapped=False, deleting_at=None))
    return False


def begin_deletion(connection: sa.Connection, node: NodeUuid, now: int) -> RegisteredAgent | None:
    """Mark a host as being deleted: no build is sent there from now on; return its agent if the cell knows it."""
    connection.execute(agents.update().where(row.node == node).values(deleting_at=now))
    return get(connection, node)


def take_deletion_back(connection: sa.Connection, node: NodeUuid, began_at: int) -> None:
    """Let builds go to a host again, unless it is being deleted anew."""
    mine = sa.and_(row.node == node, row.deleting_at == began_at)
    connection.execute(agents.update().where(mine).values(deleting_at=None))


def deleting(connection: sa.Connection) -> list[RegisteredAgent]:
    """Return the agents of hosts that are being deleted."""
    return [_agent(found) for found in connection.execute(sa.select(agents).where(row.deleting_at.is_not(None)))]


def closed(connection: sa.Connection, nodes: Collection[NodeUuid]) -> set[NodeUuid]:
    """Return those of `nodes` to which no build may go: their hosts are being deleted, or were."""
    return {NodeUuid(node) for node in connection.scalars(_CLOSED, {"nodes": sorted(set(nodes))})}


_NODES: sa.BindParameter[str] = sa.bindparam("nodes", expanding=True)
_CLOSED = (
    sa.select(row.node)
    .where(row.node.in_(_NODES), row.deleting_at.is_not(None))
    .union(sa.select(retired_agents.c.node).where(retired_agents.c.node.in_(_NODES)))
)


def _after_retirement(connection: sa.Connection, node: NodeUuid) -> int:
    """Return the number of an agent whose node is new here, or was forgotten."""
    forgotten = sa.delete(retired_agents).where(retired_agents.c.node == node).returning(retired_agents.c.incarnation)
    return (connection.execute(forgotten).scalar_one_or_none() or 0) + 1


def _agent(found: Any) -> RegisteredAgent:
    return RegisteredAgent(
        node=found.node,
        host=found.host,
        incarnation=found.incarnation,
        process=found.process,
        mapped=found.mapped,
        fenced_at=found.fenced_at if found.fence_marked_at is None else found.fence_marked_at,
        fence_due_at=found.fenced_at if found.fence_due_at is None else found.fence_due_at,
        fence_in_effect=found.fenced_at is not None,
        stale_incarnation=found.stale_incarnation,
        stale_at=found.stale_at,
        deleting_at=found.deleting_at,
        understands=_words(found.understands) if found.understood_of == found.process else None,
        capabilities=_capabilities(found),
    )


def other_node_of(connection: sa.Connection, host: str, node: NodeUuid) -> NodeUuid | None:
    """Return the node that holds the name `host`, if it is another than `node`."""
    found = connection.execute(sa.select(row.node).where(row.host == host, row.node != node)).scalar_one_or_none()
    return None if found is None else NodeUuid(found)


def _capabilities(found: Any) -> frozenset[str] | None:
    if found.capabilities is None or found.understood_of != found.process:
        return None
    return _words(found.capabilities)


@lru_cache(maxsize=256)
def _words(stored: str | None) -> frozenset[str]:
    """Read what an agent said of itself: most agents say the same."""
    return frozenset(() if stored is None else json.loads(stored))
