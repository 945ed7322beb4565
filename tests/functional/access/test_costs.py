"""Twice as large an input of any route of admin and the embedded services takes at most about twice the work.

Rows of the matrix, and an input of each, are drawn from a seed; `ACCESS_EVERYWHERE=1` makes each input large in turn.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support import samples
from tests.support.access.admin_rows import admin_rows
from tests.support.access.admin_world import OPEN_TO_ENROLMENT, admin_world
from tests.support.access.costs import grown
from tests.support.access.matrix import Caller, Row
from tests.support.access.network_rows import network_rows
from tests.support.access.standalone_rows import identity_rows, image_rows
from tests.support.access.standalone_world import standalone_world
from tests.support.work import watching

pytestmark = pytest.mark.sampled

WALK = "ACCESS"
ENROLMENT = "/enrolments"


def _draw() -> random.Random | None:
    return None if samples.everywhere(WALK) else random.Random(samples.seed(WALK))


async def test_admin(tmp_path: Path) -> None:
    with watching() as watch:
        async with admin_world(tmp_path) as (world, things, callers):
            by_name = {caller.name: caller for caller in callers}

            def by(row: Row) -> Caller:
                return by_name[OPEN_TO_ENROLMENT if row.path == ENROLMENT else "admin"]

            wrong = await grown(world, watch, admin_rows(things), by, _draw())
    assert not wrong, "\n".join(wrong)


async def test_the_embedded_services(tmp_path: Path) -> None:
    with watching() as watch:
        async with standalone_world(tmp_path) as (world, things, callers):
            admin = next(caller for caller in callers if caller.name == "admin")
            rows = [*identity_rows(things), *image_rows(things), *network_rows(things.networks, things.project)]
            wrong = await grown(world, watch, rows, lambda _row: admin, _draw())
    assert not wrong, "\n".join(wrong)
