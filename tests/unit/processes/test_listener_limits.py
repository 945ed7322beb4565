"""A port answers whoever keeps to its limits, whatever others send it: over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httptools
import pytest
import uvloop
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from skep.config.http import HttpSettings
from skep.config.sections import LOOPBACK
from skep.contracts.eventually import PATIENCE, eventually
from skep.processes.http_connection import MAX_PIPELINED
from skep.processes.listener import Listener
from skep.telemetry.metrics import Metrics

HELLO = b"GET / HTTP/1.1\r\nHost: skep\r\n\r\n"
LARGEST_READ = 262_144
"""Bytes that a loop hands over at once, at most."""
QUICK = 0.1
"""A limit that a test waits for."""


class Client:
    """One connection to the port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def status(self) -> int:
        """Read one answer with a length; return its status."""
        return (await self.answer())[0]

    async def answer(self) -> tuple[int, bytes, dict[bytes, bytes]]:
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.split(b"\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in lines if line)
            body = await self.reader.readexactly(int(headers.get(b"content-length", b"0")))
        return int(first.split()[1]), body, headers

    async def is_ended(self) -> bool:
        """Wait until the other side has closed; whether it had nothing more to say."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.transport.abort()


class Port:
    """A listener with its application and what it counted."""

    def __init__(self, listener: Listener, metrics: Metrics) -> None:
        self.listener = listener
        self._metrics = metrics
        self._clients: list[Client] = []

    async def connect(self, **options: Any) -> Client:
        client = Client(*await asyncio.open_connection(LOOPBACK, self.listener.port, **options))
        self._clients.append(client)
        return client

    async def is_answering(self) -> bool:
        client = await self.connect()
        await client.send(HELLO)
        return await client.status() == 200

    def refused(self, reason: str) -> float:
        return (
            self._metrics.registry.get_sample_value("skep_http_refused_total", {"port": "test.port", "reason": reason})
            or 0.0
        )

    async def has_refused(self, reason: str) -> None:
        async def is_so() -> bool:
            return self.refused(reason) == 1

        await eventually(is_so, f"{reason} is counted")

    @property
    def connections(self) -> float:
        return self._metrics.registry.get_sample_value("skep_http_connections", {"port": "test.port"}) or 0.0

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await self.listener.stop()


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, **limits: Any) -> AsyncIterator[Port]:
    metrics = Metrics()
    listener = Listener(LOOPBACK, 0, "test.port", limits=HttpSettings(**limits), metrics=metrics)
    await listener.start(app)
    port = Port(listener, metrics)
    try:
        yield port
    finally:
        await port.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    """Runs a story in a loop of each kind: programs run on uvloop, tests on the standard library's."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:

        def story(steps: Callable[[], Awaitable[None]]) -> None:
            async def all_of_it() -> None:
                await steps()

            runner.run(all_of_it())

        yield story


async def reads_body(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        size = len(await Request(scope, receive).body())
    except ClientDisconnect:
        return
    await PlainTextResponse(str(size))(scope, receive, send)


class Held:
    """An application that answers once it is let."""

    def __init__(self, inner: ASGIApp) -> None:
        self.proceed = asyncio.Event()
        self.count = 0
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await self.proceed.wait()
        await self._inner(scope, receive, send)

    async def begun(self, count: int) -> None:
        async def is_so() -> bool:
            return self.count == count

        await eventually(is_so, f"{count} requests have begun")


Run = Callable[[Callable[[], Awaitable[None]]], None]

here = PlainTextResponse("here")


@pytest.mark.parametrize("reads", [16, 32])
async def test_the_parser_sees_no_more_of_longer_headers(monkeypatch: pytest.MonkeyPatch, reads: int) -> None:
    class Counting(httptools.HttpRequestParser):
        fed = 0

        def feed_data(self, data: Any) -> None:
            Counting.fed += len(data)
            super().feed_data(data)

    monkeypatch.setattr("uvicorn.protocols.http.httptools_impl.httptools.HttpRequestParser", Counting)
    async with serving(here, max_header_bytes=4096) as port:
        client = await port.connect()
        await client.send(b"GET / HTTP/1.1\r\nX-Long: ")
        for _ in range(reads):
            await client.send(b"a" * LARGEST_READ)
        assert await client.status() == 431
    assert Counting.fed <= 4096 + LARGEST_READ


@pytest.mark.parametrize("line", [b"X-Long: ", b"GET /"], ids=["one header", "the request line"])
def test_endless_headers_are_refused_and_the_rest_is_not_parsed(run: Run, line: bytes) -> None:
    async def story() -> None:
        async with serving(here, max_header_bytes=4096) as port:
            client = await port.connect()
            await client.send(line if line.startswith(b"GET") else b"GET / HTTP/1.1\r\n" + line)
            for _ in range(64):
                await client.send(b"a" * 65536)
            status, body, headers = await client.answer()
            assert status == 431
            assert json.loads(body)["error"]["title"] == "Request Header Fields Too Large"
            assert headers[b"connection"] == b"close"
            assert port.refused("headers_too_large") == 1
            assert await port.is_answering()

    run(story)


def test_headers_may_be_as_large_as_the_limit_in_any_pieces(run: Run) -> None:
    async def story() -> None:
        async with serving(here, max_header_bytes=4096) as port:
            client = await port.connect()
            request = b"GET / HTTP/1.1\r\nHost: skep\r\nX: " + b"a" * 4000 + b"\r\n\r\n"
            for start in range(0, len(request), 100):
                await client.send(request[start : start + 100])
                await asyncio.sleep(0)
            assert await client.status() == 200
            await client.send(request.replace(b"a" * 4000, b"a" * 4096))
            assert await client.status() == 431

    run(story)


async def test_many_headers_are_refused() -> None:
    async with serving(here, max_headers=10) as port:
        client = await port.connect()
        await client.send(b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(10)) + b"\r\n")
        assert await client.status() == 200
        await client.send(b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(11)) + b"\r\n")
        assert await client.status() == 431


