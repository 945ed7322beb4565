"""A listener that stops answers whoever has reached it."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from skep.config.sections import LOOPBACK
from skep.contracts.eventually import PATIENCE, eventually
from skep.processes import listener
from skep.processes.listener import Listener


async def test_a_request_that_comes_after_its_connection_is_answered_while_the_listener_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "FIRST_REQUEST_SECONDS", 60.0)
    serving = Listener(LOOPBACK, 0, "port")
    await serving.start(PlainTextResponse("here"))
    answers, asks = await asyncio.open_connection(LOOPBACK, serving.port)
    stopping = asyncio.create_task(serving.stop())

    async def is_closed() -> bool:
        try:
            _, another = await asyncio.open_connection(LOOPBACK, serving.port)
        except ConnectionError:
            return True
        another.close()
        return False

    await eventually(is_closed, "nobody else is let in")
    asks.write(b"GET / HTTP/1.1\r\nHost: skep\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        assert (await answers.read(4096)).startswith(b"HTTP/1.1 200")
        await stopping
    asks.close()


async def test_a_connection_that_never_says_anything_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "FIRST_REQUEST_SECONDS", 0.05)
    serving = Listener(LOOPBACK, 0, "port")
    await serving.start(PlainTextResponse("here"))
    answers, asks = await asyncio.open_connection(LOOPBACK, serving.port)
    async with asyncio.timeout(PATIENCE):
        await serving.stop()
        assert await answers.read() == b""
    asks.close()
