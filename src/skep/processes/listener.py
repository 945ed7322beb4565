"""An HTTP listener of this process: uvicorn on a socket that is bound before anything else starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from skep.domain.errors import Misconfigured
from skep.processes.ports import family_of

DRAIN_SECONDS = 5
FIRST_REQUEST_SECONDS = 1.0
"""How long a connection that was taken may still say what it wants while the listener stops."""
LOOK_SECONDS = 0.02


class Listener:
    """Serves one application on one port until it is stopped; signals are the process's business, not its own."""

    def __init__(self, host: str, port: int, setting: str) -> None:
        """Bind the port; 0 takes a free one.

        Raises Misconfigured naming the port and its `setting` when it is taken.
        """
        self._socket = socket.socket(family_of(host), socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise Misconfigured(
                f"cannot listen on {host}:{port}: {error.strerror} (setting `{setting}`; 0 takes a free port)"
            ) from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """`http://host:port` of this listener."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self, app: ASGIApp) -> None:
        """Serve `app` from now on."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="httptools",
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=75,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"listener-{self.port}")
        await asyncio.wait({self._task, self._server.ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task

    def close(self) -> None:
        """Give up a port on which nothing was served."""
        self._socket.close()

    async def stop(self) -> None:
        """Take no more connections, finish the requests under way within a few seconds."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        self._socket.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set_result(None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let those that have not said anything yet do so, and end.

        uvicorn alone would close them at once, and a request that is on its way would get no answer.
        """
        # Whoever has connected before now is taken.
        await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for _ in range(round(FIRST_REQUEST_SECONDS / LOOK_SECONDS)):
            if all(getattr(one, "cycle", None) is not None for one in self.server_state.connections):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
