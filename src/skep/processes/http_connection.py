"""A connection of an HTTP port that holds its client to limits, and what looks after all connections of a port.

uvicorn speaks HTTP and calls the application. It sets no bound to the size of headers, to the time that a client takes
for its part, or to connections while it goes on answering; these stand here, below every application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from skep.config.http import HttpSettings
from skep.domain.consoles import PATHS
from skep.processes.http_limits import (
    Candidate,
    ConnectionLook,
    ConnectionStage,
    Watch,
    deadline,
    look_seconds,
    make_room,
    watch,
)
from skep.processes.websocket_connection import WebsocketConnection
from skep.telemetry.logs import get_logger

MAX_PIPELINED = 16
"""Requests of one connection that wait behind one that is served; after these the connection ends."""
WEBSOCKET_PATHS = frozenset(path.encode() for path in PATHS.values())
ROOM_SHARE = 32
"""This share of all connections makes room at once, so that a flood does not cost a look at all for each of its own."""

log = get_logger(__name__)


class PortGuard:
    """The connections of one port: how many there are, whose time is over, which make room."""

    def __init__(self, limits: HttpSettings, most: int, said: Callable[[str, int], None]) -> None:
        """`most` connections are open at once; `said` is told a reason and how many connections ended for it."""
        self.limits = limits
        self.said = said
        self._most = most
        self._connections: dict[HttpConnection, Watch | None] = {}
        self._websockets: set[WebsocketConnection] = set()
        self._next_look = 0.0

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def admit(self, connection: HttpConnection, now: float) -> None:
        """Take a new connection, at the cost of others or of itself when there are too many."""
        if len(self._connections) >= self._most:
            seats = max(1, self._most // ROOM_SHARE)
            ended = make_room(
                (
                    Candidate(one, one.address, one.seen().stage, known.since if known else one.begun)
                    for one, known in self._connections.items()
                ),
                len(self._connections) - self._most + seats,
            )
            if not ended:
                self.said("too_many_connections", 1)
                connection.refuse(503, "There are too many connections. Try again in a second.")
            else:
                self.said("made_room", len(ended))
                log.warning("connections ended to make room", ended=len(ended), open=len(self._connections))
            for one in ended:
                del self._connections[one]
                one.end()
        self._connections[connection] = watch(None, connection.seen(), now)

    def leave(self, connection: HttpConnection) -> None:
        """Forget a connection that is gone."""
        self._connections.pop(connection, None)

    def websocket(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> WebsocketConnection:
        """Return what speaks with a client after its request for a websocket."""
        return WebsocketConnection(
            config, server_state, app_state, came=self._websockets.add, left=self._websockets.discard
        )

    def look(self, now: float) -> None:
        """End what is overdue; called often, it looks as often as the limits need."""
        if now < self._next_look:
            return
        self._next_look = now + look_seconds(self.limits)
        for connection, before in list(self._connections.items()):
            known = self._connections[connection] = watch(before, connection.seen(), now)
            until = deadline(known, self.limits)
            if until is not None and now >= until:
                connection.overdue(known.seen.stage)
            elif connection.stalled_at is not None and now >= connection.stalled_at + self.limits.send_timeout:
                self.said("answer_not_taken", 1)
                connection.end()
        for websocket in tuple(self._websockets):
            since = websocket.waits_since(now)
            if since is not None and now >= since + self.limits.send_timeout:
                self.said("answer_not_taken", 1)
                websocket.end()

    def end_all(self) -> None:
        """Cut what is left of all connections."""
        for connection in list(self._connections):
            connection.end()
        for websocket in tuple(self._websockets):
            websocket.end()


class _OverLimit(Exception):
    """Ends the parser's work on a request that is over a limit."""


