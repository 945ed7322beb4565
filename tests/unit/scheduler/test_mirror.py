"""How a scheduler notices that the backend lost records, and what it does then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CellUuid
from skep.scheduler import changes, records
from skep.scheduler.changes import Change
from skep.scheduler.mirror import PAGE
from skep.scheduler.records import ComputeValue, GroupValue
from skep.synchronizer.base import Epoch, Key, Record, Snapshot, Write
from skep.synchronizer.memory import MemoryBackend
from tests.support.stores.memory import MemoryStore
from tests.unit.scheduler.test_commits import GROUP, One, add

NODE = Key("compute", "n")


def touch(value: ComputeValue | None) -> Change[None]:
    """Change a host's record in a way that shows."""
    return Change(ComputeValue(cell=CellUuid(f"{value.cell if value else ''}x")), None)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def one(store: MemoryStore) -> One:
    one = One(store.records)
    await one.mirror.load()
    await one.commits.change(NODE, touch)
    return one


async def test_a_refusal_with_an_older_generation_ends_the_epoch(one: One, store: MemoryStore) -> None:
    epoch, copied = one.states.epoch, await store.copy()
    await one.commits.change(NODE, touch)
    await store.restore(copied)
    stored = await one.commits.change(NODE, touch)
    assert one.states.epoch == stored.epoch != epoch
    assert one.states.held(NODE).value.cell == "x"


async def test_a_refusal_without_a_record_ends_the_epoch(one: One, store: MemoryStore) -> None:
    epoch = one.states.epoch
    del store.records._records[NODE]
    await one.commits.change(NODE, touch)
    assert one.states.epoch == (await one.backend.epoch()) != epoch


async def test_a_refusal_that_shows_another_content_of_the_same_generation_is_a_loss(one: One) -> None:
    held = one.states.held(NODE)
    same = Record(key=NODE, generation=1, body=records.encode(one.states.epoch, 1, held.value))
    other = Record(key=NODE, generation=1, body=records.encode(one.states.epoch, 1, ComputeValue(cell=CellUuid("y"))))
    assert one.mirror.take_refusal(NODE, same, 0.0) is None
    assert "differs" in str(one.mirror.take_refusal(NODE, other, 0.0))


async def test_a_snapshot_that_lacks_a_host_ends_the_epoch(one: One, store: MemoryStore) -> None:
    epoch = one.states.epoch
    del store.records._records[NODE]
    await one.mirror.load()
    assert one.states.epoch != epoch
    assert one.states.held(NODE).value is None


async def test_a_snapshot_with_an_older_host_ends_the_epoch(one: One, store: MemoryStore) -> None:
    epoch, copied = one.states.epoch, await store.copy()
    await one.commits.change(NODE, touch)
    await store.restore(copied)
    await one.mirror.load()
    assert one.states.epoch != epoch


async def test_a_snapshot_that_lacks_a_group_does_not_for_groups_are_removed(one: One) -> None:
    await one.commits.change(GROUP, add(1))
    other = One(one.backend.records)
    await other.mirror.load()
    await other.commits.change(GROUP, changes.set_value(None))
    epoch = one.states.epoch
    await one.mirror.load()
    assert one.states.epoch == epoch
    assert one.instances == []


async def test_an_epoch_that_had_ended_does_not_come_back(one: One, store: MemoryStore) -> None:
    first, copied = one.states.epoch, await store.copy()
    await store.wipe()
    await one.mirror.catch_up()
    second = one.states.epoch
    await store.restore(copied)
    await one.mirror.catch_up()
    assert one.states.epoch not in (first, second)


async def test_a_record_overwritten_by_who_lives_in_another_epoch_ends_the_epoch(one: One) -> None:
    epoch = one.states.epoch
    body = records.encode("an older one", 2, ComputeValue(cell=CellUuid("y")))
    await MemoryBackend.publish(one.backend, (Write(key=NODE, expected=1, body=body),))
    await one.mirror.catch_up()
    assert one.states.epoch != epoch


