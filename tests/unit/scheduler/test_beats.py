"""Several conductors serve one cell: what they hear counts together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.builds import NotReady
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import GetHostStates, ListNamespaces
from skep.messages.to_scheduler_liveness import Beat
from tests.unit.scheduler.test_service import ONE, Cloud


@pytest.fixture
async def cloud(usage: Any, spec: Any) -> AsyncIterator[Cloud]:
    cloud = Cloud(usage, spec)
    await cloud.ready(hosts=6)
    yield cloud
    await cloud.stop()


async def beat(cloud: Cloud, conductor: str, *heard: str, listening: bool = False) -> None:
    nodes = tuple(NodeUuid(node) for node in heard)
    await cloud.call(Beat(cell=ONE, heard=nodes, conductor=conductor, listening=listening))


async def up(cloud: Cloud) -> list[str]:
    await cloud.settle()
    return [state.node for state in (await cloud.call(GetHostStates(cell=ONE))).hosts if state.up]


async def test_a_host_is_up_when_any_conductor_hears_it(cloud: Cloud) -> None:
    cloud.now = 100.0  # what was heard before has lapsed
    await beat(cloud, "a", "n0")
    await beat(cloud, "b", "n2")
    await beat(cloud, "c")
    assert await up(cloud) == ["n0", "n2"]
    await beat(cloud, "a", "n0", "n4")
    assert await up(cloud) == ["n0", "n2", "n4"]
    await beat(cloud, "b")
    assert await up(cloud) == ["n0", "n4"], "silent: every living beat omits it"


async def test_what_a_conductor_heard_counts_no_longer_than_it_lives(cloud: Cloud) -> None:
    await beat(cloud, "a", "n0", "n2", "n4")
    cloud.now = 8.0
    await beat(cloud, "b", "n2")
    assert await up(cloud) == ["n0", "n2", "n4"]
    cloud.now = 12.0
    assert await up(cloud) == ["n2"]


async def test_beats_of_conductors_that_are_no_more_are_removed(cloud: Cloud) -> None:
    for life in range(10):
        cloud.now += 100.0
        await beat(cloud, f"life {life}", "n0")
    assert (await cloud.call(ListNamespaces())).namespaces["beats"] == 2, "one of each cell: the other cell was silent"


async def test_a_scheduler_that_starts_later_removes_them_too(cloud: Cloud) -> None:
    await beat(cloud, "old", "n0")
    await cloud.stop()
    cloud.services.clear()
    await cloud.start()
    for now in (0.0, 50.0, 100.0):
        cloud.now = now
        await beat(cloud, "new", "n2")
    assert (await cloud.call(ListNamespaces())).namespaces["beats"] == 2
    assert await up(cloud) == ["n2"]


async def test_who_only_listens_makes_nobody_silent_but_is_believed_of_whom_it_hears(cloud: Cloud) -> None:
    cloud.now = 100.0
    await beat(cloud, "new", "n0", listening=True)
    assert await up(cloud) == [], "nobody can say yet who is silent"
    assert isinstance((await cloud.select())[0], NotReady)
    await beat(cloud, "old", "n2")
    assert await up(cloud) == ["n0", "n2"]
