"""The cases that every backend must pass, put together."""

from __future__ import annotations

import pytest

from skep.synchronizer.base import Backend
from skep.testing.synchronizer.lives import LivesContract
from skep.testing.synchronizer.records import RecordsContract
from skep.testing.synchronizer.sharing import SharingContract
from skep.testing.synchronizer.store import Store


class BackendContract(RecordsContract, SharingContract, LivesContract):
    """What every backend must do; a subclass brings the fixture `store`."""

    @pytest.fixture
    async def store(self) -> Store:
        """Return the data of one test, empty; every subclass has its own."""
        raise NotImplementedError("a backend's test class has to bring the fixture `store`")

    @pytest.fixture
    async def backend(self, store: Store) -> Backend:
        """Return the first handle."""
        return await store.open()
