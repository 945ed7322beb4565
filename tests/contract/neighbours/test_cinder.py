"""The adapter to Cinder keeps the contracts of volumes, over HTTP towards the twin."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.contracts.neighbours.volumes import VolumesContract
from skep.contracts.neighbours.volumes_of_users import VolumesOfUsersContract
from skep.contracts.neighbours.volumes_world import Volumes, VolumesPlace
from skep.neighbours.service_session import ServiceCredentials
from tests.support.cinder import ServedTwin, adapter, served_twin


@pytest.fixture
async def twin(cloud: ServedNeighbours) -> AsyncIterator[ServedTwin]:
    async with served_twin(cloud) as twin:
        yield twin


class OverTwin:
    @pytest.fixture
    def place(self, twin: ServedTwin) -> VolumesPlace:
        return twin.place

    @pytest.fixture
    async def volumes(
        self, place: VolumesPlace, credentials: ServiceCredentials, clock: SteppedClock
    ) -> AsyncIterator[Volumes]:
        async with adapter(credentials, clock, place.url) as volumes:
            yield volumes


class TestOfServers(OverTwin, VolumesContract):
    pass


class TestOfUsers(OverTwin, VolumesOfUsersContract):
    pass
