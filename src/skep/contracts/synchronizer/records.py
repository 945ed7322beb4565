"""The contract of one handle: records and their generations, snapshots, changes, trimming."""

from __future__ import annotations

import asyncio

import pytest

from skep.contracts.synchronizer.store import LONG, changes_after, key, news, write
from skep.domain.errors import Unavailable
from skep.synchronizer.base import (
    MAX_BODY_BYTES,
    Backend,
    Changes,
    Cursor,
    CursorTooOld,
    Key,
    Published,
    Record,
    Refusal,
    Snapshot,
    Write,
)

ODD_NAMES = (
    "cell-1/conductor.2",
    "a b",
    "*",
    ">",
    "$x",
    "..",
    "a:b|c%2F",
    "'; drop table records; --",
    "\u0101\u4e2d\U0001f41d",
    "A",
    "a",
    "n" * 200,
)


class RecordsContract:
    """One handle: records, generations, changes."""

    async def test_an_empty_backend_has_an_epoch_and_no_records(self, backend: Backend) -> None:
        snapshot = await backend.snapshot()
        assert snapshot.records == ()
        assert snapshot.epoch
        assert snapshot.epoch == await backend.epoch()

    async def test_the_epoch_stays_while_records_change(self, backend: Backend) -> None:
        before = await backend.epoch()
        await backend.publish((write("a", 0),))
        assert await backend.epoch() == before

    async def test_a_record_is_made_with_generation_1_and_each_write_adds_one(self, backend: Backend) -> None:
        assert await backend.publish((write("a", 0, b"one"),)) == (Published(1),)
        assert await backend.publish((write("a", 1, b"two"),)) == (Published(2),)
        assert (await backend.snapshot()).records == (Record(key=key("a"), generation=2, body=b"two"),)

    async def test_a_write_that_expects_another_generation_is_refused_with_the_fresh_record(
        self, backend: Backend
    ) -> None:
        await backend.publish((write("a", 0, b"one"),))
        held = Record(key=key("a"), generation=1, body=b"one")
        assert await backend.publish((write("a", 0, b"other"), write("a", 2, b"other"))) == (
            Refusal(held),
            Refusal(held),
        )
        assert (await backend.snapshot()).records == (held,)

    async def test_a_write_to_what_is_not_there_is_refused_with_nothing(self, backend: Backend) -> None:
        assert await backend.publish((write("a", 3),)) == (Refusal(None),)

    async def test_one_refusal_does_not_touch_the_other_writes(self, backend: Backend) -> None:
        await backend.publish((write("b", 0),))
        outcomes = await backend.publish((write("a", 0), write("b", 0), write("c", 0)))
        assert [type(outcome) for outcome in outcomes] == [Published, Refusal, Published]

    async def test_namespaces_are_apart(self, backend: Backend) -> None:
        one, other = key("a", "compute"), key("a", "groups")
        await backend.publish((Write(key=one, expected=0, body=b"1"), Write(key=other, expected=0, body=b"2")))
        bodies = {record.key: record.body for record in (await backend.snapshot()).records}
        assert bodies == {one: b"1", other: b"2"}

    async def test_a_removed_record_is_not_in_the_snapshot_and_its_generation_goes_on(self, backend: Backend) -> None:
        await backend.publish((write("a", 0),))
        cursor = (await backend.snapshot()).cursor
        assert await backend.publish((write("a", 1, b""),)) == (Published(2),)
        assert (await backend.snapshot()).records == ()
        changes = await changes_after(backend, cursor)
        assert changes.records == (Record(key=key("a"), generation=2, body=b""),)
        assert await backend.publish((write("a", 0),)) == (Refusal(Record(key=key("a"), generation=2, body=b"")),)
        assert await backend.publish((write("a", 2),)) == (Published(3),)

    async def test_changes_tell_what_came_after_the_cursor_once(self, backend: Backend) -> None:
        await backend.publish((write("a", 0),))
        cursor = (await backend.snapshot()).cursor
        assert (await changes_after(backend, cursor)).records == ()
        await backend.publish((write("b", 0, b"1"),))
        first = await changes_after(backend, cursor)
        assert [record.key.name for record in first.records] == ["b"]
        await backend.publish((write("a", 1, b"2"),))
        second = await changes_after(backend, first.cursor)
        assert [(record.key.name, record.body) for record in second.records] == [("a", b"2")]
        assert (await changes_after(backend, second.cursor)).records == ()

    async def test_of_several_changes_of_one_record_the_latest_is_told(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        for generation in range(5):
            await backend.publish((write("a", generation, b"%d" % generation),))
        records = (await changes_after(backend, cursor)).records
        assert records[-1] == Record(key=key("a"), generation=5, body=b"4")

    async def test_waiting_readers_are_all_woken_by_a_change(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        readers = [asyncio.create_task(changes_after(backend, cursor, wait=LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        await backend.publish((write("a", 0),))
        for changes in await asyncio.gather(*readers):
            assert [record.key.name for record in changes.records] == ["a"]

    async def test_waiting_ends_without_a_change(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        assert (await changes_after(backend, cursor, wait=0.01)).records == ()

    async def test_a_cursor_of_another_life_asks_for_a_snapshot(self, backend: Backend) -> None:
        assert await backend.changes(Cursor("nonsense")) == CursorTooOld()
        assert await backend.changes(Cursor("")) == CursorTooOld()

    async def test_trimming_never_makes_a_silent_gap(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        for number in range(20):
            await backend.publish((write(f"n{number}", 0),))
        latest = (await backend.snapshot()).cursor
        await backend.trim()
        changes = await backend.changes(cursor)
        assert isinstance(changes, CursorTooOld) or len(changes.records) == 20
        assert len((await backend.snapshot()).records) == 20
        assert isinstance(await backend.changes(latest), Changes)

    async def test_a_removed_record_is_remembered_for_a_while_whatever_is_trimmed(self, backend: Backend) -> None:
        await backend.publish((write("a", 0),))
        await backend.publish((write("a", 1, b""),))
        await backend.trim()
        assert await backend.publish((write("a", 0),)) == (Refusal(Record(key=key("a"), generation=2, body=b"")),)

    async def test_nothing_to_write_is_nothing_written(self, backend: Backend) -> None:
        assert await backend.publish(()) == ()

    async def test_names_and_bodies_are_any(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        bodies = {Key("odd_space.1", name): name.encode() + bytes(range(256)) for name in ODD_NAMES}
        outcomes = await backend.publish(tuple(Write(key=one, expected=0, body=body) for one, body in bodies.items()))
        assert set(outcomes) == {Published(1)}
        assert {record.key: record.body for record in (await backend.snapshot()).records} == bodies
        assert {record.key: record.body for record in (await news(backend, cursor)).records} == bodies

    async def test_the_largest_body_fits(self, backend: Backend) -> None:
        body = b'"%s"' % (b"x" * (MAX_BODY_BYTES - 2))
        assert await backend.publish((write("a", 0, body),)) == (Published(1),)
        assert await backend.publish((write("a", 0),)) == (Refusal(Record(key=key("a"), generation=1, body=body)),)
        assert (await backend.snapshot()).records == (Record(key=key("a"), generation=1, body=body),)

    async def test_many_writes_are_one_call(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        names = [f"n{number}" for number in range(1000)]
        assert set(await backend.publish(tuple(write(name, 0, name.encode()) for name in names))) == {Published(1)}
        expected = {Record(key=key(name), generation=1, body=name.encode()) for name in names}
        assert set((await backend.snapshot()).records) == expected
        told: set[Record] = set()
        while not told.issuperset(expected):
            answer = await news(backend, cursor)
            assert answer.records, "the changes ended before all were told"
            told |= set(answer.records)
            cursor = answer.cursor
        assert told == expected

    @pytest.mark.parametrize("nth", [1, 3, 7])
    async def test_who_sees_only_every_nth_state_knows_the_latest(self, backend: Backend, nth: int) -> None:
        snapshot = await backend.snapshot()
        cursor, known = snapshot.cursor, dict[Key, Record]()
        generations = dict.fromkeys("abc", 0)
        for number in range(21):
            name = "abc"[number % 3]
            body = b"" if number % 5 == 4 else b"%d" % number
            assert await backend.publish((write(name, generations[name], body),)) == (Published(generations[name] + 1),)
            generations[name] += 1
            if number % nth == nth - 1:
                answer = await news(backend, cursor)
                if isinstance(answer, Snapshot):
                    known.clear()
                known.update({record.key: record for record in answer.records})
                cursor = answer.cursor
                living = {record for record in known.values() if record.body}
                assert living == set((await backend.snapshot()).records)

    async def test_closing_ends_those_who_wait(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        reader = asyncio.create_task(changes_after(backend, cursor, wait=LONG))
        await asyncio.sleep(0)
        await backend.close()
        with pytest.raises(Unavailable):
            await reader

    async def test_what_is_closed_serves_no_more(self, backend: Backend) -> None:
        cursor = (await backend.snapshot()).cursor
        await backend.close()
        await backend.close()
        with pytest.raises(Unavailable):
            await backend.publish((write("a", 0),))
        with pytest.raises(Unavailable):
            await backend.snapshot()
        with pytest.raises(Unavailable):
            await backend.changes(cursor)
