"""The sessions of the cell's agents, as one of its conductors knows them: derived from rows, when they are needed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import msgspec

from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import cell_keys, sessions
from skep.database.cell.sessions import SessionRow
from skep.domain.errors import NotFound
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import NodeUuid
from skep.domain.sessions import Numbers, Session, new_mark, public_half
from skep.messages.to_cell_conductor import Registration, Welcome

LOOK_AGAIN_SECONDS = 0.5
"""How often a row is read because of messages that are not of the session that is known."""
REMEMBERED = 100_000
"""Nodes of which it is remembered when their rows were read."""
UNSIGNED_SECONDS = 30.0
"""How long a host that may speak unsigned is believed hints, before its row is read again."""
MOST_LATE_MS = 10_000
"""How much later than its neighbours a hint may come."""


@dataclass(slots=True)
class KnownSession:
    """A session, and what this conductor has heard and said in it."""

    identity: AgentIdentity
    exchange_key: bytes
    session: Session
    numbers: Numbers = field(default_factory=Numbers)
    confirmed: bool = False
    """Whether the agent has shown this conductor's mark: what it says was not recorded before this conductor began."""
    ordered: int = 0
    """The number of the latest order."""
    greeted_at: float = 0.0
    _at: int = 0
    """The time by the agent's clock of the latest message, and when it came, in milliseconds."""
    _came: float = 0.0

    def is_late(self, at: int, now: float) -> bool:
        """Tell whether a message that was said `at` was held up on its way; the two clocks need not agree."""
        came = now * 1000
        if at >= self._at:
            self._at, self._came = at, came
            return False
        return self._at + (came - self._came) - at > MOST_LATE_MS


class Sessions:
    """Finds the session of a node or host; rows are read once, and again when another conductor registered a run."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.mark = new_mark()
        self._private: bytes | None = None
        self._public = b""
        self._of_node: dict[NodeUuid, KnownSession] = {}
        self._node_of: dict[str, NodeUuid] = {}
        self._looked: dict[NodeUuid, float] = {}
        self._unsigned: dict[tuple[str | None, str | None], tuple[float, AgentIdentity | None]] = {}

    async def of_node(self, node: NodeUuid, *, anew: bool = False) -> KnownSession | None:
        """Return the session of a node's agent, None when it has none; `anew`: what the row says, if it is time.

        Raises NotFound when the cell does not know the node.
        """
        known = self._of_node.get(node)
        if known is not None and not anew:
            return known
        now = time.monotonic()
        if now - self._looked.get(node, -LOOK_AGAIN_SECONDS) < LOOK_AGAIN_SECONDS and known is not None:
            return known
        if len(self._looked) >= REMEMBERED:
            self._looked.clear()
        self._looked[node] = now
        row = await self._parts.database.read(partial(sessions.of_node, node=node))
        if row is None:
            self._of_node.pop(node, None)
            raise NotFound(f"node {node} has not registered with cell {self._parts.cell.name}")
        return await self._of_row(row)

    async def of_host(self, host: str) -> KnownSession | None:
        """Return the session of a host's agent; None when it has none, or the cell does not know the host."""
        node = self._node_of.get(host)
        known = self._of_node.get(node) if node is not None else None
        if known is not None and known.identity.host == host:
            return known
        row = await self._parts.database.read(partial(sessions.of_host, host=host))
        return None if row is None else await self._of_row(row)

    async def unsigned(self, node: str | None, host: str | None, *, lately: bool = False) -> AgentIdentity | None:
        """Return the agent of a node or host that is believed without a session; None when there is none such.

        `lately`: as it was some seconds ago, which is good enough for hints.
        """
        if self._parts.require_signatures:
            return None
        now, key = time.monotonic(), (node, host)
        read_at, found = self._unsigned.get(key, (-UNSIGNED_SECONDS, None))
        if lately and now - read_at < UNSIGNED_SECONDS:
            return found

        def unit(connection: Connection) -> AgentIdentity | None:
            row = sessions.of_node(connection, NodeUuid(node)) if node else sessions.of_host(connection, host or "")
            if row is None or not sessions.may_be_unsigned(connection, row.identity.node):
                return None
            return row.identity

        found = await self._parts.database.read(unit)
        if len(self._unsigned) >= REMEMBERED:
            self._unsigned.clear()
        self._unsigned[key] = (now, found)
        return found

    async def open_cell(self) -> bytes:
        """Return the public half of the cell's key, which is made if there is none."""
        if self._private is None:
            now = self._parts.clock.now()
            self._private = await self._parts.database.write(partial(cell_keys.private_key, now=now))
            self._public = public_half(self._private)
        return self._public

    async def begun(self, identity: AgentIdentity, exchange_key: bytes) -> KnownSession:
        """Take up the session of a run that has just registered."""
        known = await self._of_row(SessionRow(identity=identity, exchange_key=exchange_key))
        assert known is not None
        return known

    async def welcome(self, session: Session, welcome: Welcome, challenge: bytes) -> Registration:
        """Return the answer to a registration, as only the agent that asked can read it."""
        sealed = session.seal_to_agent(("welcome", challenge), msgspec.msgpack.encode(welcome))
        return Registration(
            incarnation=welcome.incarnation,
            mapped=welcome.mapped,
            signed=True,
            cell_key=await self.open_cell(),
            welcome=sealed,
        )

    async def session_with(self, identity: AgentIdentity, exchange_key: bytes) -> Session:
        """Derive a session. Raises ValueError for what is no key."""
        await self.open_cell()
        assert self._private is not None
        return Session(self._private, exchange_key, self._parts.cell.uuid, identity)

    async def _of_row(self, row: SessionRow) -> KnownSession | None:
        node = row.identity.node
        known = self._of_node.get(node)
        if row.exchange_key is None:
            self._of_node.pop(node, None)
            return None
        if known is None or known.identity != row.identity or known.exchange_key != row.exchange_key:
            session = await self.session_with(row.identity, row.exchange_key)
            known = KnownSession(row.identity, row.exchange_key, session)
            self._of_node[node] = known
        self._node_of[row.identity.host] = node
        self._unsigned.pop((node, None), None)
        self._unsigned.pop((None, row.identity.host), None)
        return known
