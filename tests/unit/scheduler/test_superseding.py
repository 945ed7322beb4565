"""A server that is selected again is not refused by its own older claim, where nothing was dispatched for that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.builds import NoValidHost, Placed
from tests.unit.scheduler.test_service import Cloud


@pytest.fixture
async def cloud(usage: Any, spec: Any) -> AsyncIterator[Cloud]:
    cloud = Cloud(usage, spec)
    await cloud.ready(hosts=1, memory_mb=512 + 1024)
    yield cloud
    await cloud.stop()


async def test_an_older_claim_gives_way(cloud: Cloud, spec: Any, flavor: Any) -> None:
    full = spec(flavor=flavor(memory_mb=1024))
    await cloud.select(spec=full)
    assert isinstance((await cloud.select(spec=full, attempt=2))[0], NoValidHost), "by default it does not"
    assert isinstance((await cloud.select(spec=full, attempt=2, supersedes_above=0))[0], Placed)
    assert await cloud.claims() == [("i", 2, "n0")]


async def test_a_claim_for_which_something_may_have_been_dispatched_stays(cloud: Cloud, spec: Any, flavor: Any) -> None:
    small = spec(flavor=flavor(memory_mb=256))
    for attempt in (1, 2, 3):
        await cloud.select(spec=small, attempt=attempt)
    await cloud.select(spec=small, attempt=4, supersedes_above=1)
    assert [attempt for _, attempt, _ in await cloud.claims()] == [1, 4]


async def test_a_dry_run_frees_nothing(cloud: Cloud, spec: Any, flavor: Any) -> None:
    full = spec(flavor=flavor(memory_mb=1024))
    await cloud.select(spec=full)
    await cloud.select(spec=full, attempt=2, supersedes_above=0, dry_run=True)
    assert await cloud.claims() == [("i", 1, "n0")]


async def test_an_older_slot_gives_way_too(cloud: Cloud, spec: Any, group: Any) -> None:
    rule = group("anti-affinity")
    await cloud.select("a", spec=spec(group=rule))
    await cloud.select("a", spec=spec(group=rule), attempt=2, supersedes_above=0)
    states = cloud.services[0]._states
    assert [(slot.instance, slot.attempt) for slot in states.groups.slots(rule.uuid)] == [("a", 2)]


async def test_a_claim_that_another_scheduler_made_gives_way(usage: Any, spec: Any, flavor: Any) -> None:
    cloud = Cloud(usage, spec)
    await cloud.ready(hosts=1, schedulers=2, memory_mb=512 + 1024)
    full = spec(flavor=flavor(memory_mb=1024))
    await cloud.select(spec=full)
    for attempt in (2, 3):
        assert isinstance((await cloud.select(spec=full, attempt=attempt, supersedes_above=0))[0], Placed)
    assert [attempt for _, attempt, _ in await cloud.claims()] == [3]
    await cloud.stop()
