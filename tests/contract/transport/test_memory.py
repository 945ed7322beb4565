"""The transport inside one process keeps the contract."""

from __future__ import annotations

import pytest

from skep.testing.transport import Raw, TransportContract
from skep.transport.base import Address
from skep.transport.memory import MemoryTransport


class TestMemory(TransportContract):
    @pytest.fixture
    def transport(self) -> MemoryTransport:
        return MemoryTransport()

    @pytest.fixture
    def raw(self, transport: MemoryTransport) -> Raw:
        async def send(address: Address, data: bytes) -> None:
            await transport.deliver(address, data)

        return send
