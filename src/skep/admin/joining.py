"""What a new host of a cell is told of its messaging. Wiring knows it; handlers pass it on."""

from __future__ import annotations

import msgspec

from skep.domain.cells import Cell
from skep.domain.errors import Conflict
from skep.domain.ids import NodeUuid


class Messaging(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent reaches its cell."""

    url: str
    """Addresses of NATS servers, with the user and password of the cell's agents."""
    prefix: str
    ca: str = ""
    """The certificate (PEM) that signed the servers'; empty: one that every system knows, or no TLS."""
    credentials: str = ""
    """NATS credentials of this host alone; empty: hosts have no users of their own."""
    inbox: str = ""
    """Below which subject its answers arrive; empty: the usual one."""

    def __repr__(self) -> str:
        """Leaves out what signs in."""
        return f"Messaging(prefix={self.prefix!r}, inbox={self.inbox!r})"


async def nobody_joins(cell: Cell, _node: NodeUuid, _host: str) -> Messaging:
    """Let no host join. Raises Conflict."""
    raise Conflict(f"Cell {cell.name} accepts hosts of this process only.")
