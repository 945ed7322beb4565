"""The contract of several handles on one store: writers that race, readers that follow, lost calls, crashes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from skep.contracts.synchronizer.faults import LosesAnswers, Loss
from skep.contracts.synchronizer.store import LONG, Store, changes_after, key, news, write
from skep.domain.errors import Unavailable
from skep.synchronizer.base import Backend, Cursor, CursorTooOld, Key, Published, Record, Refusal, Snapshot

ROUNDS = 10
"""Accepted writes of each writer in a race."""


class SharingContract:
    """Several handles, as several processes have them."""

    async def test_every_handle_sees_the_same(self, store: Store, backend: Backend) -> None:
        other = await store.open()
        await backend.publish((write("a", 0, b"one"),))
        assert await other.epoch() == await backend.epoch()
        assert (await other.snapshot()).records == (Record(key=key("a"), generation=1, body=b"one"),)
        assert await other.publish((write("a", 1, b"two"),)) == (Published(2),)
        held = Record(key=key("a"), generation=2, body=b"two")
        assert await backend.publish((write("a", 1, b"late"),)) == (Refusal(held),)

    async def test_a_cursor_is_good_for_every_handle(self, store: Store, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        other = await store.open()
        await other.publish((write("a", 0),))
        assert [record.key.name for record in (await changes_after(other, cursor)).records] == ["a"]

    async def test_what_one_handle_wrote_wakes_the_readers_of_others(self, store: Store, backend: Backend) -> None:
        others = [await store.open() for _ in range(2)]
        cursor = (await backend.snapshot()).cursor
        readers = [asyncio.create_task(changes_after(other, cursor, wait=LONG)) for other in others]
        await asyncio.sleep(0)
        await backend.publish((write("a", 0),))
        for changes in await asyncio.gather(*readers):
            assert [record.key.name for record in changes.records] == ["a"]

    async def test_closing_one_handle_leaves_the_others_alone(self, store: Store, backend: Backend) -> None:
        other = await store.open()
        await backend.publish((write("a", 0),))
        await backend.close()
        assert await other.publish((write("a", 1),)) == (Published(2),)

    @pytest.mark.parametrize("handles", [1, 2])
    async def test_of_writers_that_race_one_wins_each_generation(self, store: Store, handles: int) -> None:
        backends = [await store.open() for _ in range(handles)]
        await asyncio.gather(*(_count(backends[number % handles], number) for number in range(4)))
        _assert_counted(await backends[0].snapshot(), 4)

    async def test_of_batches_that_race_each_write_is_taken_by_itself(self, store: Store) -> None:
        backends = [await store.open() for _ in range(2)]
        names = [f"n{number}" for number in range(20)]
        batches = [tuple(write(name, 0, b"%d" % number) for name in order(names)) for number, order in _ORDERS]
        answers = await asyncio.gather(*(backends[number % 2].publish(batch) for number, batch in enumerate(batches)))
        truth = {record.key: record for record in (await backends[0].snapshot()).records}
        winners: list[Key] = []
        for batch, outcomes in zip(batches, answers, strict=True):
            for one, outcome in zip(batch, outcomes, strict=True):
                if outcome == Published(1):
                    winners.append(one.key)
                    assert truth[one.key].body == one.body
                else:
                    assert outcome == Refusal(truth[one.key])
        assert sorted(winners) == sorted(map(key, names))

    async def test_readers_that_follow_miss_nothing_while_many_write(self, store: Store) -> None:
        writers = [await store.open() for _ in range(2)]
        readers = [await store.open() for _ in range(2)]
        cursor = (await readers[0].snapshot()).cursor
        done = asyncio.Event()
        following = [asyncio.create_task(_follow(reader, cursor, done)) for reader in readers]
        await asyncio.gather(*(_scribble(writers[number % 2], number) for number in range(6)))
        done.set()
        await writers[0].publish((write("the end", 0),))
        truth = {record.key: record for record in (await writers[0].snapshot()).records}
        for known in await asyncio.gather(*following):
            assert {name: record for name, record in known.items() if record.body} == truth

    async def test_a_lost_call_or_answer_is_repeated_and_counts_once(self, store: Store) -> None:
        losses: list[Loss] = ["none", "call", "answer", "answer", "none", "call"]
        proxies = []
        for shift in range(2):
            order = itertools.cycle(losses[shift:] + losses[:shift])
            proxies.append(LosesAnswers(await store.open(), order.__next__))
        await asyncio.gather(*(_count(proxy, number) for number, proxy in enumerate(proxies)))
        reader = await store.open()
        _assert_counted(await reader.snapshot(), 2)

    async def test_a_crash_in_the_middle_leaves_each_record_whole_or_absent(self, store: Store) -> None:
        writes = tuple(write(f"n{number}", 0, b"%d" % number) for number in range(50))
        crashing = await store.open()
        call = asyncio.create_task(crashing.publish(writes))
        for _ in range(3):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await crashing.close()
        survivor = await store.open()
        whole = {one.key: Record(key=one.key, generation=1, body=one.body) for one in writes}
        assert set((await survivor.snapshot()).records) <= set(whole.values())
        for one, outcome in zip(writes, await survivor.publish(writes), strict=True):
            assert outcome in {Published(1), Refusal(whole[one.key])}
        assert set((await survivor.snapshot()).records) == set(whole.values())

    async def test_an_abandoned_handle_holds_nobody_up(self, store: Store, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        waiting = asyncio.create_task(backend.changes(cursor, wait=LONG))
        calls = [asyncio.create_task(backend.publish((write("a", 0, b"%d" % number),))) for number in range(3)]
        await asyncio.sleep(0)
        for call in (waiting, *calls):
            call.cancel()
        other = await store.open()
        assert isinstance((await other.publish((write("b", 0),)))[0], Published)
        assert key("b") in {record.key for record in (await other.snapshot()).records}
        for call in (waiting, *calls):
            with contextlib.suppress(asyncio.CancelledError, Unavailable):
                await call

    async def test_trimming_by_another_makes_no_silent_gap(self, store: Store, backend: Backend) -> None:
        other = await store.open()
        cursor = (await backend.snapshot()).cursor
        for number in range(20):
            await other.publish((write(f"n{number}", 0),))
            await other.trim()
        changes = await backend.changes(cursor)
        assert isinstance(changes, CursorTooOld) or len(changes.records) == 20
        assert len((await backend.snapshot()).records) == 20


_ORDERS = ((0, list), (1, sorted), (2, lambda names: sorted(names, reverse=True)), (3, lambda names: names[::-1]))


async def _count(backend: Backend, writer: int) -> None:
    """Add ROUNDS words to one record, as schedulers add claims: who is refused looks whether his word is there."""
    held = Record(key=key("a"), generation=0, body=b"")
    for number in range(ROUNDS):
        word = b"%d.%d" % (writer, number)
        while word not in held.body.split():
            body = held.body + b" " + word
            try:
                (outcome,) = await backend.publish((write("a", held.generation, body),))
            except Unavailable:
                continue
            if isinstance(outcome, Published):
                held = Record(key=key("a"), generation=outcome.generation, body=body)
            else:
                assert outcome.record is not None
                held = outcome.record


def _assert_counted(snapshot: Snapshot, writers: int) -> None:
    """Every word is there once, and none took more than one generation."""
    (record,) = snapshot.records
    words = record.body.split()
    assert sorted(words) == sorted(b"%d.%d" % (writer, number) for writer in range(writers) for number in range(ROUNDS))
    assert record.generation == len(words)


async def _scribble(backend: Backend, writer: int) -> None:
    """Write and remove a few records that others write too."""
    believed: dict[Key, int] = {}
    for number in range(ROUNDS):
        names = [f"n{(writer * step + number) % 7}" for step in (1, 2)]
        writes = tuple(
            write(name, believed.get(key(name), 0), b"" if (number + writer) % 4 == 3 else b"%d %d" % (writer, number))
            for name in dict.fromkeys(names)
        )
        for one, outcome in zip(writes, await backend.publish(writes), strict=True):
            if isinstance(outcome, Published):
                believed[one.key] = outcome.generation
            else:
                believed[one.key] = outcome.record.generation if outcome.record else 0


async def _follow(backend: Backend, cursor: Cursor, done: asyncio.Event) -> dict[Key, Record]:
    """Follow the changes until the record `the end` is told; generations never go down."""
    known: dict[Key, Record] = {}
    while not (done.is_set() and key("the end") in known):
        answer = await news(backend, cursor, wait=LONG)
        if isinstance(answer, Snapshot):
            known = {record.key: record for record in known.values() if not record.body}
        for record in answer.records:
            held = known.get(record.key)
            assert held is None or record.generation >= held.generation
            known[record.key] = record
        cursor = answer.cursor
    return known
