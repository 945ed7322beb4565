"""Real NATS servers, and transports over them that are closed when their test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skep.config.sections import TransportSettings
from skep.processes.servers.nats import NatsServer
from skep.transport.nats import NatsTransport

Connect = Callable[..., Awaitable[NatsTransport]]
"""Opens one more transport over the server of the test, with these settings."""


@pytest.fixture
async def nats_server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats", jetstream=False) as server:
        yield server


@pytest.fixture
async def connect(nats_server: NatsServer) -> AsyncIterator[Connect]:
    opened: list[NatsTransport] = []

    async def connect(**settings: Any) -> NatsTransport:
        transport = NatsTransport(TransportSettings(kind="nats", url=nats_server.url, **settings))
        await transport.open()
        opened.append(transport)
        return transport

    yield connect
    for transport in opened:
        await transport.close()
