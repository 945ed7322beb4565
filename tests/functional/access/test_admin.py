"""Every route of the admin API, by users, programs and machines, of own, foreign and missing objects."""

from __future__ import annotations

from pathlib import Path

from skep.admin.app import PREFIX, ROUTES, USER_PREFIX, USER_ROUTES
from skep.admin.openapi import described
from tests.support.access.admin_rows import admin_rows, user_rows
from tests.support.access.admin_world import admin_world
from tests.support.access.matrix import walk
from tests.support.documented import Documented


async def test_nobody_is_told_more_than_his_due(tmp_path: Path) -> None:
    async with admin_world(tmp_path) as (world, things, callers):
        rows = admin_rows(things)
        assert {row.key for row in rows} == {(method, path, None) for method, path, _ in ROUTES}
        documented = Documented(described())
        beside = user_rows()
        assert {row.key for row in beside} == {(method, path, None) for method, path, _ in USER_ROUTES}
        wrong = await walk(world, [*rows, *beside], callers, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, f"{PREFIX}{row.path}") for row in rows if row.served < 400} <= documented.done
        assert {(row.method, f"{USER_PREFIX}{row.path}") for row in beside} <= documented.done
