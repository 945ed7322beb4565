"""A connection that speaks websocket after its request: uvicorn's, which a port can look after and cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState


class WebsocketConnection(WebSocketsSansIOProtocol):
    """One websocket.

    uvicorn closes a transport only once all that was written is taken; a client that reads nothing would keep it.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        came: Callable[[WebsocketConnection], None],
        left: Callable[[WebsocketConnection], None],
    ) -> None:
        """`came` and `left` hear of the connection when it begins and when it is gone."""
        super().__init__(config, server_state, app_state, _loop)
        self._came = came
        self._left = left
        self._stalled_at: float | None = None
        self._ending_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a client."""
        super().connection_made(transport)
        self._came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._left(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not take what is said as fast as it comes."""
        self._stalled_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client took some of it."""
        self._stalled_at = None
        super().resume_writing()

    async def run_asgi(self) -> None:
        """Run the application; a connection that it could not end is cut."""
        await super().run_asgi()
        if not self.close_sent and not self.writable.is_set():
            self.end()

    def waits_since(self, now: float) -> float | None:
        """Return since when the client takes nothing, or does not go though all is said; None while it may stay."""
        if self._ending_at is None and (self.close_sent or self.transport.is_closing()):
            self._ending_at = now
        return self._stalled_at if self._ending_at is None else self._ending_at

    def end(self) -> None:
        """Cut the connection now."""
        self.transport.abort()
