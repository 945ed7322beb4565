"""A line between processes and a server on this machine that can be cut: bytes wait, nobody is told, nothing is lost.

It does to its two ends what a network does that is split: connections stay, new ones are answered by nobody, and what
was sent arrives when the line is whole again. `reset` ends what is connected, as a firewall that forgot it does.
"""

from __future__ import annotations

import asyncio
import contextlib

from skep.http.closing import stop_accepting

CHUNK_BYTES = 65536


class Link:
    """A port on loopback behind which another port answers, as long as the line is whole."""

    def __init__(self, port: int) -> None:
        """Take the port of the server beneath."""
        self.port = 0
        self._beneath = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take a free port and carry what comes."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Carry nothing from now on."""
        self._whole.clear()

    def heal(self) -> None:
        """Carry everything again, what waits too."""
        self._whole.set()

    def reset(self) -> None:
        """End all connections."""
        for line in self._lines:
            line.cancel()

    async def stop(self) -> None:
        """Carry nothing any more and give up the port."""
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server)
        while self._lines:
            self.reset()
            await asyncio.wait(self._lines)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.close()
            return
        line = asyncio.create_task(self._carry(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)
        # A line that is cancelled before it begins closes nothing by itself.
        line.add_done_callback(lambda _line: writer.close())

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await self._whole.wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._beneath)
            ways = {
                asyncio.create_task(self._one_way(reader, to_server)),
                asyncio.create_task(self._one_way(from_server, writer)),
            }
            try:
                # Either end that hangs up ends the other's connection.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
                to_server.close()

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
            await self._whole.wait()