async def test_a_removed_record_that_the_backend_has_forgotten_begins_anew(one: One, store: MemoryStore) -> None:
    await one.commits.change(GROUP, add(1))
    await one.commits.change(GROUP, changes.set_value(None))
    epoch = one.states.epoch
    del store.records._records[GROUP]
    stored = await one.commits.change(GROUP, add(2))
    assert (one.states.epoch, stored.answer) == (epoch, 1)


async def test_a_backend_that_forgets_in_every_epoch_is_broken(one: One) -> None:
    class Broken(MemoryBackend):
        async def snapshot(self) -> Snapshot:
            fresh = await super().snapshot()
            return Snapshot(epoch=Epoch(one.states.epoch), records=(), cursor=fresh.cursor)

    one.mirror._backend = Broken(records=one.backend.records)
    with pytest.raises(StorageUnavailable):
        await one.mirror.load()


async def test_those_who_look_at_the_same_time_share_a_reading(one: One) -> None:
    reads: list[str] = []
    changes_of = one.backend.changes

    async def counted(cursor: Any, *, wait: float = 0.0) -> Any:
        reads.append(cursor)
        await asyncio.sleep(0)
        return await changes_of(cursor, wait=wait)

    one.backend.changes = counted  # type: ignore[method-assign]  # to count
    await asyncio.gather(*(one.mirror.look() for _ in range(20)))
    assert len(reads) == 1


async def test_who_looks_while_others_read_does_not_trust_their_reading(one: One) -> None:
    other = One(one.backend.records)
    await other.mirror.load()
    changes_of, entered, go = one.backend.changes, asyncio.Event(), asyncio.Event()

    async def slow(cursor: Any, *, wait: float = 0.0) -> Any:
        answer = await changes_of(cursor, wait=wait)
        entered.set()
        await go.wait()
        return answer

    one.backend.changes = slow  # type: ignore[method-assign]  # to hold the answer back
    first = asyncio.create_task(one.mirror.look())
    await entered.wait()
    await other.commits.change(GROUP, add(1))
    second = asyncio.create_task(one.mirror.look())
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, second)
    assert one.instances == ["i1"]


async def test_many_records_are_taken_while_others_go_on(one: One, store: MemoryStore) -> None:
    turns = 0

    async def go_on() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def fill() -> None:
        epoch = store.records.epoch
        body = records.encode(epoch, 1, GroupValue(slots=()))
        keys = (Key("groups", f"g{number}") for number in range(3 * PAGE))
        store.records.publish(tuple(Write(key=key, expected=0, body=body) for key in keys))

    other = asyncio.create_task(go_on())
    fill()
    await one.mirror.catch_up()
    by_changes, turns = turns, 0
    await store.wipe()
    fill()
    await one.mirror.catch_up()
    other.cancel()
    assert len(one.states.keys("groups")) == 3 * PAGE
    assert by_changes > 1
    assert turns > 1


async def test_who_looks_while_all_is_read_anew_sees_what_was_written_after_that_reading(store: MemoryStore) -> None:
    go_on = asyncio.Event()
    go_on.set()

    class Slow(MemoryBackend):
        async def snapshot(self) -> Snapshot:
            snapshot = await super().snapshot()
            await go_on.wait()
            return snapshot

    one, other = One(store.records), One(store.records)
    one.mirror._backend = Slow(records=store.records)
    for each in (one, other):
        await each.mirror.load()
    await store.wipe()
    go_on.clear()
    reading = asyncio.create_task(one.mirror.catch_up())
    for _ in range(10):
        await asyncio.sleep(0)
    assert one.mirror.lock.locked(), "its snapshot is on the way"
    await other.mirror.catch_up()
    await other.commits.change(GROUP, add(1))
    looking = asyncio.create_task(one.commits.look())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(reading, looking)
    assert one.instances == ["i1"]
