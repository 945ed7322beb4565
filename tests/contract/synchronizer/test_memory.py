"""The memory backend keeps the contract; with a short memory for changes too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skep.contracts.synchronizer import BackendContract, BackendModel, Store, write
from skep.synchronizer.base import Changes, CursorTooOld
from skep.synchronizer.memory import MemoryBackend
from tests.support.stores.memory import MemoryStore


class TestMemory(BackendContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with MemoryStore() as store:
            yield store


class TestMemoryThatForgets(BackendContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with MemoryStore(keep_changes=4) as store:
            yield store


class MemoryModel(BackendModel):
    def make_store(self) -> Store:
        return MemoryStore(keep_changes=1)


TestMemoryModel = MemoryModel.TestCase


async def test_each_start_is_another_epoch() -> None:
    assert await MemoryBackend().epoch() != await MemoryBackend().epoch()


async def test_after_a_wipe_old_cursors_and_generations_are_worth_nothing() -> None:
    backend = MemoryBackend()
    await backend.publish((write("a", 0),))
    before = await backend.snapshot()
    backend.wipe()
    assert await backend.epoch() != before.epoch
    assert await backend.changes(before.cursor) == CursorTooOld()
    (refusal,) = await backend.publish((write("a", 1),))
    assert refusal.__class__.__name__ == "Refusal"


async def test_the_log_of_changes_is_bounded_by_itself() -> None:
    backend = MemoryBackend(keep_changes=4)
    cursor = (await backend.snapshot()).cursor
    for number in range(9):
        await backend.publish((write(f"n{number}", 0),))
    assert await backend.changes(cursor) == CursorTooOld()


async def test_many_changes_of_few_records_need_no_room() -> None:
    backend = MemoryBackend(keep_changes=4)
    cursor = (await backend.snapshot()).cursor
    for generation in range(100):
        await backend.publish((write("a", generation),))
    changes = await backend.changes(cursor)
    assert isinstance(changes, Changes)
    assert [record.generation for record in changes.records] == [100]
