"""An HTTP listener of this process: uvicorn on a socket that is bound before anything else starts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from skep.config.http import HttpSettings
from skep.domain.errors import Misconfigured
from skep.http.closing import stop_accepting
from skep.processes.forwarded import Forwarded
from skep.processes.http_connection import HttpConnection, PortGuard
from skep.processes.open_files import connections_within
from skep.processes.ports import family_of
from skep.processes.whole_bodies import WholeBodies
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics

DRAIN_SECONDS = 5
FIRST_REQUEST_SECONDS = 1.0
"""How long a connection that was taken may still say what it wants while the listener stops."""
LOOK_SECONDS = 0.02
MOST_OF_MESSAGE, QUEUED_MESSAGES = 64 * 1024, 8
"""Bytes of one message of a websocket, and how many wait until they are taken."""
BACKLOG = 512
"""Connections that the system may keep for a port until it takes them."""

log = get_logger(__name__)


class Listener:
    """Serves one application on one port until it is stopped; signals are the process's business, not its own."""

    def __init__(
        self,
        host: str,
        port: int,
        setting: str,
        *,
        limits: HttpSettings | None = None,
        metrics: Metrics | None = None,
        websockets: bool = False,
        zero: str = "0 takes a free port",
    ) -> None:
        """Bind the port; 0 takes a free one. Without `limits` those of the defaults hold.

        `zero`: what 0 means to who sets the port.

        `websockets`: whether clients may begin a websocket at the paths of consoles.

        Raises Misconfigured naming the port and its `setting` when it is taken.
        """
        self._limits = limits or HttpSettings()
        self._metrics = metrics or Metrics()
        self._setting = setting
        self._websockets = websockets
        self._socket = socket.socket(family_of(host), socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise Misconfigured(
                f"cannot listen on {host}:{port}: {error.strerror} (setting `{setting}`; {zero})"
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
        guard = PortGuard(self._limits, self._most(), self._count_refused)
        connection: Any = partial(HttpConnection, guard=guard)
        websocket: Any = guard.websocket
        config = uvicorn.Config(
            Forwarded(WholeBodies(app), self._limits.trusted_proxies),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=connection,
            ws=websocket if self._websockets else "none",
            ws_max_size=MOST_OF_MESSAGE,
            ws_max_queue=QUEUED_MESSAGES,
            ws_per_message_deflate=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=math.ceil(self._limits.idle_timeout),
        )
        self._metrics.http_connections.labels(self._setting).set_function(lambda: guard.count)
        self._server = _Server(config, guard)
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

    def _most(self) -> int:
        """Return how many connections the port takes: as configured, or what the system leaves for it."""
        most = connections_within(self._limits.max_connections)
        if most < self._limits.max_connections:
            log.warning("the limit of open files leaves fewer connections", port=self._setting, connections=most)
        return most

    def _count_refused(self, reason: str, count: int) -> None:
        self._metrics.http_refused.labels(self._setting, reason).inc(count)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, guard: PortGuard) -> None:
        super().__init__(config)
        self._guard = guard
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set_result(None)

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections: uvicorn comes here ten times a second."""
        self._guard.look(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let those that have not said anything yet do so, and end.

        uvicorn alone would close them at once, and a request that is on its way would get no answer.
        """
        for server in self.servers:
            await stop_accepting(server)
        for _ in range(round(FIRST_REQUEST_SECONDS / LOOK_SECONDS)):
            if all(getattr(one, "cycle", None) is not None for one in self.server_state.connections):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await super().shutdown(sockets)
        self._guard.end_all()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
