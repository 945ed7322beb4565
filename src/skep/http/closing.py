"""The end of a port that took connections."""

from __future__ import annotations

import asyncio


async def stop_accepting(server: asyncio.Server) -> None:
    """Take no more connections on the ports of `server`, and have each one taken so far given to its protocol.

    The event loop of Python 3.11 takes a connection in one turn and gives it to the server in the next one. A server
    that is closed between the two loses it: its client gets neither an answer nor an end.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        for one in server.sockets:
            loop.remove_reader(one.fileno())
    for _ in range(2):
        await asyncio.sleep(0)
    server.close()
