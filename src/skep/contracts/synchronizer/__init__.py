'''The contract of a synchronizer's backend as tests to inherit; for the backends shipped here and for anybody's own.

Say how your data is reached, in a `Store`; inherit the cases and the state machine:

    class MyStore(Store):
        """One set of records on the server, under a name of its own."""

        def make(self) -> Backend:
            return MyBackend(self.settings)              # another handle; the suite opens it

    class TestMyBackend(BackendContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]:
            async with MyStore(...) as store:            # empty at first; leaving closes all handles
                yield store

    class MyModel(BackendModel):
        def make_store(self) -> Store:
            return MyStore(...)                          # empty, for each example anew

    TestMyModel = MyModel.TestCase
    TestMyModel.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)   # a real server is slow

A store that can lose its data (`wipe`), or be set back to an old copy (`copy`, `restore`), overrides these methods and
sets `cannot_wipe` and `cannot_copy` to an empty text; otherwise these say why not, and the cases that need it are
skipped with that reason. The test functions are coroutines: pytest-asyncio has to be in its automatic mode.
'''

from __future__ import annotations

from skep.contracts.synchronizer.contract import BackendContract
from skep.contracts.synchronizer.faults import LosesAnswers, store_for_certain
from skep.contracts.synchronizer.model import BackendModel
from skep.contracts.synchronizer.store import LONG, Store, changes_after, key, patiently, write

__all__ = [
    "LONG",
    "BackendContract",
    "BackendModel",
    "LosesAnswers",
    "Store",
    "changes_after",
    "key",
    "patiently",
    "store_for_certain",
    "write",
]
