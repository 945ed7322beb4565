"""A scheduler that was halted for minutes takes nobody for dead who spoke meanwhile, before it has read of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from skep.domain.claims import Claim
from skep.domain.clock import Clock
from skep.domain.hosts import nodes_version
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, AssertReply, HostReport
from skep.messages.to_scheduler_liveness import Beat, HeardPage
from skep.placement.settings import SchedulerSettings
from skep.scheduler.asserting import assert_claims
from skep.scheduler.changes import add_claim, merge_report
from skep.scheduler.commits import Commits
from skep.scheduler.liveness import take_beat
from skep.scheduler.members import FORGET_SECONDS
from skep.scheduler.membership import Membership
from skep.scheduler.mirror import Mirror
from skep.scheduler.records import BEATS, CELLS, COMPUTE, HEARING, SCHEDULERS
from skep.scheduler.states import HostStates
from skep.synchronizer.base import Epoch, Key
from skep.synchronizer.memory import MemoryBackend, MemoryRecords

CELL, NODE = CellUuid("cell-1"), NodeUuid("n1")
LONG = 1000.0
"""Seconds after which any beat that has not changed is that of somebody who is no more."""


class One:
    """One scheduler's memory on a backend, which hears of others only when it is told to."""

    def __init__(self, shared: MemoryRecords | None = None) -> None:
        self.now = 0.0
        self.backend = MemoryBackend(records=shared)
        self.states = HostStates(SchedulerSettings())
        self.mirror = Mirror(self.backend, self.states, lambda: self.now)
        self.commits = Commits(self.backend, self.states, self.mirror, lambda: self.now)
        self.membership = Membership(self.states, self.commits, Clock(), lambda: self.now, partition=True)

    async def beat(self, conductor: str, *nodes: str) -> None:
        heard = tuple(NodeUuid(node) for node in nodes)
        page = HeardPage(page=0, version=nodes_version(heard), nodes=heard)
        message = Beat(cell=CELL, conductor=conductor, pages=(page.version,), told=(page,))
        await take_beat(self.states, self.commits, message, 0, self.now)

    async def names(self, namespace: str) -> set[str]:
        await self.mirror.catch_up()
        return {key.name for key in self.states.keys(namespace)}

    async def assert_claims(self, *claims: Claim) -> AssertReply:
        message = AssertClaims(cell=CELL, epoch=self.states.epoch, claims=claims)
        return await assert_claims(self.states, self.commits, message)


def claim(instance: str) -> Claim:
    return Claim(instance=InstanceUuid(instance), attempt=1, node=NODE, resources={"VCPU": 1})


async def two() -> tuple[One, One]:
    halted = One()
    awake = One(halted.backend.records)
    for one in (halted, awake):
        await one.mirror.load()
    return halted, awake


async def test_the_beats_of_conductors_stay_that_went_on_meanwhile() -> None:
    halted, awake = await two()
    await halted.beat("run-1", "n1")
    await halted.beat("run-2", "n2")
    await awake.mirror.catch_up()
    await awake.beat("run-2", "n2")
    halted.now = LONG
    await halted.beat("run-1", "n1")
    assert await awake.names(BEATS) == {f"{CELL}/run-1", f"{CELL}/run-2"}
    assert await awake.names(HEARING) == {f"{CELL}/run-1/0", f"{CELL}/run-2/0"}


async def test_a_conductor_that_is_no_more_goes_with_its_lists() -> None:
    halted, awake = await two()
    await awake.beat("run-2", "n2")
    await halted.mirror.catch_up()
    halted.now = LONG
    await halted.beat("run-1", "n1")
    assert await awake.names(BEATS) == {f"{CELL}/run-1"}
    assert await awake.names(HEARING) == {f"{CELL}/run-1/0"}


async def test_schedulers_stay_that_went_on_meanwhile() -> None:
    halted, awake = await two()
    await awake.membership.beat()
    await halted.mirror.catch_up()
    await awake.membership.beat()
    halted.now = 2 * FORGET_SECONDS
    await halted.membership.beat()
    assert await awake.names(SCHEDULERS) == {halted.membership.run, awake.membership.run}


async def test_a_cells_second_assertion_must_fit_also_by_a_scheduler_that_has_not_heard_of_the_first(
    usage: Callable[..., Any],
) -> None:
    halted, awake = await two()
    report = HostReport(node=NODE, cell=CELL, incarnation=1, seq=1, usage=usage("h1", vcpus=1, cpu_ratio=1.0))
    await awake.commits.change(Key(COMPUTE, NODE), merge_report(report))
    assert (await awake.assert_claims()).refused == ()
    stored = await awake.commits.change(Key(COMPUTE, NODE), add_claim(claim("placed meanwhile")))
    assert stored.answer
    assert [key.instance for key in (await halted.assert_claims(claim("too late"))).refused] == ["too late"]


async def test_nothing_is_asserted_under_another_epoch_than_the_one_it_was_told_for() -> None:
    halted, awake = await two()
    first = Epoch(halted.states.epoch)
    asserting = asyncio.create_task(halted.assert_claims(claim("told")))
    await halted.backend.begin_epoch(first)
    await awake.mirror.catch_up()
    assert (await asserting).epoch != first
    assert await awake.names(COMPUTE) == set()
    assert await awake.names(CELLS) == set()
