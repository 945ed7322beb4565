"""One connection to memcached: many commands in one write, their replies in order.

The server executes the commands of a connection one after the other, which the backend builds upon: what stands earlier
in a pipeline is there before what stands later. Commands are those of memcached's meta protocol (`commands.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from skep.domain.errors import Unreachable

CONNECT_SECONDS = 3.0
CALL_SECONDS = 5.0
"""A pipeline that is not answered in this time has failed, and its connection is given up."""


class MemcachedReply(NamedTuple):
    """What the server answered to one command."""

    status: bytes
    """HD (done), VA (a value), EN or NF (nothing there), NS (not stored), EX (the token is another), ERROR."""
    cas: int = 0
    """The item's compare-and-swap token, where it was asked for."""
    flags: int = 0
    """The item's client flags, where they were asked for."""
    value: bytes = b""
    """The value; of ERROR the server's line, of statistics their lines."""


class _Waiting(NamedTuple):
    future: asyncio.Future[list[MemcachedReply]]
    replies: list[MemcachedReply]
    expected: int


class MemcachedConnection(asyncio.Protocol):
    """A connection that is used until it fails; then another is made."""

    def __init__(self, server: str = "memcached") -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._buffer = bytearray()
        self._needed = 0
        """How many bytes the next reply is known to take, so that a large value is not parsed for each piece of it."""
        self._statistics: list[bytes] = []

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect.

        Raises Unreachable when the server does not take the connection in time.
        """
        name = f"memcached at {host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(lambda: cls(name), host, port)
        except OSError as error:  # a timeout is one too, without words
            raise Unreachable(f"{name}: {str(error) or 'no answer'}") from error
        return connection

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None

    def send(self, commands: Sequence[bytes]) -> asyncio.Future[list[MemcachedReply]]:
        """Hand the commands to the kernel at once, in order; the future has one reply for each.

        Raises Unreachable, as does the future, when the connection is gone: which commands were executed is not known
        then, but that they are the first so many.
        """
        if self._transport is None:
            raise self._gone()
        future: asyncio.Future[list[MemcachedReply]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(future, [], len(commands)))
        self._transport.write(b"".join(commands))
        return future

    async def execute(self, commands: Sequence[bytes]) -> list[MemcachedReply]:
        """Send the commands and wait for their replies.

        Raises Unreachable when they do not come in time.
        """
        return await self.answer(self.send(commands))

    async def answer(self, future: asyncio.Future[list[MemcachedReply]]) -> list[MemcachedReply]:
        """Wait for the replies of what was sent.

        Raises Unreachable when they do not come in time.
        """
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await future
        except TimeoutError:
            self.close()
            raise Unreachable(f"{self._server} did not answer in {CALL_SECONDS:g} s") from None

    async def statistics(self, group: str = "") -> dict[str, str]:
        """Return the server's statistics, or those of a group (`settings`)."""
        (reply,) = await self.execute([f"stats {group}".strip().encode() + b"\r\n"])
        pairs = (line.split(b" ", 2) for line in reply.value.split(b"\n") if line)
        return {pair[1].decode(): pair[2].decode() for pair in pairs if len(pair) == 3}

    def close(self) -> None:
        """Give the connection up; those who wait get Unreachable."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        while self._waiting:
            future = self._waiting.popleft().future
            if not future.done():
                future.set_exception(self._gone())
                future.exception()  # whoever sent it may have been cancelled: then nobody is left to hear of it

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the reason is in the system's hands
        """Tell those who wait."""
        self.close()

    def data_received(self, data: bytes) -> None:
        """Take replies as they come."""
        self._buffer += data
        if len(self._buffer) < self._needed:
            return
        self._needed = 0
        position = 0
        while self._waiting:
            taken = self._take(position)
            if taken == position:
                break
            position = taken
        del self._buffer[:position]
        if self._buffer and not self._waiting:  # nobody asked: replies and commands are out of step
            self.close()

    def _take(self, position: int) -> int:
        """Take one reply that begins at `position`; return where the next one begins, `position` if it is not whole."""
        end = self._buffer.find(b"\r\n", position)
        if end < 0:
            return position
        line = bytes(self._buffer[position:end])
        after = end + 2
        status = line[:2]
        if status == b"VA":
            size, _, marks = line[3:].partition(b" ")
            after += int(size) + 2
            if len(self._buffer) < after:
                self._needed = after - position
                return position
            self._answer(_reply(status, marks, bytes(self._buffer[end + 2 : after - 2])))
        elif len(line) == 2 or line[2:3] == b" ":
            self._answer(_reply(status, line[3:], b""))
        elif line.startswith(b"STAT "):
            self._statistics.append(line)
        elif line == b"END":
            statistics, self._statistics = self._statistics, []
            self._answer(MemcachedReply(line, value=b"\n".join(statistics)))
        else:
            self._answer(MemcachedReply(b"ERROR", value=line))
        return after

    def _answer(self, reply: MemcachedReply) -> None:
        waiting = self._waiting[0]
        waiting.replies.append(reply)
        if len(waiting.replies) == waiting.expected:
            self._waiting.popleft()
            if not waiting.future.done():
                waiting.future.set_result(waiting.replies)

    def _gone(self) -> Unreachable:
        return Unreachable(f"{self._server}: the connection ended")


def _reply(status: bytes, marks: bytes, value: bytes) -> MemcachedReply:
    if marks.startswith(b"c") and b" " not in marks:
        return MemcachedReply(status, int(marks[1:]), 0, value)
    numbers = {mark[:1]: int(mark[1:]) for mark in marks.split()}
    return MemcachedReply(status, numbers.get(b"c", 0), numbers.get(b"f", 0), value)
