"""The cloud dies at every point of a build up to the permission to touch the hypervisor, and goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skep.domain.builds import STEPS
from skep_lab.crash.points import UNREACHABLE, WAYS, Point, points_of
from skep_lab.crash.scenarios import SCENARIOS

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

POINTS = [(step, point) for step in list(STEPS)[: len(STEPS) // 2] for point in points_of(step)]


@pytest.mark.sampled(1, of_each="step")
@pytest.mark.parametrize(("step", "point"), POINTS, ids=[f"{step}-{point.way}-{point.nth}" for step, point in POINTS])
def test_a_crash_at_any_point_loses_nothing(walked: Callable[[str, Point], None], step: str, point: Point) -> None:
    walked(step, point)


def test_every_step_has_its_crash_tests() -> None:
    assert set(SCENARIOS) == set(STEPS), "a step of the build has nothing that sets it off"
    assert {step for step, _ in UNREACHABLE} <= set(STEPS)
    for step in STEPS:
        left_out = {way for one, way in UNREACHABLE if one == step}
        assert {point.way for point in points_of(step)} | left_out == set(WAYS)
