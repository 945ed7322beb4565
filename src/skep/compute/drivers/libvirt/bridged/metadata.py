"""The metadata service for guests: an agent takes their requests inside their networks, and says who asks.

A guest is known by the network that it asks in and the address that it has there; rules of the host let no port ask
from the address of another one (`filters`). Of what a guest sends only method, path and a small body go on. Guests may
be hostile: bounds of size, time and number hold for each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

import h11
import httpx
import msgspec
import structlog

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged.host import SPACES
from skep.compute.drivers.libvirt.bridged.listeners import listen_within
from skep.compute.drivers.libvirt.bridged.names import METADATA_PORT, OF_NETWORK, SERVICE_ADDRESS, address
from skep.domain.guest_documents.proof import proof
from skep.domain.host_networks import HostNetworks, PluggedPort

log = structlog.get_logger("skep.compute")

ASKED_AT_ONCE = 4
"""Requests of one server, by all of its ports; one more is refused."""
MOST_AT_ONCE = 128
"""Requests of all ports of a host."""
SECONDS = 15.0
"""So long one request may take, from its first byte to the last one of its answer."""
MOST_OF_HEAD = 8 << 10
MOST_OF_BODY = 4 << 10
"""Bytes: guests send nothing but an encrypted password."""
MOST_OF_ANSWER = 1 << 20
"""Bytes: user data has up to 64 KiB."""
BACKLOG = 32
PASSED_ON = ("content-type", "retry-after")
"""Headers of answers that guests see."""


class MetadataService(msgspec.Struct, frozen=True, kw_only=True):
    """Where the metadata service is, and what proves to it who asks."""

    url: str
    secret: str
    """At least 16 characters."""


@dataclass(slots=True)
class _Listener:
    """What takes the requests of one network."""

    server: asyncio.Server
    space: int
    """The inode of the namespace in which it listens."""
    ports: Mapping[str, PluggedPort] = field(default_factory=dict)
    """Who has which address."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class MetadataProxy:
    """Of one host. It listens in the networks of guests as long as the agent runs."""

    def __init__(self, service: MetadataService, spaces: str = "") -> None:
        """`spaces`: how the names of the host's network namespaces begin."""
        self._service = service
        self._spaces = spaces
        self._trust = ssl.create_default_context() if service.url.startswith("https:") else False
        self._listeners: dict[str, _Listener] = {}
        self._asking: Counter[str] = Counter()
        """Requests that are under way, by server."""
        self._tasks: set[asyncio.Task[None]] = set()
        """What answers them."""
        self._away = False

    async def follow(self, wanted: HostNetworks) -> None:
        """Take requests in these networks, for these ports, and in no others. The namespaces are there.

        Raises DriverError where a network cannot be listened in; the others are.
        """
        segments = {one.network: one for one in wanted.segments}
        failed: list[OSError] = []
        for network in {*self._listeners, *segments}:
            try:
                await self._listen(network, wanted=network in segments)
            except OSError as error:
                failed.append(error)
            else:
                if network in segments:
                    ports = segments[network].ports
                    self._listeners[network].ports = {str(address(at)): one for one in ports for at in one.addresses}
        if failed:
            raise DriverError("NetworksUnavailable", f"metadata service: {failed[0]}") from failed[0]

    def close(self) -> None:
        """Take no more requests, and let go of those under way."""
        for task in self._tasks:
            task.cancel()
        for one in self._listeners.values():
            one.server.close()
        self._listeners.clear()

    async def _listen(self, network: str, *, wanted: bool) -> None:
        """Have a listener in a network that is wanted: in the namespace that has its name now."""
        place = SPACES / f"{self._spaces}{OF_NETWORK}-{network}"
        known = self._listeners.get(network)
        space = place.stat().st_ino if wanted else None
        if known is not None and known.space != space:
            known.server.close()
            del self._listeners[network]
        if space is not None and network not in self._listeners:
            [bound] = await asyncio.to_thread(listen_within, place, [(str(SERVICE_ADDRESS), METADATA_PORT)])
            server = await asyncio.start_server(
                partial(self._accept, network), sock=bound, limit=MOST_OF_HEAD, backlog=BACKLOG
            )
            self._listeners[network] = _Listener(server, space)

    def _accept(self, network: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(network, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, network: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener = self._listeners.get(network)
        sender = writer.get_extra_info("peername")
        port = None if listener is None or sender is None else listener.ports.get(sender[0])
        # What was written is away when `drain` returns: it takes its part of the time, and a place among requests.
        writer.transport.set_write_buffer_limits(high=0)
        key = "" if port is None else port.server
        # What a guest does with its own connection, as to leave it open or to cut it, is of no interest.
        with contextlib.suppress(TimeoutError, OSError):
            try:
                self._asking[key] += 1
                async with asyncio.timeout(SECONDS):
                    writer.write(await self._reply(reader, port, key))
                    await writer.drain()
                    writer.write_eof()
            finally:
                self._asking -= Counter({key: 1})
                # A guest that takes no answer would hold a connection that is closed until the answer is away.
                writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader, port: PluggedPort | None, key: str) -> bytes:
        """Return the bytes of the answer to one request."""
        try:
            if self._asking[key] > ASKED_AT_ONCE or self._asking.total() > MOST_AT_ONCE:
                raise _Refused(HTTPStatus.TOO_MANY_REQUESTS)
            method, target, body = await _read(reader)
            if port is None or not port.project:
                raise _Refused(HTTPStatus.NOT_FOUND)
            answer = await self._ask(port, method, target, body)
        except _Refused as refused:
            return _message(refused.status, {"content-type": "text/plain"}, f"{refused.status.phrase}\n".encode())
        except httpx.HTTPError as error:
            self._note(str(error) or type(error).__name__)
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return _message(status, {"content-type": "text/plain", "retry-after": "1"}, f"{status.phrase}\n".encode())
        self._note("")
        return _message(*answer, without_body=method == "HEAD")

    async def _ask(
        self, port: PluggedPort, method: str, target: str, body: bytes
    ) -> tuple[HTTPStatus, Mapping[str, str], bytes]:
        """Ask the metadata service in the name of a server. Raises httpx.HTTPError, _Refused for what is no path."""
        try:
            url = httpx.URL(self._service.url).copy_with(raw_path=target.encode("ascii"))
        except httpx.InvalidURL as error:
            raise _Refused(HTTPStatus.BAD_REQUEST) from error
        headers = proof(self._service.secret, port.server, port.project)
        async with (
            # It is closed with the request, so that an agent can be closed at any moment.
            httpx.AsyncClient(verify=self._trust, trust_env=False, timeout=SECONDS) as client,
            client.stream("POST" if method == "POST" else "GET", url, headers=headers, content=body) as answer,
        ):
            said = bytearray()
            async for piece in answer.aiter_bytes():
                said += piece
                if len(said) > MOST_OF_ANSWER:
                    raise httpx.ReadError(f"an answer has more than {MOST_OF_ANSWER} bytes")
            kept = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
            return HTTPStatus(answer.status_code), kept, bytes(said)

    def _note(self, trouble: str) -> None:
        """Say once that the service is away, and once that it is there again."""
        if trouble and not self._away:
            log.warning("the metadata service does not answer, guests are told so", error=trouble)
        elif self._away and not trouble:
            log.info("the metadata service answers again")
        self._away = bool(trouble)


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    """Return method, path and body of a request, and nothing else of it."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_OF_HEAD)
    asked, body = None, bytearray()
    try:
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await reader.read(1024))
            elif isinstance(event, h11.Request):
                asked = event
                if int(dict(event.headers).get(b"content-length", 0)) > MOST_OF_BODY:
                    raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_OF_BODY:
                    raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            else:
                raise ConnectionResetError("a guest ended its connection")
    except h11.RemoteProtocolError as error:
        raise _Refused(HTTPStatus(error.error_status_hint)) from error
    assert asked is not None
    method, target = asked.method.decode(), asked.target.decode()
    if method not in ("GET", "HEAD", "POST"):
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    if target.startswith("http://"):
        target = "/" + target.removeprefix("http://").partition("/")[2]
    if not target.startswith("/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    return method, target, bytes(body)


def _message(status: HTTPStatus, headers: Mapping[str, str], body: bytes, *, without_body: bool = False) -> bytes:
    told = {**headers, "content-length": str(len(body)), "connection": "close"}
    lines = (f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in told.items()))
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + (b"" if without_body else body)
