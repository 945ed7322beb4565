"""Loopback ports of this machine inside other network namespaces: what connects there comes out here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from skep.compute.drivers.libvirt.bridged.listeners import listen_within
from skep.config.sections import LOOPBACK

PIECE = 1 << 16


class Relays:
    """Those into one network namespace: each port leads to the same port of this process's own loopback."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._carried: set[asyncio.Task[None]] = set()

    async def start(self, space: Path, ports: Sequence[int]) -> None:
        """Listen in the namespace that the file `space` is. Raises OSError."""
        for listener in await asyncio.to_thread(listen_within, space, [(LOOPBACK, port) for port in ports]):
            port = int(listener.getsockname()[1])

            async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port) -> None:
                await self._carry(reader, writer, port)

            self._servers.append(await asyncio.start_server(carry, sock=listener))

    async def stop(self) -> None:
        """Listen no more, and cut what is carried."""
        for server in self._servers:
            server.close()
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carried.add(task)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_pump(reader, inner_writer))
                    both.create_task(_pump(inner_reader, writer))
            finally:
                inner_writer.close()
        except* OSError:
            pass  # as to who connects: the other side is not there, or has gone
        finally:
            writer.close()
            self._carried.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
