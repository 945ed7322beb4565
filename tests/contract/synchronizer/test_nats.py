"""The NATS backend keeps the contract, on a real server."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer import BackendContract, BackendModel, Store
from skep.contracts.synchronizer.store import patiently
from skep.processes.servers.nats import NatsServer
from skep.synchronizer.base import Backend
from skep.synchronizer.nats import make
from tests.support.samples import examples

pytestmark = pytest.mark.needs_part("nats-server")


class NatsStore(Store):
    """Records on a server of its own."""

    cannot_wipe = ""
    cannot_copy = "streams held in memory have no copy that could be put in their place"

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.server = NatsServer(Path(self._folder.name))

    async def open(self) -> Backend:
        """Return another handle; the first one starts the server, which may greet late on a busy machine."""
        if self.server.pid is None:
            await self.server.start()
        return await patiently(super().open)

    def make(self) -> Backend:
        """Return another handle."""
        return make(SynchronizerSettings(backend="nats", url=self.server.url))

    async def wipe(self) -> None:
        """Start the server anew, as after a crash."""
        await self.server.restart()

    async def close(self) -> None:
        """Close all handles, stop the server."""
        await super().close()
        self.server.stop()
        self._folder.cleanup()


class TestNats(BackendContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with NatsStore() as store:
            yield store


class NatsModel(BackendModel):
    def make_store(self) -> Store:
        return NatsStore()


TestNatsModel = pytest.mark.needs_part("nats-server")(NatsModel.TestCase)
TestNatsModel.settings = settings(max_examples=examples(10), stateful_step_count=25, deadline=None)
