"""One cloud for all crashes of a file; after a failure the next test begins with a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from skep_lab.crash.points import Point
from skep_lab.crash.scenarios import SCENARIOS
from skep_lab.crash.walk import Walk

Walked = Callable[[str, Point], None]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """Walk to a point: a function of the step's name and the point."""
    walks: list[Walk] = []

    def one(step: str, point: Point) -> None:
        walk = walks.pop() if walks else _new(tmp_path_factory)
        try:
            SCENARIOS[step](walk, point)
            walk.clear()
        except BaseException:
            walk.process.kill()
            walk.process.stop()
            raise
        walks.append(walk)

    yield one
    for walk in walks:
        walk.process.stop()


def _new(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    walk = Walk(tmp_path_factory.mktemp("cloud"))
    walk.process.start()
    return walk
