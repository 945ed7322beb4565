"""Commits: refusals, answers that were lost, records that grow too large, changes that fail, what goes first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from skep.domain.errors import TooLarge, Unavailable
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import AggregatePage
from skep.placement.groups import GroupSlot
from skep.placement.settings import SchedulerSettings
from skep.scheduler import changes, records
from skep.scheduler.changes import Change
from skep.scheduler.commits import MOST_CHANGES, Commits
from skep.scheduler.mirror import Mirror
from skep.scheduler.records import GroupValue
from skep.scheduler.states import HostStates
from skep.synchronizer.base import MAX_BODY_BYTES, Epoch, Key, Published, Refusal, Write
from skep.synchronizer.memory import MemoryBackend, MemoryRecords

GROUP = Key("groups", "g")


def slot(number: int) -> GroupSlot:
    return GroupSlot(f"i{number}", 1, NodeUuid("n"))  # type: ignore[arg-type]  # any text names an instance here


def add(number: int) -> Callable[[GroupValue | None], Change[int]]:
    """Return a change that adds a slot and answers how many there are."""

    def change(value: GroupValue | None) -> Change[int]:
        slots = value.slots if value is not None else ()
        if slot(number) in slots:
            return Change(value, len(slots))
        return Change(GroupValue(slots=(*slots, slot(number))), len(slots) + 1)

    return change


class Watched(MemoryBackend):
    """Counts what is published, and can lose calls and answers."""

    def __init__(self, shared: MemoryRecords | None = None) -> None:
        super().__init__(records=shared)
        self.batches: list[tuple[Write, ...]] = []
        self.lose: str | None = None
        self.late: list[tuple[Write, ...]] = []

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        self.batches.append(writes)
        if self.lose == "late":
            self.late.append(writes)
        if self.lose in ("call", "late"):
            raise Unavailable("the call was lost")
        outcomes = await super().publish(writes, epoch=epoch)
        if self.lose == "answer":
            raise Unavailable("the answer was lost")
        return outcomes


class One:
    """One scheduler's memory on a backend."""

    def __init__(self, shared: MemoryRecords | None = None) -> None:
        self.backend = Watched(shared)
        self.states = HostStates(SchedulerSettings())
        self.mirror = Mirror(self.backend, self.states, lambda: 0.0)
        self.commits = Commits(self.backend, self.states, self.mirror, lambda: 0.0)

    @property
    def instances(self) -> list[str]:
        value = self.states.held(GROUP).value
        return [held.instance for held in value.slots] if value is not None else []


@pytest.fixture
async def one() -> One:
    one = One()
    await one.mirror.load()
    return one


async def other_of(one: One) -> One:
    other = One(one.backend.records)
    await other.mirror.load()
    return other


async def test_changes_that_wait_together_are_one_round_trip_and_one_write(one: One) -> None:
    answers = await asyncio.gather(*(one.commits.change(GROUP, add(number)) for number in range(5)))
    assert [stored.answer for stored in answers] == [1, 2, 3, 4, 5]
    assert [len(batch) for batch in one.backend.batches] == [1]


async def test_a_refusal_costs_one_more_round_trip_and_only_for_the_refused(one: One) -> None:
    other = await other_of(one)
    await other.commits.change(GROUP, add(1))
    free = Key("groups", "free")
    refused, stored = await asyncio.gather(one.commits.change(GROUP, add(2)), one.commits.change(free, add(3)))
    assert (refused.answer, refused.refused) == (2, 1)
    assert (stored.answer, stored.refused) == (1, 0)
    assert [[write.key for write in batch] for batch in one.backend.batches] == [[GROUP, free], [GROUP]]


@pytest.mark.parametrize("lost", ["call", "answer"])
async def test_what_became_of_a_lost_publish_is_found_out_before_anything_is_decided(one: One, lost: str) -> None:
    await one.commits.change(GROUP, add(1))
    one.backend.lose = lost
    with pytest.raises(Unavailable):
        await one.commits.change(GROUP, add(2))
    assert one.instances == ["i1"]
    with pytest.raises(Unavailable):
        await one.commits.be_certain()
    one.backend.lose = None
    await one.commits.be_certain()
    assert one.instances == (["i1", "i2"] if lost == "answer" else ["i1"])


