"""What the contracts of neighbours share: they are told of Skep's own services, which answer over HTTP meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, neighbours


class ServedContract:
    """Tests of a port whose service stands before `cloud`."""

    @pytest.fixture
    def clock(self) -> SteppedClock:
        """Give the clock of the served services."""
        return SteppedClock()

    @pytest.fixture
    async def cloud(self, tmp_path: Path, clock: SteppedClock) -> AsyncIterator[ServedNeighbours]:
        """Give the services that hold the images and know the users."""
        async with neighbours(tmp_path, clock) as opened, opened.served():
            yield opened
