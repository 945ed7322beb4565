"""Every route and action of the compute API, by every kind of caller, of own, foreign and missing objects.

`ACCESS_EVERYWHERE=1` has another project's server at each place where one can be; otherwise one place is drawn, of
`ACCESS_SEED` if that is set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.api import openapi
from skep.api.policy_rules import ASKED_INSIDE
from skep.api.routes import ROUTES
from tests.support import samples
from tests.support.access.compute_rows import compute_rows, server_rows
from tests.support.access.compute_world import CALLERS, FOR_ALL_CALLERS, PLACES, compute_world
from tests.support.access.matrix import walk
from tests.support.documented import Documented

WALK = "ACCESS"


async def test_nobody_is_told_more_than_his_due(tmp_path: Path) -> None:
    async with compute_world(tmp_path) as (world, things):
        rows = compute_rows(things, FOR_ALL_CALLERS)
        assert {row.key for row in rows} == {(row.method, row.path, row.action) for row in ROUTES}
        documented = Documented(openapi.document())
        wrong = await walk(world, rows, CALLERS, documented)
        assert not wrong, "\n".join(wrong)
        assert {(row.method, f"/v2.1{row.path}") for row in rows if row.served < 400} <= documented.done
        assert things.asked - ASKED_INSIDE - {row.rule for row in ROUTES} == set(), "add them to ASKED_INSIDE"


@pytest.mark.sampled
async def test_nor_wherever_the_server_of_another_project_is(tmp_path: Path) -> None:
    seed = samples.seed(WALK)
    others = [place for place in PLACES if place != FOR_ALL_CALLERS]
    places = others if samples.everywhere(WALK) else samples.sample(others, 1, seed, WALK)
    callers = [caller for caller in CALLERS if caller.known and not caller.is_admin]
    async with compute_world(tmp_path) as (world, things):
        for place in places:
            rows = [row for row in server_rows(things, place) if row.thing is things.by_place[place]]
            wrong = await walk(world, rows, callers)
            assert not wrong, f"{WALK}_SEED={seed}, {place}:\n" + "\n".join(wrong)
