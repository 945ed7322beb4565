"""The memcached backend keeps the contract on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import settings

from skep.contracts.synchronizer import BackendContract, BackendModel, Store
from skep.processes.servers.memcached import MemcachedServer
from tests.contract.synchronizer.memcached_cloud import MemcachedStore
from tests.support.samples import examples

pytestmark = pytest.mark.needs_part("memcached")


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
TestMemcachedModel.settings = settings(max_examples=examples(15), stateful_step_count=30, deadline=None)
