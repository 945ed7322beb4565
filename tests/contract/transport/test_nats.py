"""The transport over a real NATS server keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from skep.config.sections import TransportSettings
from skep.contracts.transport import CROWD, TIGHT, Raw, TransportContract
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Address
from skep.transport.nats import NatsTransport


@pytest.mark.needs_part("nats-server")
class TestNats(TransportContract):
    @pytest.fixture
    async def transport(self, connect: Callable[..., Awaitable[NatsTransport]]) -> NatsTransport:
        return await connect()

    @pytest.fixture
    async def crowded(self, connect: Callable[..., Awaitable[NatsTransport]]) -> NatsTransport:
        return await connect(max_under_way=CROWD)

    @pytest.fixture
    async def tight(self, tmp_path: Path) -> AsyncIterator[NatsTransport]:
        async with NatsServer(tmp_path / "tight", jetstream=False, max_payload=TIGHT) as server:
            transport = NatsTransport(TransportSettings(kind="nats", url=server.url))
            await transport.open()
            yield transport
            await transport.close()

    @pytest.fixture
    def raw(self, transport: NatsTransport) -> Raw:
        async def send(address: Address, data: bytes) -> None:
            await transport.deliver(address, data)

        return send
