"""The memcached backend keeps the contract on a real server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from skep.config.sections import SynchronizerSettings
from skep.synchronizer.memcached import MemcachedBackend, make
from skep.testing.real.memcached import MemcachedServer
from skep.testing.synchronizer import BackendContract, BackendModel, Store

pytestmark = pytest.mark.needs_part("memcached")

_names = (f"cloud{number}" for number in itertools.count())


class MemcachedStore(Store):
    """Records under a name of their own; a wipe takes everybody's."""

    cannot_wipe = ""
    cannot_copy = "memcached keeps nothing that could be copied"

    def __init__(self, server: MemcachedServer) -> None:
        super().__init__()
        self.server = server
        self.settings = SynchronizerSettings(
            backend="memcached", url=server.url, name=next(_names), expected_hosts=1000
        )

    def make(self) -> MemcachedBackend:
        return make(self.settings)

    async def wipe(self) -> None:
        await self.server.restart()


@pytest.fixture(scope="module")
def server() -> Iterator[MemcachedServer]:
    server = MemcachedServer(memory_mb=256)
    asyncio.run(server.start())
    yield server
    server.stop()


class TestMemcached(BackendContract):
    @pytest.fixture
    async def store(self, server: MemcachedServer) -> AsyncIterator[Store]:
        async with MemcachedStore(server) as store:
            yield store


@pytest.fixture(scope="module", autouse=True)
def _model_server(server: MemcachedServer) -> None:
    MemcachedModel.server = server


class MemcachedModel(BackendModel):
    server: MemcachedServer

    def make_store(self) -> Store:
        return MemcachedStore(self.server)


TestMemcachedModel = MemcachedModel.TestCase
TestMemcachedModel.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)
