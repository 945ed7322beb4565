"""The cases that every backend must pass, put together."""

from __future__ import annotations

import pytest

from skep.contracts.synchronizer.lives import LivesContract
from skep.contracts.synchronizer.records import RecordsContract
from skep.contracts.synchronizer.sharing import SharingContract
from skep.contracts.synchronizer.store import Store
from skep.synchronizer.base import Backend


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
