"""The connections to services: what they send once, what they keep, and what errors are called."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.neighbours.answers import ask, new_client
from skep.neighbours.connections import ServiceConnections

GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
UNFINISHED = b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n{"

Answers = Callable[[int], bytes | None]


class Service:
    """Answers each request by its number, or breaks off (None); knows what it was sent, and by how many connections."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in head[1:] if one)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if headers.get("transfer-encoding") == "chunked":
                    body = await reader.readuntil(b"0\r\n\r\n")
                answer = self._answers(len(self.requests))
                self.requests.append((head[0], headers, body))
                if answer is None:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


Serve = Callable[[Answers], Awaitable[tuple[Service, str]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[asyncio.Server] = []

    async def begin(answers: Answers) -> tuple[Service, str]:
        service = Service(answers)
        server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
        servers.append(server)
        return service, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield begin
    for server in servers:
        server.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(ssl.create_default_context()) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_what_a_kept_connection_loses_is_not_sent_again(
    serve: Serve, client: httpx.AsyncClient, method: str
) -> None:
    service, at = await serve(lambda number: GOOD if number == 0 else None)
    await client.get(f"http://{at}/first")
    with pytest.raises(httpx.RemoteProtocolError):
        await client.request(method, f"http://{at}/second")
    assert [line for line, _, _ in service.requests] == ["GET /first HTTP/1.1", f"{method} /second HTTP/1.1"]
    assert service.connections == 1


async def test_requests_one_after_another_share_a_connection(serve: Serve, client: httpx.AsyncClient) -> None:
    service, at = await serve(lambda _number: GOOD)
    for _ in range(3):
        answer = await ask("it", client, "PUT", f"http://{at}/a%2Fb?c=%20", seconds=PATIENCE, json={"one": 1})
        assert answer.json() == {}
    assert service.connections == 1
    line, headers, body = service.requests[0]
    assert (line, body) == ("PUT /a%2Fb?c=%20 HTTP/1.1", b'{"one":1}')
    assert (headers["host"], headers["accept-encoding"]) == (at, "identity")


async def test_a_connection_that_ended_just_now_is_not_used(client: httpx.AsyncClient) -> None:
    """The loop has not told of its end yet."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)
    at = f"127.0.0.1:{listener.getsockname()[1]}"
    answered = 0

    def answer() -> None:
        nonlocal answered
        line, _ = listener.accept()
        with line:
            line.recv(65536)
            line.sendall(GOOD)
            answered += 1
            ended.wait(PATIENCE)

    with listener, ThreadPoolExecutor() as threads:
        for number in range(3):
            ended = threading.Event()
            serving = threads.submit(answer)
            assert (await client.post(f"http://{at}/{number}", json={})).json() == {}
            ended.set()
            serving.result(PATIENCE)
    assert answered == 3


async def test_an_answer_that_is_not_read_ends_its_connection(serve: Serve, client: httpx.AsyncClient) -> None:
    service, at = await serve(lambda number: GOOD if number else UNFINISHED)
    async with client.stream("GET", f"http://{at}/long") as answer:
        assert answer.status_code == 200

    async def is_over() -> bool:
        return service.ended == 1

    await eventually(is_over, "the connection ends")
    assert (await client.get(f"http://{at}/")).json() == {}
    assert service.connections == 2


async def test_redirects_are_not_followed(serve: Serve, client: httpx.AsyncClient) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    service, at = await serve(lambda _number: moved)
    assert (await ask("it", client, "GET", f"http://{at}/", seconds=PATIENCE)).status_code == 302
    assert [line for line, _, _ in service.requests] == ["GET / HTTP/1.1"]


async def test_a_body_made_while_it_is_sent(serve: Serve, client: httpx.AsyncClient) -> None:
    service, at = await serve(lambda _number: GOOD)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    assert (await client.put(f"http://{at}/", content=pieces())).status_code == 200
    assert service.requests[0][2] == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_a_user_in_an_address_signs_in(serve: Serve, client: httpx.AsyncClient) -> None:
    service, at = await serve(lambda _number: GOOD)
    await client.get(f"http://one:two@{at}/")
    assert service.requests[0][1]["authorization"] == "Basic b25lOnR3bw=="


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", httpx.ReadTimeout),
        (UNFINISHED, httpx.ReadTimeout),
        (b"no HTTP at all\r\n\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n", httpx.RemoteProtocolError),
    ],
    ids=["silence", "unfinished", "no-http", "bad-chunk", "endless-header"],
)
async def test_what_is_no_answer(
    serve: Serve, client: httpx.AsyncClient, answer: bytes, error: type[Exception]
) -> None:
    _, at = await serve(lambda _number: answer)
    with pytest.raises(error):
        await client.get(f"http://{at}/", timeout=0.5)


async def test_an_answer_that_breaks_off(client: httpx.AsyncClient) -> None:
    async def breaks_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(UNFINISHED)
        writer.close()

    async with await asyncio.start_server(breaks_off, "127.0.0.1", 0) as server:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout=PATIENCE)


async def test_nothing_listens(client: httpx.AsyncClient) -> None:
    server = await asyncio.start_server(Service(lambda _number: None).serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(httpx.ConnectError):
        await client.get(f"http://127.0.0.1:{port}/")


async def test_connections_that_were_never_used_end() -> None:
    await ServiceConnections(ssl.create_default_context()).aclose()
