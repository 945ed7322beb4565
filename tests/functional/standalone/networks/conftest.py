"""The embedded network service with callers of two projects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.served import ServedNeighbours
from tests.support.embedded_networks import AskedNetworks, asked_networks


@pytest.fixture
async def net(cloud: ServedNeighbours) -> AsyncIterator[AskedNetworks]:
    async with asked_networks(cloud) as opened:
        yield opened
