"""Single processes die at each step of a cold move between cells, and the server is whole: there, and back again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from skep_lab.crash.points import Point
from skep_lab.processes.moving_walk import POINTS_BACK, POINTS_THERE, MovingWalk
from tests.support import samples

pytestmark = [
    pytest.mark.crash,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
]

WALK = "MOVING_WALK"
WAYS_OF_A_SAMPLE = 2
SECONDS_OF_A_WAY = 600


def _ways() -> Iterator[tuple[Point, Point]]:
    """Return points of the way there, each with one of the way back: all, or a sample."""
    if samples.everywhere(WALK):
        yield from zip_longest(POINTS_THERE, POINTS_BACK, fillvalue=POINTS_BACK[0])
        return
    draw = random.Random(samples.seed(WALK))
    yield from zip(draw.sample(POINTS_THERE, WAYS_OF_A_SAMPLE), draw.sample(POINTS_BACK, WAYS_OF_A_SAMPLE), strict=True)


@pytest.mark.sampled
@pytest.mark.timeout(SECONDS_OF_A_WAY * (1 + len(list(_ways()))))
async def test_a_server_goes_to_another_cell_and_back_whoever_dies(tmp_path: Path) -> None:
    async with MovingWalk(tmp_path).running() as walk:
        await walk.build()
        for there, back in _ways():
            async with asyncio.timeout(SECONDS_OF_A_WAY):
                await walk.there_and_back(there, back)
        await walk.clear()
        await walk.well("the server is deleted")
        assert not await walk.statuses()
        assert walk.faults.died == []