@pytest.mark.parametrize("tail", [b"0\r\nX: ", b"5;", b"0\r\n" + b"X: a\r\n" * 2000], ids=["trailer", "size", "lines"])
async def test_what_stands_around_the_pieces_of_a_body_is_bounded_too(tail: bytes) -> None:
    async with serving(reads_body, max_header_bytes=4096) as port:
        client = await port.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nTransfer-Encoding: chunked\r\n\r\n" + tail)
        for _ in range(8):
            await client.send(b"a" * 1024)
            await asyncio.sleep(0)
        assert await client.status() == 431
        assert await port.is_answering()


async def test_a_body_in_small_pieces_is_as_good_as_in_one() -> None:
    async with serving(reads_body, max_header_bytes=1024) as port:
        client = await port.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(500):
            await client.send(b"1\r\na\r\n" * 10)
        await client.send(b"0\r\n\r\n")
        assert (await client.answer())[:2] == (200, b"5000")


def test_half_a_request_is_answered_408_and_not_kept(run: Run) -> None:
    async def story() -> None:
        async with serving(here, header_timeout=QUICK) as port:
            client = await port.connect()
            await client.send(HELLO[:-2])
            status, body, _ = await client.answer()
            assert (status, json.loads(body)["error"]["code"]) == (408, 408)
            assert await client.is_ended()
            assert port.refused("slow_headers") == 1

    run(story)


async def test_headers_that_drip_win_no_time() -> None:
    async with serving(here, header_timeout=QUICK, max_header_bytes=2**30) as port:
        client = await port.connect()
        await client.send(b"GET / HTTP/1.1\r\nX: ")

        async def drip() -> None:
            while True:
                await client.send(b"a")
                await asyncio.sleep(0)

        dripping = asyncio.create_task(drip())
        assert await client.status() == 408
        dripping.cancel()


async def test_a_connection_without_a_word_is_closed_without_one() -> None:
    async with serving(here, header_timeout=QUICK) as port:
        client = await port.connect()
        assert await client.is_ended()


