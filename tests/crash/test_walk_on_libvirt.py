"""The cloud dies between two calls of the driver `libvirt`: real guests end as was promised, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from skep_lab.crash.libvirt_operations import CALLS, LibvirtCase, called, cases, die_at
from skep_lab.crash.libvirt_walk import LibvirtWalk
from tests.support.libvirt_hosts import PARTS

pytestmark = [*PARTS, pytest.mark.crash, pytest.mark.timeout(600)]

Walked = Callable[[Callable[[LibvirtWalk], None]], None]
CASES = [(case.kind, case) for case in cases()]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """Do something with a cloud, and see that nothing is left: one for all, and after a failure a new one."""
    walks: list[LibvirtWalk] = []

    def one(story: Callable[[LibvirtWalk], None]) -> None:
        if walks:
            walk = walks.pop()
        else:
            walk = LibvirtWalk(tmp_path_factory.mktemp("cloud"))
            walk.start()
        try:
            story(walk)
            walk.clear()
        except BaseException:
            walk.process.kill()
            walk.stop()
            raise
        walks.append(walk)

    yield one
    for walk in walks:
        walk.stop()


@pytest.mark.sampled(1, of_each="kind")
@pytest.mark.parametrize(("kind", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_guests_outlive_a_crash_between_two_calls(walked: Walked, kind: str, case: LibvirtCase) -> None:
    assert kind == case.kind
    walked(lambda walk: die_at(walk, case))


@pytest.mark.sampled(0)
@pytest.mark.parametrize("operation", CALLS)
def test_the_table_has_all_calls(walked: Walked, operation: str) -> None:
    def compare(walk: LibvirtWalk) -> None:
        assert called(walk, operation) == CALLS[operation]

    walked(compare)
