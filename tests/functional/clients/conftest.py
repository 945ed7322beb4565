"""One cloud for tests that leave nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skep.api.console_pages import MARK
from skep.contracts.http_cloud import http_config, serving_cloud
from skep.processes.all_in_one import AllInOneCloud


@pytest.fixture
async def shared_cloud(tmp_path: Path) -> AsyncIterator[AllInOneCloud]:
    """A running cloud of two cells, whose API has a viewer of screens that shows none."""
    viewer = tmp_path / "novnc"
    (viewer / MARK.parent).mkdir(parents=True)
    (viewer / MARK).touch()
    config = http_config(tmp_path)
    consoles = msgspec.structs.replace(config.consoles, novnc_directory=str(viewer))
    async with serving_cloud(msgspec.structs.replace(config, consoles=consoles)) as cloud:
        yield cloud
