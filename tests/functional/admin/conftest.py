"""The admin API over fresh databases, for all tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.testing.admin import Admin, admin_under_test


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with admin_under_test(tmp_path) as opened:
        yield opened
