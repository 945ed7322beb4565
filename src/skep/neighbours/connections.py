"""The connections to services below httpx: aiohttp's, which cost a fraction of what its own do with many at once."""

from __future__ import annotations

import contextlib
import select
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.tracing import Trace
from yarl import URL

KEPT_SECONDS = 4.0
"""For which a connection is kept without a request: less than the 5 after which common servers end it."""

KEPT_BODIES = 20
"""Connections that are kept by which bodies were sent piece by piece."""

_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add where httpx has none."""

_ERRORS: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (TimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (aiohttp.ServerDisconnectedError, httpx.RemoteProtocolError),
    (aiohttp.ClientConnectionError, httpx.ReadError),
    (aiohttp.ClientError, httpx.RemoteProtocolError),
    (HttpProcessingError, httpx.RemoteProtocolError),
    (OSError, httpx.ReadError),
)
"""What the errors of aiohttp are called by httpx; the first that fits."""


class ServiceConnections(httpx.AsyncBaseTransport):
    """A transport of httpx. There are as many connections as requests that wait; none of these is sent twice.

    A body that is made while it is sent goes by httpx's own connections: these have a limit of the seconds in which
    nothing of it is taken.
    """

    def __init__(self, authorities: ssl.SSLContext) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_BODIES)
        self._of_pieces = httpx.AsyncHTTPTransport(verify=authorities, trust_env=False, limits=limits)
        self._authorities = authorities
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the beginning of its answer. Raises httpx.TransportError."""
        if not isinstance(request.stream, httpx.ByteStream):
            return await self._of_pieces.handle_async_request(request)
        if self._session is None:
            self._session = self._new_session()
        url = URL(str(request.url), encoded=True)
        limits = request.extensions.get("timeout", {})
        with _named():
            answer = await self._session.request(
                request.method,
                url.with_user(None) if request.url.userinfo else url,
                headers=[(name.decode("ascii"), value.decode("latin-1")) for name, value in request.headers.raw],
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(connect=limits.get("connect"), sock_read=limits.get("read")),
            )
        return httpx.Response(answer.status, headers=answer.raw_headers, stream=_Body(answer))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
        await self._of_pieces.aclose()

    def _new_session(self) -> aiohttp.ClientSession:
        """Return a session of the running loop."""
        connector = _Connections(
            ssl=self._authorities,
            limit=0,
            keepalive_timeout=KEPT_SECONDS,
            resolver=aiohttp.ThreadedResolver(),
        )
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED,
            trust_env=False,
            middlewares=(_once,),
        )


class _Connections(aiohttp.TCPConnector):
    """Connections, of which those that the service has ended by now are not used again, nor those by which it speaks
    unasked: the loop may not have come to it.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._used: WeakSet[BaseProtocol] = WeakSet()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a connection for a request. Raises what aiohttp does."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or protocol not in self._used:
                break
            if not _speaks(connection):
                return connection
            connection.close()
        if protocol is not None:
            self._used.add(protocol)
        return connection


def _speaks(connection: Connection) -> bool:
    """Tell whether there is something to read of a connection that has no request, its end included."""
    of_it = None if connection.transport is None else connection.transport.get_extra_info("socket")
    if of_it is None:
        return True
    ready = select.poll()
    ready.register(of_it.fileno(), select.POLLIN)
    return bool(ready.poll(0))


class _Body(httpx.AsyncByteStream):
    """The bytes of an answer as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _named():
            async for piece in self._answer.content.iter_any():
                yield piece

    async def aclose(self) -> None:
        """Give the connection back; one by which there is more to come is closed."""
        self._answer.release()


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request one time: by errors of its own, aiohttp sends some again when a kept connection ends.

    What becomes of a lost answer is for the caller.
    """
    with _named():
        return await send(request)


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Raise what aiohttp raises as httpx does."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
        name = next(name for kind, name in _ERRORS if isinstance(error, kind))
        raise name(str(error)) from error
