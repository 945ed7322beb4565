from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep_lab.compute_api.api import ApiUnderTest, api_under_test


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    """Return the API over fresh databases, without hosts."""
    async with api_under_test(tmp_path) as api:
        yield api