async def test_a_write_that_was_only_late_is_never_taken_once_it_was_asked_about(one: One) -> None:
    await one.commits.change(GROUP, add(1))
    one.backend.lose = "late"
    with pytest.raises(Unavailable):
        await one.commits.change(GROUP, add(2))
    one.backend.lose = None
    await one.commits.be_certain()
    assert one.instances == ["i1"]
    (outcome,) = await MemoryBackend.publish(one.backend, one.backend.late[0])
    assert isinstance(outcome, Refusal)


async def test_a_record_that_grows_too_large_fails_alone(one: One) -> None:
    aggregate = Key("aggregates", "1")
    large = AggregatePage(id=1, hosts=("h" * MAX_BODY_BYTES,))
    good = AggregatePage(id=1, hosts=("h",))
    taken, too_large, beside = await asyncio.gather(
        one.commits.change(aggregate, changes.set_value(good)),
        one.commits.change(aggregate, changes.set_value(large)),
        one.commits.change(GROUP, add(1)),
        return_exceptions=True,
    )
    assert isinstance(too_large, TooLarge)
    assert "aggregates/1" in str(too_large)
    assert not isinstance(taken, BaseException)
    assert not isinstance(beside, BaseException)
    assert one.states.held(aggregate).value == good


async def test_a_change_that_fails_is_told_so_and_the_others_go_on(one: One) -> None:
    def fails(_: Any) -> Change[None]:
        raise ZeroDivisionError

    failed, stored = await asyncio.gather(
        one.commits.change(GROUP, fails), one.commits.change(GROUP, add(1)), return_exceptions=True
    )
    assert isinstance(failed, ZeroDivisionError)
    assert not isinstance(stored, BaseException)
    assert stored.answer == 1


async def test_what_a_server_waits_for_goes_before_a_flood(one: One) -> None:
    flood = [one.commits.change(Key("groups", f"flood-{n}"), add(n)) for n in range(2 * MOST_CHANGES)]
    urgent = one.commits.change(GROUP, add(1), urgent=True)
    await asyncio.wait((urgent,))
    assert one.backend.batches[0][0].key == GROUP
    assert len(one.backend.batches[0]) == MOST_CHANGES
    assert not flood[-1].done()
    await asyncio.gather(*flood)


async def test_a_record_changed_in_vain_is_not_written(one: One) -> None:
    await one.commits.change(GROUP, add(1))
    before = len(one.backend.batches)
    stored = await one.commits.change(GROUP, add(1))
    assert stored.answer == 1
    assert len(one.backend.batches) == before


async def test_bodies_say_their_generation_and_epoch(one: One) -> None:
    await one.commits.change(GROUP, add(1))
    await one.commits.change(GROUP, add(2))
    (record,) = (await one.backend.snapshot()).records
    assert record.generation == 2
    assert records.decode(one.states.epoch, record) == GroupValue(slots=(slot(1), slot(2)))


async def test_who_slept_through_an_epochs_end_overwrites_nothing_and_needs_no_third_epoch(one: One) -> None:
    """The generations coincide: one was known of the old life's record, and one is that of the young one's."""
    await one.commits.change(GROUP, add(1))
    first = one.states.epoch
    other = await other_of(one)
    second = await one.backend.begin_epoch(Epoch(first))
    await other.mirror.catch_up()
    await other.commits.change(GROUP, add(2))
    stored = await one.commits.change(GROUP, add(3))
    assert (stored.answer, stored.epoch) == (2, second)
    assert await one.backend.epoch() == one.states.epoch == second
    assert one.instances == ["i2", "i3"]


async def test_what_is_uncertain_when_its_epoch_ends_needs_no_third_epoch(one: One) -> None:
    await one.commits.change(GROUP, add(1))
    one.backend.lose = "call"
    with pytest.raises(Unavailable):
        await one.commits.change(GROUP, add(2))
    one.backend.lose = None
    second = await one.backend.begin_epoch(Epoch(one.states.epoch))
    await one.commits.be_certain()
    assert await one.backend.epoch() == one.states.epoch == second
    assert one.instances == []
