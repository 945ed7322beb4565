"""The cloud dies in the midst of operations on servers that run, and what was promised comes true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep_lab.crash.operations import OPERATIONS, Operation, operate, points_of
from skep_lab.crash.points import Point
from skep_lab.crash.walk import Walk

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

POINTS = [(operation, point) for operation in OPERATIONS for point in points_of(operation)]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, list[Walk]]]:
    there: dict[bool, list[Walk]] = {False: [], True: []}
    yield there
    for walk in (*there[False], *there[True]):
        walk.process.stop()


@pytest.mark.sampled(1, of_each="operation")
@pytest.mark.parametrize(
    ("operation", "point"),
    POINTS,
    ids=[f"{operation.name}-{point.step or point.unit.rpartition('.')[2]}-{point.way}" for operation, point in POINTS],
)
def test_an_operation_outlives_a_crash(
    walks: dict[bool, list[Walk]], tmp_path_factory: pytest.TempPathFactory, operation: Operation, point: Point
) -> None:
    if walks[operation.keeps]:
        walk = walks[operation.keeps].pop()
    else:
        walk = Walk(tmp_path_factory.mktemp("cloud"), keeps=operation.keeps)
        walk.process.start()
    try:
        operate(walk, operation, point)
        walk.clear()
    except BaseException:
        walk.process.kill()
        walk.process.stop()
        raise
    walks[operation.keeps].append(walk)
