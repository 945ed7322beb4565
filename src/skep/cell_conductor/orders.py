"""What conductors order their agents, sealed: whoever else listens reads nothing, and nobody else can order anything.

It stands around the transport of the cell, so that no story can forget it.
"""

from __future__ import annotations

from typing import TypeVar

from skep.cell_conductor.parts import Parts
from skep.cell_conductor.refusals import RefusedAgents
from skep.cell_conductor.sessions import Sessions
from skep.domain.context import RequestContext
from skep.messages.base import Call, Cast
from skep.messages.to_compute import Order, ReportHostNow
from skep.transport import codec
from skep.transport.base import Address, CellHandlers, Handlers, Subscription, compute

ReplyT = TypeVar("ReplyT")


class SealingTransport:
    """The cell's transport, on which orders to agents are sealed for the run that has registered."""

    def __init__(self, parts: Parts, sessions: Sessions, refusals: RefusedAgents) -> None:
        self._inner = parts.transport
        self._agents = compute(parts.cell.uuid, "")
        self._sessions = sessions
        self._refusals = refusals

    @property
    def proves_senders(self) -> bool:
        """As the transport inside."""
        return self._inner.proves_senders

    @property
    def connected(self) -> bool:
        """As the transport inside."""
        return self._inner.connected

    @property
    def reconnects(self) -> int:
        """As the transport inside."""
        return self._inner.reconnects

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint; one to an agent goes in its session, or in clear to one that may do without, or not at all."""
        if not address.startswith(self._agents) or isinstance(message, ReportHostNow) or self.proves_senders:
            await self._inner.cast(address, message, context)
            return
        host = address.removeprefix(self._agents)
        known = await self._sessions.of_host(host)
        if known is None:
            if await self._sessions.unsigned(None, host) is not None:
                await self._inner.cast(address, message, context)
            else:
                self._refusals.note(host, "its agent has not registered with signatures: it gets no orders", host=host)
            return
        known.ordered += 1
        mark, number = self._sessions.mark, known.ordered
        sealed = known.session.seal_to_agent(("order", mark, number), codec.encode(message, context))
        await self._inner.cast(address, Order(conductor=mark, number=number, sealed=sealed))

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Ask; agents are not asked."""
        return await self._inner.call(address, message, timeout=timeout, context=context)

    async def serve(self, address: Address, handlers: Handlers) -> Subscription:
        """Take messages, as the transport inside does."""
        return await self._inner.serve(address, handlers)

    async def serve_cells(self, role: Address, handlers: CellHandlers) -> Subscription:
        """Take messages of all cells, as the transport inside does."""
        return await self._inner.serve_cells(role, handlers)
