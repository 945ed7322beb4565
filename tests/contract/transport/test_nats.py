"""The transport over a real NATS server keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.config.sections import TransportSettings
from skep.testing.real.nats import NatsServer
from skep.testing.transport import Raw, TransportContract
from skep.transport.base import Address
from skep.transport.nats import NatsTransport


@pytest.mark.needs_part("nats-server")
class TestNats(TransportContract):
    @pytest.fixture
    async def transport(self, tmp_path: Path) -> AsyncIterator[NatsTransport]:
        async with NatsServer(tmp_path, jetstream=False) as server:
            transport = NatsTransport(TransportSettings(kind="nats", url=server.url))
            await transport.open()
            try:
                yield transport
            finally:
                await transport.close()

    @pytest.fixture
    def raw(self, transport: NatsTransport) -> Raw:
        async def send(address: Address, data: bytes) -> None:
            await transport.deliver(address, data)

        return send
