"""A bus that proves nothing and hides nothing: whoever listens hears all messages, and may send what he likes."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from skep.domain.context import RequestContext
from skep.messages.base import Call, Cast
from skep.transport import codec
from skep.transport.base import Address
from skep.transport.memory import MemoryTransport

ReplyT = TypeVar("ReplyT")


class OpenBus(MemoryTransport):
    """Messages inside one process that are recorded, as encoded, and vouched for by nobody."""

    def __init__(self) -> None:
        super().__init__(proves_senders=False)
        self.recorded: list[tuple[Address, bytes]] = []
        """Everything that was sent, in order; answers stand with the address that gave them."""

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        """Send a hint."""
        self.recorded.append((address, codec.encode(message, context)))
        await super().cast(address, message, context)

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Ask one server of `address`."""
        self.recorded.append((address, codec.encode(message, context)))
        reply = await super().call(address, message, timeout=timeout, context=context)
        answer: Any = reply
        self.recorded.append((Address(f"answer of {address}"), msgspec.msgpack.encode(answer)))
        return reply

    def heard_at(self, *words: str) -> list[tuple[Address, bytes]]:
        """Return what was recorded of addresses that have one of these words."""
        return [(address, data) for address, data in self.recorded if set(address.split(".")) & set(words)]
