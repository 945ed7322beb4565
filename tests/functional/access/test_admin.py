"""Every route of the admin API, by users, programs and machines, of own, foreign and missing objects."""

from __future__ import annotations

from pathlib import Path

from skep.admin.app import PREFIX, ROUTES
from skep.admin.openapi import described
from tests.support.access.admin_rows import admin_rows
from tests.support.access.admin_world import admin_world
from tests.support.access.matrix import walk
from tests.support.documented import Documented


async def test_nobody_is_told_more_than_his_due(tmp_path: Path) -> None:
    async with admin_world(tmp_path) as (world, things, callers):
        rows = admin_rows(things)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in ROUTES}
        documented = Documented(described())
        wrong = await walk(world, rows, callers, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, f"{PREFIX}{row.path}") for row in rows if row.served < 400} <= documented.done
