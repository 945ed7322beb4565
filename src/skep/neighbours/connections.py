"""The connections to services below httpx: aiohttp's, which cost a fraction of what its own do with many at once."""

from __future__ import annotations

import contextlib
import re
import select
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from weakref import WeakSet

import aiohttp
import httpx
import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.tracing import Trace
from yarl import URL

KEPT_SECONDS = 4.0
"""For which a connection is kept without a request: less than the 5 after which common servers end it."""

KEPT_BODIES = 20
"""Connections that are kept by which bodies were sent piece by piece."""

_PLAIN_URL = re.compile(
    r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?!.*/\.)/[A-Za-z0-9/._~!$&'()*+,;=:@%-]*"
    r"(?:\?[A-Za-z0-9/._~!$&()*+,;=:@%?-]*)?"
)
"""A URL that httpx sends as it is: what has anything else in it is for httpx to read, to write anew or to refuse."""

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


class ServiceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a service answered, read to its end."""

    status_code: int
    headers: Mapping[str, str]
    """By names in whatever case."""
    content: bytes
    url: str
    """What was asked for."""

    @property
    def is_success(self) -> bool:
        """Whether the request was good."""
        return 200 <= self.status_code < 300


class EncodedAnswer(Exception):
    """The bytes of an answer are not those that were asked for."""


class EndlessAnswer(Exception):
    """An answer has more bytes than it may have."""


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
        url = _address(str(request.url))
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

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, most: int
    ) -> ServiceAnswer:
        """Send a request, one time, and read its whole answer, past httpx, whose own work costs more than all else.

        `seconds`: in which a connection has to be there, and then something has to come; `most`: bytes of the answer.
        Raises httpx.TransportError, EncodedAnswer, EndlessAnswer.
        """
        if self._session is None:
            self._session = self._new_session()
        limits = aiohttp.ClientTimeout(connect=seconds, sock_read=seconds)
        with _named():
            async with self._session.request(
                method, _address(url), headers=headers, data=body, allow_redirects=False, timeout=limits
            ) as answer:
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise EncodedAnswer
                content = bytearray()
                async for piece in answer.content.iter_any():
                    content += piece
                    if len(content) > most:
                        raise EndlessAnswer
        return ServiceAnswer(status_code=answer.status, headers=answer.headers, content=bytes(content), url=url)

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


class ServiceClient(httpx.AsyncClient):
    """A client of httpx over these connections, which can be asked without it, too."""

    def __init__(self, connections: ServiceConnections) -> None:
        super().__init__(transport=connections, trust_env=False)
        self.connections = connections
        self._sent = {name: self.headers[name] for name in ("Accept", "User-Agent")}

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, most: int
    ) -> ServiceAnswer | None:
        """Send a request as httpx does, and return its whole answer; None: it is one that only httpx sends.

        Raises as `ServiceConnections.exchange`.
        """
        if _PLAIN_URL.fullmatch(url) is None:
            return None
        return await self.connections.exchange(method, url, {**self._sent, **headers}, body, seconds=seconds, most=most)


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


def _address(url: str) -> URL:
    """Return an address as aiohttp takes it. Raises httpx.ConnectError for a port that cannot be."""
    try:
        found = URL(url, encoded=True)
        _ = found.port
    except ValueError as error:
        raise httpx.ConnectError(str(error)) from error
    return found


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
