"""The server as one handle reaches it: two connections, made when they are needed and again when they were lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal

from skep.domain.errors import Unreachable
from skep.synchronizer.memcached import capacity
from skep.synchronizer.memcached.connection import MemcachedConnection, MemcachedReply

Connect = Callable[[], Awaitable[MemcachedConnection]]
Lane = Literal["reading", "writing"]
"""Writes do not wait behind long readings; what is written stays in order."""

PIPELINE = 500
"""Commands that are sent at once; of a long row of them the next such pipelines are on their way while one is read."""

AHEAD = 3


class MemcachedClient:
    """Connections to one server."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connections: dict[Lane, MemcachedConnection] = {}
        self._locks: dict[Lane, asyncio.Lock] = {"reading": asyncio.Lock(), "writing": asyncio.Lock()}
        self.closing = asyncio.Event()

    async def connection(self, lane: Lane) -> MemcachedConnection:
        """Return the connection that is used now.

        Raises Unreachable when there is none and none can be made, or when the handle was closed.
        """
        if self.closing.is_set():
            raise Unreachable("the handle was closed")
        connection = self._connections.get(lane)
        if connection is not None and not connection.closed:
            return connection
        async with self._locks[lane]:
            connection = self._connections.get(lane)
            if connection is None or connection.closed:
                connection = await self._connect()
                if self.closing.is_set():
                    connection.close()
                    raise Unreachable("the handle was closed")
                self._connections[lane] = connection
            return connection

    async def read(self, commands: Sequence[bytes]) -> list[MemcachedReply]:
        """Execute a few commands beside what is being written."""
        return await (await self.connection("reading")).execute(commands)

    async def stream(self, commands: Sequence[bytes]) -> AsyncIterator[list[MemcachedReply]]:
        """Execute many commands, some pipelines ahead of what is taken; yield their replies in order."""
        connection = await self.connection("reading")
        if len(commands) <= PIPELINE:
            yield await connection.execute(commands) if commands else []
            return
        sent: deque[asyncio.Future[list[MemcachedReply]]] = deque()
        for start in range(0, len(commands), PIPELINE):
            sent.append(connection.send(commands[start : start + PIPELINE]))
            if len(sent) > AHEAD:
                yield await connection.answer(sent.popleft())
        while sent:
            yield await connection.answer(sent.popleft())

    async def read_all(self, commands: Sequence[bytes]) -> list[MemcachedReply]:
        """Execute many commands; return all replies."""
        return [reply async for replies in self.stream(commands) for reply in replies]

    async def losses(self) -> int:
        """Return the server's count of lost items."""
        return capacity.losses(await (await self.connection("reading")).statistics())

    async def pause(self, seconds: float) -> None:
        """Wait.

        Raises Unreachable when the handle is closed meanwhile.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return
        raise Unreachable("the handle was closed")

    def close(self) -> None:
        """Disconnect; whatever waits gets Unreachable."""
        self.closing.set()
        for connection in self._connections.values():
            connection.close()