class HttpConnection(HttpToolsProtocol):
    """One connection, as uvicorn serves it, within limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        guard: PortGuard,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._guard = guard
        self._limits = guard.limits
        self.begun = self.loop.time()
        self.address = ""
        self.stalled_at: float | None = None
        """Since when the client takes nothing of its answer; None while it does."""
        self._begun_requests = 0
        self._whole_requests = 0
        self._in_head = False
        self._headed = False
        """Whether there was a request with all its headers and a target: `cycle` is the last of these."""
        self._head_bytes = 0
        """Of the request line and the headers that were parsed."""
        self._unparsed = 0
        """Bytes that the parser took and of which nothing has come out yet."""
        self._header_count = 0
        self._body_bytes = 0
        self._deaf = False
        """Whether what the client sends is dropped unread: it was refused, or asked for more than it may."""
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a client."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._guard.admit(self, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._guard.leave(self)
        super().connection_lost(exc)

    def seen(self) -> ConnectionLook:
        """Return what this connection waits for."""
        return ConnectionLook(self._stage(), self._begun_requests, self._body_bytes)

    def _stage(self) -> ConnectionStage:
        if self._refused or self.transport.is_closing():
            return ConnectionStage.ENDING
        if self._in_head:
            return ConnectionStage.SERVED if self._busy else ConnectionStage.HEAD
        if self._whole_requests < self._begun_requests:
            if self.cycle.response_complete:
                return ConnectionStage.LEFTOVER
            waits = self.flow.read_paused or self.cycle.waiting_for_100_continue or self.pipeline
            return ConnectionStage.SERVED if waits else ConnectionStage.BODY
        if self._busy:
            return ConnectionStage.SERVED
        return ConnectionStage.IDLE if self._headed else ConnectionStage.SILENT

    @property
    def _busy(self) -> bool:
        """Whether the application has a request of this connection in hand, or one that waits."""
        return self._headed and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        self._unset_keepalive_if_required()
        if self._deaf:
            return
        begun, whole, body = self._begun_requests, self._whole_requests, self._body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._upgrades():
                if self._busy:
                    # The answers that are due would go into the websocket.
                    self._refuse_request("malformed", 400, "A websocket begins when all requests are answered.")
                    return
                self._guard.leave(self)
                self.handle_websocket_upgrade()
            return  # Nothing else is spoken here but HTTP/1: the request is answered as it stands.
        except httptools.HttpParserError:
            if not self._deaf:
                self._refuse_request("malformed", 400, "This is not an HTTP request.")
            return
        if self._begun_requests > begun and self._whole_requests > whole:
            return  # How much of it belongs to the request that began is not known, and no more than one read.
        if self._in_head or self._body_bytes == body:
            self._unparsed += len(data)
            if self._unparsed > self._limits.max_header_bytes:
                self._refuse_head()
        else:
            self._unparsed = 0

    def eof_received(self) -> None:
        """Answer a request that its client ends before its end; then the connection closes."""
        if not self._deaf and (self._in_head or self._whole_requests < self._begun_requests):
            self._refuse_request("broken_off", 400, "The request broke off before its end.")

    def on_message_begin(self) -> None:
        """Begin to count for a request."""
        self._begun_requests += 1
        self._in_head = True
        self._head_bytes = self._unparsed = self._header_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; those after a chunked body count like those before it."""
        self._header_count += 1
        self._count_head(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the application begin, unless too many requests wait already."""
        if len(self.pipeline) >= MAX_PIPELINED:
            self._guard.said("too_many_pipelined", 1)
            self.cycle.keep_alive = False
            self._deaf = True
            raise _OverLimit
        # This may raise: the parser takes targets that are none. The request then ends in its head, without a cycle.
        super().on_headers_complete()
        if self._upgrades():
            return
        self._in_head = False
        self._headed = True

    def _should_upgrade(self) -> bool:
        return self.url.partition(b"?")[0] in WEBSOCKET_PATHS and super()._should_upgrade()

    def _upgrades(self) -> bool:
        """Tell whether the request begins a websocket, where the port takes them."""
        return self.parser.should_upgrade() and self._should_upgrade()

    def on_body(self, body: bytes) -> None:
        """Count the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the client has said all of its request."""
        self._whole_requests += 1
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Note that the client does not take its answer as fast as it comes."""
        self.stalled_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client took some of its answer."""
        self.stalled_at = None
        super().resume_writing()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.max_header_bytes or self._header_count > self._limits.max_headers:
            self._refuse_head()
            raise _OverLimit

    def _refuse_head(self) -> None:
        limits = self._limits
        self._refuse_request(
            "headers_too_large",
            431,
            f"The request line and the headers are larger than {limits.max_header_bytes} bytes or more than "
            f"{limits.max_headers} headers.",
        )

    def overdue(self, stage: ConnectionStage) -> None:
        """End the connection: the time of its client is over."""
        if stage is ConnectionStage.HEAD:
            self._refuse_request(
                "slow_headers", 408, f"The headers did not end within {self._limits.header_timeout:g} seconds."
            )
        elif stage is ConnectionStage.BODY:
            self._refuse_request("slow_body", 408, "The body arrived too slowly or stopped before its end.")
        elif stage in (ConnectionStage.IDLE, ConnectionStage.SILENT):
            self.transport.close()
        else:
            self.end()

    def _refuse_request(self, reason: str, status: int, message: str) -> None:
        """Answer the request that is being read with an error, if its turn has come, and end."""
        of_body = not self._in_head and self._whole_requests < self._begun_requests
        self._guard.said(reason, 1)
        if not (of_body and reason == "broken_off"):
            # The application says a line of its own when it finds no more of a body.
            log.info("request refused", reason=reason, status=status, client=self.address)
        if of_body and (self.pipeline or self.cycle.response_started):
            self.end()
        elif not of_body and self._busy:
            # The requests before it get their answers first, and then there is nobody left to speak to.
            self.cycle.keep_alive = False
            self._deaf = True
        else:
            if of_body:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.refuse(status, message)

    def refuse(self, status: int, message: str) -> None:
        """Write an error, let the client take it, and hear no more of it."""
        if self.transport.is_closing():
            return
        self._deaf = self._refused = True
        title = HTTPStatus(status).phrase
        body = msgspec.json.encode({"error": {"code": status, "title": title, "message": message}})
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        lines = [b"HTTP/1.1 %d %s" % (status, title.encode()), *(b"%s: %s" % pair for pair in headers), b"", body]
        self.transport.write(b"\r\n".join(lines))
        # What the client is still sending is read and dropped: closing now would lose it the answer.
        self.flow.resume_reading()
        self.transport.write_eof()

    def end(self) -> None:
        """Cut the connection now."""
        self.transport.abort()
