"""A port behind which an HTTP service answers, until a test says how it fails: away, slow, or answering nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Any, Literal

import httpx
import msgspec

from skep.contracts.neighbours.served import address, bound
from skep.http.closing import stop_accepting

PIECE = 1 << 16

HTML = b"<!DOCTYPE html><html><body>Please sign in to this network.</body></html>"

DOMAIN = {"id": "default", "name": "Default"}
LIKELY = {
    "token": {"expires_at": "soon", "user": {"id": "u", "name": "n", "domain": DOMAIN}, "catalog": []},
    "project": {"id": "another"},
    "endpoint": {"service_id": 7},
    "registered_limits": [{"resource_name": "servers", "default_limit": "many"}],
    "limits": {},
    "id": "another",
    "status": "active",
    "visibility": "shared",
    "images": ["one"],
    "volume": {"id": "another", "status": "available", "size": 1, "metadata": {}},
    "metadata": {"mine": "too"},
    "volumes": [{"id": "one", "status": "available"}],
    "snapshot": {"id": "another", "status": "available", "size": 1, "volume_id": "one"},
    "attachment": {"id": "another", "status": "reserved", "volume_id": "one", "instance": None},
    "attachments": [{"id": "one"}],
    "volume_types": [{"id": "one"}],
}
"""Has what answers have, and none of it means anything."""


class Mishap(Enum):
    """How a service fails."""

    REFUSES = "refuses connections"
    SILENT = "accepts and never answers"
    ERROR = "answers 500"
    BUSY = "answers 503"
    HTML = "answers a page for people"
    LIST = "answers an empty list"
    EMPTY = "answers an empty object"
    LIKELY = "answers what looks right"
    DEEP = "answers lists in lists in lists"
    CUT = "breaks off in its answer"
    ENDLESS = "answers without an end"
    DRIPS = "answers a byte now and then, without an end"
    LOST = "does what it is asked, and its answer is lost"


OF_A_CLOUD = (
    Mishap.REFUSES,
    Mishap.SILENT,
    Mishap.ERROR,
    Mishap.LIKELY,
    Mishap.CUT,
    Mishap.LOST,
)
"""Those that a whole cloud meets; its ports towards services are tried with all of them."""

SUCCESSES = {
    Mishap.HTML: ("text/html", HTML),
    Mishap.LIST: ("application/json", b"[]"),
    Mishap.EMPTY: ("application/json", b"{}"),
    Mishap.LIKELY: ("application/json", msgspec.json.encode(LIKELY)),
    Mishap.DEEP: ("application/json", b"[" * 100_000),
}
"""Answers with the status of a success."""


Moment = Literal["before", "after"]
Passes = Callable[[str, str, Moment], None]
Retold = Callable[[str, str, bytes], bytes]
"""Method, path and a piece of an answer -> what is sent in its place, of the same length."""

Reworded = Callable[[str, str, Any], Any]
"""Method, path and what an answer says -> what it is to say."""


def _look_away(_method: str, _path: str, _moment: Moment) -> None:
    """Do nothing about a request."""


def _as_it_is(_method: str, _path: str, piece: bytes) -> bytes:
    """Leave an answer as it is."""
    return piece


def every(_method: str, _path: str) -> bool:
    """Tell that a fault meets each request."""
    return True


class FaultyService:
    """Stands before a service. Each connection carries one request."""

    def __init__(self, beneath: str, canned: Callable[[str], Any] | None = None) -> None:
        """`canned` gives the JSON that is answered for a path in place of the service; None: ask the service."""
        self._beneath = httpx.URL(beneath)
        self._canned = canned
        self._listener = bound()
        self.url = address(self._listener)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        """One story may end a fault while another begins one."""
        self._fault: Mishap | None = None
        self._refusal: int | None = None
        self._said: dict[str, Any] | None = None
        self._meets: Callable[[str, str], bool] = every
        self.keeps: int | None = None
        """So many bytes of a body come to the service where its answer is lost; None: all."""
        self.met: list[str] = []
        """Method and path of each request that a fault met."""
        self.meeting = asyncio.Event()
        """A fault has met a request."""
        self.passes: Passes = _look_away
        """Told of each request that the service answers, before it gets it, and after it has done it and before the
        answer goes back."""
        self.retold: Retold = _as_it_is
        """Changes what the service answers."""
        self.reworded: Reworded | None = None
        """Changes what the service answers, in JSON, whole; None: nothing."""

    async def fail(self, fault: Mishap, meets: Callable[[str, str], bool] = every) -> None:
        """Fail from now on where `meets` says so of a method and a path. Refused is every connection."""
        async with self._changing:
            self._expect(fault, None, meets)
            if fault is Mishap.REFUSES:
                await self._close()
                # The port stays taken, and nobody listens there.
                self._listener.close()
                self._listener = self._bound_again()

    async def refuse(
        self, status: int, meets: Callable[[str, str], bool] = every, body: dict[str, Any] | None = None
    ) -> None:
        """Answer with a status that a user's mistake has, as what stands before a service that is away may.

        `body`: as the service itself does.
        """
        self._expect(None, status, meets)
        self._said = body

    def _expect(self, fault: Mishap | None, refusal: int | None, meets: Callable[[str, str], bool]) -> None:
        self._fault, self._refusal, self._said, self._meets = fault, refusal, None, meets
        self.met.clear()
        self.meeting.clear()

    async def heal(self) -> None:
        """Answer again."""
        async with self._changing:
            self._fault = self._refusal = self.keeps = None
            if self._server is None:
                await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)

    def _bound_again(self) -> socket.socket:
        again = socket.socket()
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", httpx.URL(self.url).port or 0))
        return again

    async def _close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server)
        for line in self._lines:
            line.cancel()
        if self._lines:
            await asyncio.wait(self._lines)

    async def stop(self) -> None:
        """Give up the port and all connections."""
        await self._close()
        self._listener.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.close()
            return
        line = asyncio.create_task(self._serve(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)
        # A line that is cancelled before it begins closes nothing by itself.
        line.add_done_callback(lambda _line: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            met = self._meets(method, path)
            fault, refusal = (self._fault, self._refusal) if met else (None, None)
            if fault is Mishap.REFUSES:
                # It came just before the port was closed.
                return
            if fault is not None or refusal is not None:
                self.met.append(f"{method} {path}")
                self.meeting.set()
            canned = self._canned(path) if self._canned is not None and not (fault or refusal) else None
            if refusal is not None:
                await _body(head, reader)
                if self._said is None:
                    await _answer(writer, refusal, "text/html", HTML)
                else:
                    await _answer(writer, refusal, "application/json", msgspec.json.encode(self._said))
            elif canned is not None:
                await _body(head, reader)
                await _answer(writer, 200, "application/json", msgspec.json.encode(canned))
            elif fault is None:
                await self._carry(head, reader, writer, lost=False, of=(method, path))
            elif fault is Mishap.LOST:
                await self._carry(head, reader, writer, lost=True, of=(method, path))
            else:
                await _body(head, reader)
                await _misbehave(fault, method, reader, writer)

    async def _carry(
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        lost: bool,
        of: tuple[str, str],
    ) -> None:
        """Let the service beneath answer one request."""
        body = await _body(head, reader)
        self.passes(*of, "before")
        if lost:
            body = body[: self.keeps]
        from_service, to_service = await asyncio.open_connection(self._beneath.host, self._beneath.port)
        try:
            first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
            kept = [one for one in lines if not one.lower().startswith((b"connection:", b"transfer-encoding:"))]
            kept = [one for one in kept if not one.lower().startswith(b"content-length:")]
            sized = b"Content-Length: %d" % len(body)
            to_service.write(b"\r\n".join([first, *kept, b"Connection: close", sized, b"", b""]) + body)
            piece = await from_service.read(-1 if self.reworded is not None else PIECE)
            self.passes(*of, "after")
            if self.reworded is not None:
                piece = _reworded(self.reworded, of, piece)
            while piece:
                if not lost:
                    writer.write(self.retold(*of, piece))
                    await writer.drain()
                piece = await from_service.read(PIECE)
        finally:
            to_service.close()


def _reworded(said: Reworded, of: tuple[str, str], answer: bytes) -> bytes:
    """Return an answer that says something else; one that has no body stays as it is."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not body:
        return answer
    changed = msgspec.json.encode(said(*of, msgspec.json.decode(body)))
    kept = [one for one in head.split(b"\r\n") if not one.lower().startswith(b"content-length:")]
    return b"\r\n".join([*kept, b"Content-Length: %d" % len(changed), b"", changed])


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    """Read the body of a request, however it comes."""
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if headers.get(b"transfer-encoding") != b"chunked":
        return await reader.readexactly(int(headers.get(b"content-length", b"0")))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


