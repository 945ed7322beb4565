"""Messages inside one process: encoded all the same, so that what works here works over a wire."""

from __future__ import annotations

import asyncio
import itertools
from typing import TypeVar

import structlog

from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, Unreachable
from skep.messages.base import Call, Cast
from skep.transport import codec
from skep.transport.base import Address, Handlers

ReplyT = TypeVar("ReplyT")
log = structlog.get_logger("skep.transport")


class MemoryTransport:
    """A transport for one event loop. Servers of one address take turns."""

    def __init__(self) -> None:
        self._servers: dict[Address, list[_Server]] = {}
        self._turns = itertools.count()

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint; without a server it is lost, as on a wire."""
        await self.deliver(address, codec.encode(message, context))

    async def deliver(self, address: Address, data: bytes) -> None:
        """Hand an encoded message to one server of `address`, if there is one. The answer goes nowhere."""
        server = self._pick(address)
        if server is not None:
            server.start(data)

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
            raise Unreachable(f"nobody serves {address}")
        task = server.start(codec.encode(message, context))
        try:
            data = await asyncio.wait_for(asyncio.shield(task), timeout)
        except TimeoutError:
            raise Unreachable(f"{address} did not answer {type(message).__name__} in {timeout:g} s") from None
        reply: ReplyT = codec.decode_reply(data, message.reply_type)
        return reply

    async def serve(self, address: Address, handlers: Handlers) -> _Server:
        """Take messages for `address` until the returned subscription is closed."""
        server = _Server(self, address, handlers)
        self._servers.setdefault(address, []).append(server)
        return server

    def _pick(self, address: Address) -> _Server | None:
        servers = self._servers.get(address)
        return servers[next(self._turns) % len(servers)] if servers else None

    def remove(self, server: _Server) -> None:
        """Forget a closed server."""
        servers = self._servers.get(server.address, [])
        if server in servers:
            servers.remove(server)


class _Server:
    def __init__(self, transport: MemoryTransport, address: Address, handlers: Handlers) -> None:
        self.address = address
        self._transport = transport
        self._handlers = handlers
        self._under_way: set[asyncio.Task[bytes]] = set()

    def start(self, data: bytes) -> asyncio.Task[bytes]:
        task = asyncio.create_task(self._handle(data))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _handle(self, data: bytes) -> bytes:
        try:
            message, context = codec.decode(data)
        except SkepError as error:
            log.warning("message not understood", address=self.address, bytes=len(data), error=str(error))
            return codec.encode_error(error)
        handler = self._handlers.get(type(message))
        try:
            if handler is None:
                raise SkepError(f"{self.address} does not take {type(message).__name__}")
            return codec.encode_reply(await handler(message, context))
        except SkepError as error:
            if isinstance(message, Cast):
                log.warning("cast failed", address=self.address, message=type(message).__name__, error=str(error))
            return codec.encode_error(error)
        except Exception as error:
            log.exception("handler failed", address=self.address, message=type(message).__name__)
            return codec.encode_error(SkepError(f"{type(message).__name__} failed: {type(error).__name__}"))

    async def close(self) -> None:
        self._transport.remove(self)
        if self._under_way:
            await asyncio.wait(self._under_way)
