"""The cloud dies at every point of a build up to the permission to touch the hypervisor, and goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skep.domain.builds import STEPS
from skep_lab.crash.points import Point, points_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

POINTS = [(step, point) for step in list(STEPS)[: len(STEPS) // 2] for point in points_of(step)]


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "point"), POINTS, ids=[f"{step}-{point.way}-{point.nth}" for step, point in POINTS])
def test_a_crash_at_any_point_loses_nothing(walked: Callable[[str, Point], None], step: str, point: Point) -> None:
    walked(step, point)
