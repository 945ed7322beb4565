"""Loopback ports of this machine inside other network namespaces: what connects there comes out here."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from skep.config.sections import LOOPBACK

CLONE_NEWNET = 0x40000000
"""Of Linux' setns(2): the file is a network namespace."""
BACKLOG = 128
PIECE = 1 << 16


class Relays:
    """Those into one network namespace: each port leads to the same port of this process's own loopback."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._carried: set[asyncio.Task[None]] = set()

    async def start(self, space: Path, ports: Sequence[int]) -> None:
        """Listen in the namespace that the file `space` is. Raises OSError."""
        for listener in await asyncio.to_thread(listen_within, space, ports):
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


def listen_within(space: Path, ports: Sequence[int]) -> list[socket.socket]:
    """Return sockets that listen at these loopback ports of a network namespace. Blocks. Raises OSError.

    A socket stays in the namespace in which it was made. A thread that ends then has gone there for it.
    """
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            _enter(space)
            made.extend(socket.create_server((LOOPBACK, port), backlog=BACKLOG) for port in ports)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="relays")
    thread.start()
    thread.join()
    for error in failed:
        for one in made:
            one.close()
        raise error
    return made


def _enter(space: Path) -> None:
    """Have this thread be in a network namespace. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with space.open("rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(space))
