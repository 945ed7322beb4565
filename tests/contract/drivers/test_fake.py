from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import INSIDES, FakeDriver
from skep.compute.drivers.fake_inside import GuestInsides
from skep.contracts.drivers import DriverContract
from skep.domain.ids import InstanceUuid


class TestFakeDriver(DriverContract):
    @pytest.fixture
    async def driver(self, tmp_path: Path) -> AsyncIterator[Driver]:
        self.directory = tmp_path
        made = FakeDriver(tmp_path, "host-1")
        yield made
        made.close()

    def inside(self, driver: Driver, instance: InstanceUuid) -> GuestContents | None:  # noqa: ARG002
        return GuestInsides(self.directory / INSIDES).read(instance)
