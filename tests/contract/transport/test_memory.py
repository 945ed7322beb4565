"""The transport inside one process keeps the contract."""

from __future__ import annotations

import pytest

from skep.config.sections import TransportSettings
from skep.contracts.transport import CROWD, TIGHT, Raw, TransportContract
from skep.transport.base import Address
from skep.transport.memory import MemoryTransport


class TestMemory(TransportContract):
    @pytest.fixture
    def transport(self) -> MemoryTransport:
        return MemoryTransport()

    @pytest.fixture
    def crowded(self) -> MemoryTransport:
        return MemoryTransport(TransportSettings(max_under_way=CROWD))

    @pytest.fixture
    def tight(self) -> MemoryTransport:
        return MemoryTransport(largest=TIGHT)

    @pytest.fixture
    def raw(self, transport: MemoryTransport) -> Raw:
        async def send(address: Address, data: bytes) -> None:
            await transport.deliver(address, data)

        return send
