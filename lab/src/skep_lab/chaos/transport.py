"""A transport that does to messages what networks do: loses, repeats, delays and reorders them, as it is told.

A delayed message is overtaken by those sent after it, so delays are what reorders. A lost call is an answer that never
comes: `Unreachable` to the caller, with (`answer_lost`) or without (`lost`) its effect done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar, get_args

from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, Unreachable
from skep.messages.base import Call, Cast
from skep.transport.base import Address, CellHandlers, Handlers, Subscription
from skep.transport.memory import MemoryTransport

ReplyT = TypeVar("ReplyT")

Fate = Literal["delivered", "lost", "answer_lost", "repeated", "late", "very_late", "repeated_late"]
FATES: tuple[Fate, ...] = get_args(Fate)
DELAYS: dict[Fate, float] = {"late": 0.01, "very_late": 0.3, "repeated_late": 0.3}
"""Seconds."""

Decide = Callable[[Address, Any], Fate]
"""Says what becomes of a message."""


def delivered(_address: Address, _message: Any) -> Fate:
    """Deliver everything."""
    return "delivered"


class ChaosTransport:
    """Messages inside one process, by fate. No call waits longer than `longest_call` seconds."""

    def __init__(self, decide: Decide = delivered, *, longest_call: float = 10.0) -> None:
        self.decide = decide
        self._inner = MemoryTransport()
        self._longest_call = longest_call
        self._later: set[asyncio.Task[None]] = set()

    @property
    def proves_senders(self) -> bool:
        """Nothing leaves this process."""
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
        """Send a hint, or what becomes of it."""
        fate = self.decide(address, message)
        if fate in ("lost", "answer_lost"):
            return
        if fate not in ("late", "very_late"):
            await self._inner.cast(address, message, context)
        if fate == "repeated":
            await self._inner.cast(address, message, context)
        elif fate in DELAYS:
            self._start(self._cast_later(DELAYS[fate], address, message, context))

    async def call(
        self,
        address: Address,
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,
        context: RequestContext | None = None,
    ) -> ReplyT:
        """Ask, or what becomes of it; see `Transport.call`."""
        fate = self.decide(address, message)
        timeout = min(timeout, self._longest_call)
        if fate == "lost":
            raise Unreachable(f"{message.wire_name} was lost")
        if fate in ("late", "very_late"):
            await asyncio.sleep(DELAYS[fate])
        reply = await self._inner.call(address, message, timeout=timeout, context=context)
        if fate == "answer_lost":
            raise Unreachable(f"the answer to {message.wire_name} was lost")
        if fate == "repeated":
            return await self._inner.call(address, message, timeout=timeout, context=context)
        if fate == "repeated_late":
            self._start(self._call_later(DELAYS[fate], address, message, context))
        return reply

    async def serve(self, address: Address, handlers: Handlers) -> Subscription:
        """Take messages for `address`."""
        return await self._inner.serve(address, handlers)

    async def serve_cells(self, role: Address, handlers: CellHandlers) -> Subscription:
        """Take messages that cells send to `role`."""
        return await self._inner.serve_cells(role, handlers)

    async def settled(self) -> None:
        """Wait until nothing is on its way any more."""
        while self._later:
            await asyncio.wait(self._later)

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _cast_later(
        self, seconds: float, address: Address, message: Cast, context: RequestContext | None
    ) -> None:
        await asyncio.sleep(seconds)
        await self._inner.cast(address, message, context)

    async def _call_later(
        self, seconds: float, address: Address, message: Call[Any], context: RequestContext | None
    ) -> None:
        await asyncio.sleep(seconds)
        try:
            await self._inner.call(address, message, timeout=self._longest_call, context=context)
        except SkepError:
            # Nobody waits for this answer: its asker has another one.
            return
