"""The contract of epochs: one life of the data ends, by intent, by loss, or by an old copy that was put in place."""

from __future__ import annotations

import asyncio
from functools import partial

from skep.contracts.synchronizer.store import LONG, Store, key, needs_copy, needs_wipe, patiently, write
from skep.synchronizer.base import Backend, CursorTooOld, Epoch, Published, Refusal


class LivesContract:
    """One life of the data and the next."""

    async def test_begin_epoch_is_another_life_without_records(self, backend: Backend) -> None:
        await backend.publish((write("a", 0), write("b", 0)))
        before = await backend.snapshot()
        epoch = await backend.begin_epoch(before.epoch)
        assert epoch != before.epoch
        assert await backend.epoch() == epoch
        after = await backend.snapshot()
        assert (after.epoch, after.records) == (epoch, ())
        assert await backend.changes(before.cursor) == CursorTooOld()
        assert await backend.publish((write("a", 1),)) == (Refusal(None),)
        assert await backend.publish((write("a", 0),)) == (Published(1),)

    async def test_writes_for_an_epoch_that_ended_are_refused_and_touch_nothing(
        self, store: Store, backend: Backend
    ) -> None:
        """Generations begin anew, so a writer that slept through the end would else overwrite a younger record."""
        other = await store.open()
        await backend.publish((write("a", 0, b"old"),))
        first = await backend.epoch()
        assert await backend.publish((write("b", 0),), epoch=first) == (Published(1),)
        second = await other.begin_epoch(first)
        assert await other.publish((write("a", 0, b"young"),), epoch=second) == (Published(1),)
        ended = Refusal(None, ended=True)
        assert await backend.publish((write("a", 1, b"late"), write("c", 0)), epoch=first) == (ended, ended)
        assert await backend.publish((write("a", 0),), epoch=Epoch("never was")) == (ended,)
        records = (await other.snapshot()).records
        assert [(record.key, record.generation, record.body) for record in records] == [(key("a"), 1, b"young")]
        assert await backend.publish((write("a", 1, b"next"),), epoch=second) == (Published(2),)

    async def test_only_the_expected_epoch_is_ended(self, backend: Backend) -> None:
        first = await backend.epoch()
        second = await backend.begin_epoch(first)
        await backend.publish((write("a", 0),))
        assert await backend.begin_epoch(first) == second
        assert await backend.begin_epoch(Epoch("never was")) == second
        assert len((await backend.snapshot()).records) == 1

    async def test_of_many_that_begin_an_epoch_at_once_one_does(self, store: Store) -> None:
        backends = [await store.open() for _ in range(3)]
        before = await backends[0].epoch()
        epochs = await asyncio.gather(*(backend.begin_epoch(before) for backend in backends))
        assert len(set(epochs)) == 1
        assert before not in epochs

    async def test_every_open_handle_sees_the_new_life(self, store: Store, backend: Backend) -> None:
        other, waiting = await store.open(), await store.open()
        await other.publish((write("a", 0),))
        before = await other.snapshot()
        waiter = asyncio.create_task(waiting.changes(before.cursor, wait=LONG))
        await asyncio.sleep(0)
        epoch = await backend.begin_epoch(before.epoch)
        assert await other.epoch() == epoch
        assert await other.changes(before.cursor) == CursorTooOld()
        assert await other.publish((write("a", 1),)) == (Refusal(None),)
        assert (await other.snapshot()).records == ()
        assert await waiter == CursorTooOld()

    async def test_cursors_of_lives_long_ended_stay_too_old(self, backend: Backend) -> None:
        cursors = []
        for number in range(3):
            await backend.publish(tuple(write(f"n{one}", 0) for one in range(number + 1)))
            snapshot = await backend.snapshot()
            cursors.append(snapshot.cursor)
            await backend.begin_epoch(snapshot.epoch)
        for cursor in cursors:
            assert await backend.changes(cursor) == CursorTooOld()

    async def test_a_handle_opened_later_joins_the_life_that_is(self, store: Store, backend: Backend) -> None:
        epoch = await backend.begin_epoch(await backend.epoch())
        await backend.publish((write("a", 0),))
        later = await store.open()
        assert await later.epoch() == epoch
        assert len((await later.snapshot()).records) == 1

    async def test_a_wipe_is_another_life(self, store: Store, backend: Backend) -> None:
        needs_wipe(store)
        other = await store.open()
        await backend.publish((write("a", 0), write("b", 0)))
        before = await backend.snapshot()
        await store.wipe()
        for handle in (backend, other):
            assert await patiently(partial(handle.changes, before.cursor)) == CursorTooOld()
            assert await patiently(handle.epoch) != before.epoch
            assert (await patiently(handle.snapshot)).records == ()
        assert await backend.epoch() == await other.epoch()
        assert await patiently(lambda: backend.publish((write("a", 1),))) == (Refusal(None),)
        assert await other.publish((write("a", 0),)) == (Published(1),)

    async def test_an_old_copy_is_noticed(self, store: Store, backend: Backend) -> None:
        needs_copy(store)
        await backend.publish((write("a", 0, b"old"),))
        copied = await store.copy()
        await backend.publish((write("a", 1, b"new"), write("b", 0)))
        before = await backend.snapshot()
        await store.restore(copied)
        assert await patiently(lambda: backend.changes(before.cursor)) == CursorTooOld()
        await _ends_in_a_new_life(store, backend, before.epoch)

    async def test_an_old_copy_that_writes_have_hidden_shows_lower_generations(
        self, store: Store, backend: Backend
    ) -> None:
        needs_copy(store)
        await backend.publish((write("a", 0, b"old"),))
        copied = await store.copy()
        await backend.publish((write("a", 1, b"new"),))
        before = await backend.snapshot()
        await store.restore(copied)
        other = await patiently(store.open)
        for number in range(10):
            await patiently(partial(other.publish, (write(f"n{number}", 0),)))
        changes = await patiently(lambda: backend.changes(before.cursor))
        if store.notices_every_restore:
            assert changes == CursorTooOld()
        if not isinstance(changes, CursorTooOld):
            (refusal,) = await backend.publish((write("a", 2),))
            assert isinstance(refusal, Refusal)
            assert refusal.record is None or refusal.record.generation < 2
        held = {record.key: record.generation for record in (await backend.snapshot()).records}
        assert held.get(key("a"), 0) < 2
        await _ends_in_a_new_life(store, backend, before.epoch)

    async def test_a_copy_that_misses_nothing_is_taken_up_or_another_life(self, store: Store, backend: Backend) -> None:
        needs_copy(store)
        await backend.publish((write("a", 0, b"old"),))
        before = await backend.snapshot()
        await store.restore(await store.copy())
        after = await patiently(backend.snapshot)
        assert (after.epoch, after.records) == (before.epoch, before.records) or (
            after.epoch != before.epoch and after.records == ()
        )


async def _ends_in_a_new_life(store: Store, backend: Backend, epoch: Epoch) -> None:
    """Whoever noticed begins another epoch (if the backend has not by itself), and all is as in any new one."""
    old = await backend.snapshot()
    another = await backend.begin_epoch(epoch)
    assert another != epoch
    other = await store.open()
    assert await other.epoch() == another
    assert (await other.snapshot()).records == ()
    if old.epoch != another:
        assert await other.changes(old.cursor) == CursorTooOld()
    assert await other.publish((write("a", 0),)) == (Published(1),)
    assert len((await backend.snapshot()).records) == 1
