from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.compute.drivers.base import Driver
from skep.compute.drivers.fake import FakeDriver
from skep.testing.drivers import DriverContract


class TestFakeDriver(DriverContract):
    @pytest.fixture
    async def driver(self, tmp_path: Path) -> AsyncIterator[Driver]:
        made = FakeDriver(tmp_path, "host-1")
        yield made
        made.close()
