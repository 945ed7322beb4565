"""The cloud dies beside a network service and a volume service: these have what the servers have, and no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep_lab.beside.scenarios import CASES, BesideCase, walk_to
from skep_lab.beside.walk import WalkBeside

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, WalkBeside]]:
    """By whether their hosts connect volumes."""
    there: dict[bool, WalkBeside] = {}
    yield there
    for walk in there.values():
        walk.stop()


@pytest.mark.sampled(1, of_each="kind")
@pytest.mark.parametrize(("kind", "case"), [(one.kind, one) for one in CASES], ids=map(str, CASES))
def test_a_crash_leaves_nothing_beside_the_cloud(
    walks: dict[bool, WalkBeside], tmp_path_factory: pytest.TempPathFactory, kind: str, case: BesideCase
) -> None:
    assert kind == case.kind
    walk = walks.pop(case.attaches, None)
    if walk is None:
        walk = WalkBeside(tmp_path_factory.mktemp("cloud"), attaches=case.attaches)
        walk.process.start()
    try:
        walk_to(walk, case)
        walk.clear()
    except BaseException:
        walk.process.kill()
        walk.stop()
        raise
    walks[case.attaches] = walk
