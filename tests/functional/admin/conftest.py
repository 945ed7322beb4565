"""The admin API over fresh databases, for all tests of this folder; behind `served` stands a real scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.admin import Admin, admin_under_test
from tests.support.served_admin import Served, served_admin


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with admin_under_test(tmp_path) as opened:
        yield opened


@pytest.fixture
async def served(admin: Admin) -> AsyncIterator[Served]:
    async with served_admin(admin) as made:
        yield made
