"""What the contracts of networks begin with: a cloud, its users, and what knows its networks."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.contract import ServedContract
from skep.contracts.neighbours.networks_world import Networks, NetworksWorld, networks_world
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock


class NetworksContractBase(ServedContract, abc.ABC):
    """What all of them have."""

    @pytest.fixture
    @abc.abstractmethod
    async def networks(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[Networks]:
        """Give what knows the networks of `cloud`."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    @pytest.fixture
    async def world(self, cloud: ServedNeighbours, networks: Networks) -> AsyncIterator[NetworksWorld]:
        """Give the users of the cloud."""
        async with networks_world(cloud, networks) as opened:
            yield opened