async def test_an_idle_connection_is_closed_and_lines_that_are_empty_do_not_keep_it() -> None:
    async with serving(here, idle_timeout=QUICK) as port:
        client = await port.connect()
        await client.send(HELLO)
        assert await client.status() == 200
        await client.send(b"\r\n")
        assert await client.is_ended()


def test_a_body_that_stops_is_answered_408(run: Run) -> None:
    async def story() -> None:
        async with serving(reads_body, body_timeout=QUICK) as port:
            client = await port.connect()
            await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: 100\r\n\r\nonly this")
            assert await client.status() == 408
            assert await client.is_ended()
            assert port.refused("slow_body") == 1

    run(story)


async def test_a_body_that_drips_is_answered_408() -> None:
    async with serving(reads_body, body_timeout=QUICK, body_min_rate=1_000_000_000) as port:
        client = await port.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: 1000000000\r\n\r\n")

        async def drip() -> None:
            while True:
                await client.send(b"a")
                await asyncio.sleep(0)

        dripping = asyncio.create_task(drip())
        assert await client.status() == 408
        dripping.cancel()


async def test_a_client_is_not_blamed_for_a_slow_application() -> None:
    held = Held(reads_body)
    size = 400_000
    async with serving(held, body_timeout=QUICK, header_timeout=QUICK) as port:
        client, waits, slow = [await port.connect() for _ in range(3)]
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: %d\r\n\r\n" % size)
        sending = asyncio.create_task(client.send(b"a" * size))
        await waits.send(b"POST / HTTP/1.1\r\nHost: skep\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        await held.begun(2)
        await slow.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: 2\r\n\r\n")
        assert await slow.status() == 408
        held.proceed.set()
        assert (await client.answer())[:2] == (200, str(size).encode())
        await sending
        assert (await waits.answer())[0] == 100
        await waits.send(b"ab")
        assert (await waits.answer())[:2] == (200, b"2")


async def test_a_client_that_takes_nothing_of_its_answer_is_cut() -> None:
    gone = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"a" * 65536
                await asyncio.sleep(0)

        try:
            await StreamingResponse(pieces())(scope, receive, send)
        finally:
            gone.set()

    async with serving(endless, send_timeout=QUICK) as port:
        client = await port.connect(limit=1024)
        await client.send(HELLO)
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        assert port.refused("answer_not_taken") == 1


async def test_who_goes_on_sending_after_the_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.processes.http_limits.LINGER_SECONDS", QUICK)
    async with serving(here, idle_timeout=QUICK * 4) as port:
        client = await port.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: 1000000000\r\n\r\n")
        assert await client.status() == 200

        async def is_cut() -> bool:
            await client.send(b"a" * 1000)
            return client.reader.at_eof() or port.connections == 0

        await eventually(is_cut, "the connection is cut")


def test_a_flood_of_connections_does_not_stop_the_answers(run: Run) -> None:
    async def story() -> None:
        async with serving(here, max_connections=10) as port:
            flood = [await port.connect() for _ in range(50)]
            for client in flood:
                await client.send(HELLO[:-2])
            for _ in range(3):
                assert await port.is_answering()
            assert port.connections <= 10
            assert port.refused("made_room") >= 40

    run(story)


async def test_when_all_are_served_a_new_one_is_told_to_come_later() -> None:
    held = Held(here)
    async with serving(held, max_connections=2) as port:
        served = [await port.connect(), await port.connect()]
        for client in served:
            await client.send(HELLO)
        await held.begun(2)
        late = await port.connect()
        async with asyncio.timeout(PATIENCE):
            head = await late.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        held.proceed.set()
        assert [await client.status() for client in served] == [200, 200]
        assert port.refused("too_many_connections") == 1


async def test_requests_that_wait_behind_one_are_bounded() -> None:
    held = Held(here)
    async with serving(held) as port:
        client = await port.connect()
        await client.send(HELLO * 1000)
        await port.has_refused("too_many_pipelined")
        held.proceed.set()
        assert [await client.status() for _ in range(MAX_PIPELINED + 1)] == [200] * (MAX_PIPELINED + 1)
        assert await client.is_ended()
        assert held.count == MAX_PIPELINED + 1


async def test_what_follows_a_request_does_not_spoil_its_answer() -> None:
    held = Held(here)
    async with serving(held) as port:
        client = await port.connect()
        await client.send(HELLO + b"this is not HTTP\r\n\r\n")
        await port.has_refused("malformed")
        held.proceed.set()
        assert (await client.answer())[:2] == (200, b"here")
        assert await client.is_ended()


async def test_nonsense_is_answered_400() -> None:
    async with serving(here) as port:
        client = await port.connect()
        await client.send(b"this is not HTTP\r\n\r\n")
        status, body, _ = await client.answer()
        assert (status, json.loads(body)["error"]["message"]) == (400, "This is not an HTTP request.")


NO_TARGETS = [
    b"CONNECT a:1 HTTP/1.1",
    b"GET http://[::1/ HTTP/1.1",
    b"GET http://a:bb/ HTTP/1.1",
    b"GET http:// HTTP/1.1",
    b"GET http://a HTTP/1.1",
    b"POST http://[::1/ HTTP/1.1\r\nContent-Length: 2",
    b"POST http://[::1/ HTTP/1.1\r\nTransfer-Encoding: chunked",
    b"GET http://[::1/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket",
]
"""Requests that the parser reads, and whose targets are no paths here."""


@pytest.mark.parametrize("head", NO_TARGETS)
@pytest.mark.parametrize("pieces", [False, True], ids=["at once", "in pieces"])
def test_a_target_that_is_none_is_answered_400(run: Run, head: bytes, pieces: bool) -> None:
    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with serving(here) as port:
            client, again = await port.connect(), await port.connect()
            data = head + b"\r\nHost: skep\r\n\r\n"
            for piece in [data[at : at + 1] for at in range(len(data))] if pieces else [data]:
                await client.send(piece)
                await asyncio.sleep(0)
            status, body, headers = await client.answer()
            assert (status, json.loads(body)["error"]["code"]) == (400, 400)
            assert headers[b"connection"] == b"close"
            assert await client.is_ended()
            assert port.refused("malformed") == 1
            await again.send(HELLO)
            assert await again.status() == 200
            await again.send(data)
            assert await again.status() == 400
            assert port.refused("malformed") == 2
        assert told == []

    run(story)


@pytest.mark.parametrize("head", NO_TARGETS)
def test_a_target_that_is_none_does_not_spoil_the_answer_before_it(run: Run, head: bytes) -> None:
    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        held = Held(here)
        async with serving(held) as port:
            client = await port.connect()
            await client.send(HELLO + HELLO + head + b"\r\n\r\n")
            await port.has_refused("malformed")
            held.proceed.set()
            assert [await client.status() for _ in range(2)] == [200, 200]
            assert await client.is_ended()
        assert told == []

    run(story)


async def test_requests_for_another_protocol_are_answered_as_they_stand() -> None:
    async with serving(here) as port:
        client = await port.connect()
        await client.send(
            b"GET / HTTP/1.1\r\nHost: skep\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert await client.status() == 200


async def test_half_a_request_does_not_outlive_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.processes.listener.DRAIN_SECONDS", QUICK)
    monkeypatch.setattr("skep.processes.listener.FIRST_REQUEST_SECONDS", QUICK)
    async with serving(reads_body) as port:
        client = await port.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: skep\r\nContent-Length: 100\r\n\r\nonly this")
        assert await port.is_answering()
        await port.listener.stop()
        assert await client.is_ended()


async def test_long_work_is_not_cut() -> None:
    held = Held(here)
    limits = {"header_timeout": QUICK, "body_timeout": QUICK, "idle_timeout": QUICK, "send_timeout": QUICK}
    async with serving(held, **limits) as port:
        client, idle = await port.connect(), await port.connect()
        await client.send(HELLO)
        await held.begun(1)
        assert await idle.is_ended()
        held.proceed.set()
        assert await client.status() == 200
