"""Websockets whose clients take nothing, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from skep.config.http import HttpSettings
from skep.config.sections import LOOPBACK
from skep.contracts.eventually import PATIENCE
from skep.domain.consoles import PATHS, SERIAL
from skep.processes.listener import Listener
from skep.telemetry.metrics import Metrics

UPGRADE = (
    f"GET {PATHS[SERIAL]} HTTP/1.1\r\nHost: skep\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
).encode()


class Flood:
    """Says much to a websocket, and notes when it is gone."""

    def __init__(self) -> None:
        self.begun = False
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            # What stands behind the request in the connection is read first.
            await asyncio.sleep(0)
            await PlainTextResponse("hello")(scope, receive, send)
            return
        self.begun = True
        try:
            await receive()
            await send({"type": "websocket.accept"})
            while True:
                await send({"type": "websocket.send", "bytes": b"x" * 60_000})
        except OSError:
            return
        finally:
            self.ended.set()


@pytest.fixture
async def served() -> AsyncIterator[tuple[Listener, Flood, Metrics]]:
    flood, metrics = Flood(), Metrics()
    limits = HttpSettings(send_timeout=0.1)
    listener = Listener(LOOPBACK, 0, "test.port", limits=limits, metrics=metrics, websockets=True)
    await listener.start(flood)
    yield listener, flood, metrics
    await listener.stop()


async def deaf(listener: Listener) -> asyncio.StreamWriter:
    """Begin a websocket and read nothing of it."""
    quiet = socket.create_connection((LOOPBACK, listener.port))
    _, writer = await asyncio.open_connection(sock=quiet)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(UPGRADE)
    return writer


async def test_a_client_that_takes_nothing_is_cut(served: tuple[Listener, Flood, Metrics]) -> None:
    listener, flood, metrics = served
    writer = await deaf(listener)
    async with asyncio.timeout(PATIENCE):
        await flood.ended.wait()
    assert (
        metrics.registry.get_sample_value(
            "skep_http_refused_total", {"port": "test.port", "reason": "answer_not_taken"}
        )
        == 1
    )
    writer.transport.abort()


async def test_a_websocket_waits_for_no_answer(served: tuple[Listener, Flood, Metrics]) -> None:
    listener, flood, _ = served
    reader, writer = await asyncio.open_connection(LOOPBACK, listener.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: skep\r\n\r\n" + UPGRADE)
    async with asyncio.timeout(PATIENCE):
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert said.endswith(b"\r\n\r\nhello")
    assert not flood.begun
    writer.close()