async def _misbehave(fault: Mishap, method: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    success = 201 if method == "POST" else 200
    if fault is Mishap.SILENT:
        await reader.read()
    elif fault in (Mishap.ERROR, Mishap.BUSY):
        await _answer(writer, 500 if fault is Mishap.ERROR else 503, "text/html", HTML)
    elif fault in SUCCESSES:
        await _answer(writer, success, *SUCCESSES[fault])
    elif fault is Mishap.CUT:
        writer.write(_head(success, "application/json", b"Content-Length: 1000") + b'{"id": ')
        await writer.drain()
    elif fault in (Mishap.ENDLESS, Mishap.DRIPS):
        writer.write(_head(success, "application/json", b"Connection: close") + b'{"id": "')
        while not await _gone(reader, 0.0 if fault is Mishap.ENDLESS else 0.05):
            writer.write(b"x" * (PIECE if fault is Mishap.ENDLESS else 1))
            await writer.drain()
    else:
        raise AssertionError(f"{fault.value}: nothing is done so")


async def _gone(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Tell whether the client hangs up within some seconds."""
    try:
        async with asyncio.timeout(seconds):
            await reader.read()
    except TimeoutError:
        return False
    return True


async def _answer(writer: asyncio.StreamWriter, status: int, kind: str, body: bytes) -> None:
    writer.write(_head(status, kind, b"Content-Length: %d" % len(body)) + body)
    await writer.drain()


def _head(status: int, kind: str, more: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d X" % status, b"Content-Type: " + kind.encode(), b"X-Subject-Token: skeps", more]
    return b"\r\n".join([*lines, b"", b""])


@contextlib.asynccontextmanager
async def faulty_service(beneath: str, canned: Callable[[str], Any] | None = None) -> AsyncIterator[FaultyService]:
    """Stand before a service for the length of a block."""
    service = FaultyService(beneath, canned)
    await service.heal()
    try:
        yield service
    finally:
        await service.stop()
