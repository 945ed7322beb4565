"""Schedulers at random on a backend that loses answers: one is killed, all is wiped, an old copy is put back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from skep.domain.builds import NoValidHost, Placed
from skep.domain.groups import GroupRule
from skep.domain.ids import GroupUuid
from tests.functional.schedulers.crowd import Crowd

SEEDS = range(6)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Crowd]]:
    crowds: list[Crowd] = []

    def make(**facts: Any) -> Crowd:
        crowds.append(Crowd(**facts))
        return crowds[-1]

    yield make
    for crowd in crowds:
        await crowd.close()


def group_of(crowd: Crowd) -> GroupRule | None:
    policy: Any = crowd.dice.choice((None, None, "affinity", "anti-affinity"))
    if policy is None:
        return None
    return GroupRule(uuid=GroupUuid(policy), policy=policy, max_server_per_host=2)


async def work(crowd: Crowd, prefix: str, requests: int, at_once: int = 8) -> None:
    """Create and delete servers, several callers at once."""

    async def caller(number: int) -> None:
        for turn in range(requests // at_once):
            if crowd.dice.random() < 0.3 and crowd.book:
                key = crowd.dice.choice(sorted(crowd.book))
                await crowd.delete(key)
            else:
                names = tuple(f"{prefix}-{number}-{turn}-{member}" for member in range(crowd.dice.randint(1, 3)))
                await crowd.create(names, vcpus=crowd.dice.randint(1, 2), group=group_of(crowd))
            if crowd.dice.random() < 0.2:
                await crowd.report(crowd.dice.choice(crowd.nodes))

    await asyncio.gather(*(caller(number) for number in range(at_once)))


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_overcommitted_and_no_answer_lost_when_a_scheduler_is_killed(
    make: Callable[..., Crowd], seed: int
) -> None:
    crowd = make(seed=seed)
    await crowd.start(4)
    for process in crowd.processes:
        process.backend.loses = 0.05
    working = asyncio.create_task(work(crowd, "a", 160))
    for _ in range(crowd.dice.randrange(50, 400)):
        await asyncio.sleep(0)
    await crowd.processes[crowd.dice.randrange(4)].kill()
    await working
    await work(crowd, "b", 80)
    assert crowd.outcomes["Placed"] > 50
    assert crowd.outcomes["repeated"] > 0
    await crowd.check()
    for process in crowd.living:
        process.backend.loses = 0.0
        await process.service._mirror.look()
    claimed = await crowd.claimed()
    for (name, attempt), row in sorted(crowd.book.items()):
        # A call whose answer was lost and that was repeated elsewhere before the news came may have claimed twice.
        assert row.node in claimed[name, attempt]
        (decision,) = await crowd.create((name,), group=row.group)
        assert isinstance(decision, Placed)
        assert decision.node in claimed[name, attempt]
    assert await crowd.claimed() == claimed


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_wiped_backend_is_told_everything_again_in_mid_load(make: Callable[..., Crowd], seed: int) -> None:
    crowd = make(seed=seed)
    await crowd.start(3)
    working = asyncio.create_task(work(crowd, "a", 160))
    for _ in range(crowd.dice.randrange(100, 300)):
        await asyncio.sleep(0)
    await crowd.store.wipe()
    await working
    await crowd.acquaint()
    await retell(crowd)
    await work(crowd, "b", 80)
    await crowd.check()
    assert crowd.outcomes["Placed"] > 20


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_old_copy_of_the_backend_is_noticed_and_given_up(make: Callable[..., Crowd], seed: int) -> None:
    crowd = make(seed=seed)
    await crowd.start(3)
    await work(crowd, "a", 48)
    before = await crowd.epoch()
    copied = await crowd.store.copy()
    await work(crowd, "b", 48)
    await crowd.store.restore(copied)
    if crowd.dice.random() < 0.5:
        await crowd.join()  # it knows nothing better than the copy
    await work(crowd, "c", 24)
    await crowd.acquaint()
    assert await crowd.epoch() != before
    await retell(crowd)
    await work(crowd, "d", 48)
    await crowd.check()


async def retell(crowd: Crowd) -> None:
    """What the API database's publisher does at once in another epoch, and then cells and hosts."""
    await crowd.publish()
    await crowd.heal()


async def test_no_valid_host_is_never_said_while_there_is_one(make: Callable[..., Crowd]) -> None:
    crowd = make(seed=1, hosts=4, vcpus=4)
    await crowd.start(4)
    for process in crowd.processes:
        process.backend.lag = 200
    for turn in range(30):
        names = [f"{turn}-{number}" for number in range(16)]
        decisions = await asyncio.gather(*(crowd.create((name,)) for name in names))
        assert all(isinstance(decision, Placed) for (decision,) in decisions)
        ((refused,),) = await asyncio.gather(crowd.create((f"{turn}-more",)))
        assert isinstance(refused, NoValidHost)
        await asyncio.gather(*(crowd.delete(key) for key in list(crowd.book)))


async def test_schedulers_that_share_the_hosts_meet_each_other_less(make: Callable[..., Crowd]) -> None:
    met = {}
    for partition in (False, True):
        crowd = make(seed=3, hosts=60, vcpus=16, partition=partition)
        await crowd.start(4)
        await work(crowd, "a", 480, at_once=16)
        met[partition] = sum(process.conflicts for process in crowd.processes)
        await crowd.check()
    assert met[True] < met[False]


async def test_shares_are_apart_and_follow_who_lives(make: Callable[..., Crowd]) -> None:
    crowd = make(seed=5, hosts=40)
    await crowd.start(3)

    def shares() -> list[int]:
        masks = [process.service.states.placement.partition.own() for process in crowd.living]
        counts = [sum(bool(mask[row]) for mask in masks if mask is not None) for row in range(40)]
        assert set(counts) == {1}
        return [int(mask.sum()) for mask in masks if mask is not None]

    assert all(share > 4 for share in shares())
    await crowd.processes[0].service.stop()
    crowd.processes[0].here.dead = True
    await crowd.acquaint()
    assert len(shares()) == 2
    await crowd.processes[1].kill()
    survivor = crowd.processes[2]
    survivor.now += 5.0
    await crowd.acquaint()
    assert survivor.service.states.placement.partition.own() is None
