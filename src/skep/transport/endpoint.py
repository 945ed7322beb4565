"""A served address, whatever carries its messages: decodes, hands over, encodes the answer; bounded in its work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from skep.domain.errors import Overloaded, SkepError, TooLarge, Unreachable
from skep.domain.ids import CellUuid
from skep.messages.base import Cast
from skep.telemetry import tracing
from skep.transport import codec
from skep.transport.base import Address, CellHandlers, Handlers
from skep.transport.refusals import RefusedMessages

Answer = Callable[[bytes], Awaitable[None]]
"""Carries an encoded answer back to who asked."""

log = structlog.get_logger("skep.transport")


def too_large(message: str, size: int, largest: int) -> TooLarge:
    """Return the error for a message that the wire does not take: who meets it asks for less, in pages."""
    return TooLarge(f"{message} has {size} bytes, and at most {largest} can be sent in one message: ask in pages")


def _unlimited() -> int:
    return 2**62


class Endpoint:
    """The handlers of one address, and what they have under way."""

    def __init__(
        self,
        address: Address,
        handlers: Handlers | CellHandlers,
        refusals: RefusedMessages,
        *,
        max_under_way: int,
        largest: Callable[[], int] = _unlimited,
    ) -> None:
        """Take at most `max_under_way` messages at once; an answer has at most `largest()` bytes.

        `CellHandlers` go with an address that stands for all cells: each message is then taken with its cell.
        """
        self.address = address
        self._handlers: Mapping[type[Any], Callable[..., Awaitable[Any]]] = handlers
        self._refusals = refusals
        self._max_under_way = max_under_way
        self._largest = largest
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    def take(self, data: bytes, answer: Answer | None, cell: CellUuid | None = None) -> bytes | None:
        """Begin to work on an encoded message; `answer` is None for one that nobody waits for.

        Returns an encoded error instead if it is not taken, for the carrier to send back if somebody waits.
        """
        if self._closed:
            return codec.encode_error(Unreachable(f"{self.address} is closing"))
        if len(self._under_way) >= self._max_under_way:
            self._refusals.note("cast" if answer is None else "call", "overloaded", self.address)
            return codec.encode_error(Overloaded(f"{self.address} has {len(self._under_way)} messages in hand"))
        task = asyncio.create_task(self._work(data, answer, cell))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return None

    async def finish(self) -> None:
        """Take no more; wait until everything under way came to its end and was answered."""
        self._closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _work(self, data: bytes, answer: Answer | None, cell: CellUuid | None) -> None:
        reply = await self._reply(data, cell)
        if answer is not None:
            await answer(reply)

    async def _reply(self, data: bytes, cell: CellUuid | None) -> bytes:
        """Have a message handled and return the encoded answer; of a cast it means nothing."""
        try:
            message, context, traceparent = codec.decode_traced(data)
        except SkepError as error:
            log.warning("message not understood", address=self.address, bytes=len(data), error=str(error))
            return codec.encode_error(error)
        name = message.wire_name
        handler = self._handlers.get(type(message))
        try:
            if handler is None:
                raise SkepError(f"{self.address} does not accept {name}")
            with tracing.message(name, traceparent, answered=not isinstance(message, Cast)):
                value = await (handler(message, context) if cell is None else handler(cell, message, context))
            if isinstance(message, Cast):
                return b""
            reply = codec.encode_reply(value)
            if len(reply) > self._largest():
                self._refusals.note("answer", "too_large", self.address)
                raise too_large(f"the answer to {name}", len(reply), self._largest())
            return reply
        except SkepError as error:
            if isinstance(message, Cast):
                log.warning("cast failed", address=self.address, message=name, error=str(error))
            return codec.encode_error(error)
        except Exception as error:
            log.exception("handler failed", address=self.address, message=name)
            return codec.encode_error(SkepError(f"{name} failed: {type(error).__name__}"))
