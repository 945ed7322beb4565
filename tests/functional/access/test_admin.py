"""Every route of the admin API, by users, programs and machines, of own, foreign and missing objects."""

from __future__ import annotations

from pathlib import Path

from skep.admin.app import ROUTES
from tests.support.access.admin_rows import admin_rows
from tests.support.access.admin_world import admin_world
from tests.support.access.matrix import walk


async def test_nobody_is_told_more_than_his_due(tmp_path: Path) -> None:
    async with admin_world(tmp_path) as (world, things, callers):
        rows = admin_rows(things)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in ROUTES}
        wrong = await walk(world, rows, callers)
        assert not wrong, "\n".join(wrong)
