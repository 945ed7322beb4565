"""Single processes of a cloud die while all others go on; and a short run of `make chaos DEPLOYMENT=processes`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.domain.builds import STEPS
from skep_lab.chaos.processes import ProcessChaos
from skep_lab.crash.points import Point
from skep_lab.processes.walk import RoleWalk, two_points_of
from tests.support import samples

pytestmark = [
    pytest.mark.crash,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
]

WALK = "ROLE_WALK"
STEPS_OF_A_SAMPLE = 10
SECONDS_OF_A_POINT = 120


def _points() -> Iterator[tuple[str, Point]]:
    """Return both points of each step; of a sample of the steps one."""
    if samples.everywhere(WALK):
        yield from ((step, point) for step in STEPS for point in two_points_of(step))
        return
    draw = random.Random(samples.seed(WALK))
    for step in samples.sample(list(STEPS), STEPS_OF_A_SAMPLE, samples.seed(WALK), WALK):
        yield step, draw.choice(two_points_of(step))


@pytest.mark.sampled
@pytest.mark.timeout(SECONDS_OF_A_POINT * (1 + len(list(_points()))))
async def test_the_process_that_does_a_step_dies_at_each_of_them(tmp_path: Path) -> None:
    async with RoleWalk(tmp_path).running() as walk:
        for step, point in _points():
            async with asyncio.timeout(SECONDS_OF_A_POINT):
                await walk.at(step, point)
    assert walk.faults.died == []


@pytest.mark.timeout(600)
async def test_a_short_run_over_processes_does_no_harm(tmp_path: Path) -> None:
    kinds = ("kill cell-conductor", "pause super-conductor", "nats restart", "postgresql restart", "cell cut")
    run = ProcessChaos(tmp_path, seed=5, builds=25, duration=24.0, hosts=2, kinds=kinds)
    report, findings, audit = await run.run()
    assert report.clean, "\n".join([repr(report), findings.text(), *audit])
    assert sum(report.faults.values()) > 0
    assert report.faults_at_once > 1
    assert report.restarts == len(run.processes.children)
    assert report.active > 0
