"""The server handlers over fresh databases, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep_lab.compute_api.servers import ServersUnderTest, servers_under_test


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[ServersUnderTest]:
    async with servers_under_test(tmp_path) as opened:
        yield opened
