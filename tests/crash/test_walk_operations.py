"""The cloud dies in the midst of operations on servers that run, and what was promised comes true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import pytest

from skep_lab.crash.operating import operate
from skep_lab.crash.operation import Operation, points_of
from skep_lab.crash.operations import OPERATIONS
from skep_lab.crash.points import Point
from skep_lab.crash.walk import Walk

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


def _covered(operation: Operation, point: Point) -> str:
    """Return what a sample has once: each operation; of all moves together, each step."""
    return (point.step or "begin") if operation.passes else operation.name


POINTS = [(operation, point, _covered(operation, point)) for operation in OPERATIONS for point in points_of(operation)]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Walk]]]:
    there: dict[str, list[Walk]] = defaultdict(list)
    yield there
    for walk in chain(*there.values()):
        walk.process.stop()


@pytest.mark.sampled(1, of_each="covered")
@pytest.mark.parametrize(
    ("operation", "point", "covered"),
    POINTS,
    ids=[
        f"{operation.name}-{point.step or point.unit.rpartition('.')[2]}-{point.way}-{point.nth}"
        for operation, point, _ in POINTS
    ],
)
def test_an_operation_outlives_a_crash(
    walks: dict[str, list[Walk]],
    tmp_path_factory: pytest.TempPathFactory,
    operation: Operation,
    point: Point,
    covered: str,
) -> None:
    if walks[operation.cloud]:
        walk = walks[operation.cloud].pop()
    else:
        walk = Walk(tmp_path_factory.mktemp("cloud"), operation.cloud)
        walk.process.start()
    try:
        operate(walk, operation, point)
        walk.clear()
    except BaseException:
        walk.process.kill()
        walk.process.stop()
        raise
    walks[operation.cloud].append(walk)
