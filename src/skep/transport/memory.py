"""Messages inside one process: encoded all the same, so that what works here works over a wire."""

from __future__ import annotations

import asyncio
import itertools
from typing import TypeVar

from skep.config.sections import TransportSettings
from skep.domain.context import RequestContext
from skep.domain.errors import Unreachable
from skep.domain.ids import CellUuid
from skep.messages.base import Call, Cast
from skep.transport import codec
from skep.transport.base import Address, CellHandlers, Handlers
from skep.transport.endpoint import Endpoint, too_large
from skep.transport.refusals import OnRefused, RefusedMessages

ReplyT = TypeVar("ReplyT")


class MemoryTransport:
    """A transport for one event loop. Servers of one address take turns."""

    def __init__(
        self,
        settings: TransportSettings | None = None,
        *,
        on_refused: OnRefused | None = None,
        largest: int = 2**62,
        proves_senders: bool = True,
    ) -> None:
        """Take messages of at most `largest` bytes, as a wire does; without it memory is the bound.

        With `proves_senders` false it vouches for no sender, as a wire does not.
        """
        self.proves_senders = proves_senders
        self._settings = settings or TransportSettings()
        self._largest = largest
        self.refusals = RefusedMessages(on_refused)
        self._servers: dict[Address, list[_Server]] = {}
        self._turns = itertools.count()

    @property
    def connected(self) -> bool:
        """Memory is always there."""
        return True

    @property
    def reconnects(self) -> int:
        """Memory is never lost."""
        return 0

    async def open(self) -> None:
        """Nothing is to be connected."""

    async def close(self) -> None:
        """Nothing is to be disconnected; served addresses are closed by whoever serves them."""

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint; without a server it is lost, as on a wire."""
        await self.deliver(address, self._encoded(message, context))

    async def deliver(self, address: Address, data: bytes) -> None:
        """Hand an encoded message to one server of `address`, if there is one. The answer goes nowhere."""
        server = self._pick(address)
        if server is not None:
            server.endpoint.take(data, None, server.cell_of(address))

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Ask one server of `address`; see `Transport.call`."""
        server = self._pick(address)
        if server is None:
            raise Unreachable(f"no process serves {address}")
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def settle(reply: bytes) -> None:
            if not waiting.done():
                waiting.set_result(reply)

        refusal = server.endpoint.take(self._encoded(message, context), settle, server.cell_of(address))
        if refusal is None:
            try:
                async with asyncio.timeout(timeout):
                    data = await waiting
            except TimeoutError:
                raise Unreachable(f"{address} did not answer {message.wire_name} in {timeout:g} s") from None
        else:
            data = refusal
        reply: ReplyT = codec.decode_reply(data, message.reply_type)
        return reply

    async def serve(self, address: Address, handlers: Handlers) -> _Server:
        """Take messages for `address` until the returned subscription is closed."""
        return self._serve(address, handlers, of_cells=False)

    async def serve_cells(self, role: Address, handlers: CellHandlers) -> _Server:
        """Take messages for `cell.CELL.ROLE` of every cell, as `serve` does."""
        return self._serve(Address(f"cell.*.{role}"), handlers, of_cells=True)

    def _serve(self, address: Address, handlers: Handlers | CellHandlers, *, of_cells: bool) -> _Server:
        endpoint = Endpoint(
            address,
            handlers,
            self.refusals,
            max_under_way=self._settings.max_under_way,
            largest=lambda: self._largest,
        )
        server = _Server(self, endpoint, of_cells=of_cells)
        self._servers.setdefault(address, []).append(server)
        return server

    def _encoded(self, message: Cast | Call[ReplyT], context: RequestContext | None) -> bytes:
        data = codec.encode(message, context)
        if len(data) > self._largest:
            self.refusals.note("cast" if isinstance(message, Cast) else "call", "too_large", message.wire_name)
            raise too_large(message.wire_name, len(data), self._largest)
        return data

    def _pick(self, address: Address) -> _Server | None:
        servers = self._servers.get(address) or self._servers.get(_of_every_cell(address))
        return servers[next(self._turns) % len(servers)] if servers else None

    def remove(self, server: _Server) -> None:
        """Forget a closed server."""
        servers = self._servers.get(server.endpoint.address, [])
        if server in servers:
            servers.remove(server)


def _of_every_cell(address: Address) -> Address:
    """Return where those listen who serve this address for all cells."""
    words = address.split(".", 2)
    return Address(f"cell.*.{words[2]}") if len(words) == 3 and words[0] == "cell" else address


class _Server:
    def __init__(self, transport: MemoryTransport, endpoint: Endpoint, *, of_cells: bool) -> None:
        self.endpoint = endpoint
        self._transport = transport
        self._of_cells = of_cells

    def cell_of(self, address: Address) -> CellUuid | None:
        """Return the cell that an address names, where this serves those of all cells."""
        return CellUuid(address.split(".")[1]) if self._of_cells else None

    async def close(self) -> None:
        self._transport.remove(self)
        await self.endpoint.finish()
