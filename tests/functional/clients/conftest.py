"""One cloud for tests that leave nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.all_in_one import AllInOneCloud


@pytest.fixture
async def shared_cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    """A running cloud of two cells."""
    async with serving_cloud(http_config(tmp_path)) as cloud:
        yield cloud
