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
from skep.domain.errors import Unavailable
from skep.neighbours.answers import MOST_BYTES, ask
from skep.neighbours.connections import ServiceConnections
from tests.support.service_clients import unencrypted_client

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
    async with unencrypted_client() as client:
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
        answer = await ask("it", client, "PUT", f"http://{at}/a%2Fb?c=%20", seconds=PATIENCE, said={"one": 1})
        assert answer.content == b"{}"
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


@pytest.fixture
async def plain() -> AsyncIterator[httpx.AsyncClient]:
    """A client of httpx alone."""
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "does not answer"),
        (UNFINISHED, "does not answer"),
        (b"no HTTP at all\r\n\r\n", "does not answer"),
        (GOOD.replace(b"Type: application/json", b"Encoding: gzip"), "its bytes are encoded"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 17000000\r\n\r\n" + b" " * 17_000_000, f"more than {MOST_BYTES} bytes"),
    ],
    ids=["silence", "unfinished", "no-http", "encoded", "endless"],
)
async def test_errors_are_told_as_with_httpx_alone(
    serve: Serve, client: httpx.AsyncClient, plain: httpx.AsyncClient, answer: bytes, error: str
) -> None:
    service, at = await serve(lambda _number: answer)
    seconds = PATIENCE if error.endswith("bytes") else 0.5
    for one in (client, plain):
        with pytest.raises(Unavailable, match=error):
            await ask("it", one, "POST", f"http://{at}/", seconds=seconds, said={})
    assert len(service.requests) == 2


async def test_answers_are_as_of_httpx_alone(serve: Serve, client: httpx.AsyncClient, plain: httpx.AsyncClient) -> None:
    _, at = await serve(lambda _number: GOOD)
    for one in (client, plain):
        answer = await ask("it", one, "GET", f"http://{at}/a", seconds=PATIENCE, headers={"X-One": "1"})
        assert (answer.status_code, answer.content, answer.url) == (200, b"{}", f"http://{at}/a")
        assert answer.headers["content-type"] == answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_requests_are_as_of_httpx_alone(
    serve: Serve, client: httpx.AsyncClient, plain: httpx.AsyncClient, method: str
) -> None:
    service, at = await serve(lambda _number: GOOD)
    body = None if method in ("GET", "DELETE") else {"one": "\N{SNOWMAN}", "two": 10**30}
    for one in (client, plain):
        await ask("it", one, method, f"http://{at}/a?b=%2F", seconds=PATIENCE, headers={"X-One": "1"}, said=body)
    (line, mine, sent), (other_line, other, other_sent) = service.requests
    assert (line, sent) == (other_line, other_sent)
    # That a connection stays is what HTTP/1.1 does unasked; a DELETE may say that it has no body.
    unsaid = ("connection", "content-length") if body is None else ("connection",)
    assert {name: value for name, value in mine.items() if name not in unsaid} == {
        name: value for name, value in other.items() if name not in unsaid
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [("/a b", "/a%20b"), ("/a/../b", "/b"), ("/\N{SNOWMAN}", "/%E2%98%83"), ("?a=1", "/?a=1"), ("/a#b", "/a")],
)
async def test_an_address_that_httpx_would_write_anew(
    serve: Serve, client: httpx.AsyncClient, path: str, line: str
) -> None:
    service, at = await serve(lambda _number: GOOD)
    await ask("it", client, "GET", f"http://{at}{path}", seconds=PATIENCE)
    assert service.requests[0][0] == f"GET {line} HTTP/1.1"


async def test_a_user_in_an_address_signs_in_when_a_service_is_asked(serve: Serve, client: httpx.AsyncClient) -> None:
    service, at = await serve(lambda _number: GOOD)
    await ask("it", client, "GET", f"http://one:two@{at}/", seconds=PATIENCE)
    assert service.requests[0][1]["authorization"] == "Basic b25lOnR3bw=="


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "ftp://127.0.0.1/", "/relative", "http://a\nb/", ""])
async def test_an_address_that_is_none(client: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(Unavailable, match="it does not answer"):
        await ask("it", client, "GET", url, seconds=PATIENCE)


async def test_connections_that_were_never_used_end() -> None:
    await ServiceConnections(ssl.create_default_context()).aclose()
