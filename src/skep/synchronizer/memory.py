"""Records in this process: for a cloud in one process, and for tests. A new epoch at each start."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Unavailable
from skep.domain.ids import new_uuid
from skep.synchronizer.base import (
    KEEP_REMOVED_SECONDS,
    Changes,
    Cursor,
    CursorTooOld,
    Epoch,
    Key,
    Published,
    Record,
    Refusal,
    Snapshot,
    Write,
    refuse_all,
)
from skep.synchronizer.waiters import Waiters

KEEP_CHANGES = 100_000


def make(_settings: SynchronizerSettings) -> MemoryBackend:
    """Return a backend for this process alone."""
    return MemoryBackend()


class MemoryRecords:
    """The data of one backend, for all handles on it.

    The log of changes names each key once, at its latest change, so it is never longer than there are keys; beyond
    `keep_changes` of them the oldest are forgotten.
    """

    def __init__(self, *, keep_changes: int, monotonic: Callable[[], float]) -> None:
        self._keep_changes = keep_changes
        self._monotonic = monotonic
        self._waiters = Waiters()
        self.wipe()

    def wipe(self) -> None:
        """Lose everything, as a restart does: the next epoch begins."""
        self.epoch = Epoch(new_uuid())
        self._records: dict[Key, Record] = {}
        self._changed: OrderedDict[Key, int] = OrderedDict()
        self._removed: OrderedDict[Key, float] = OrderedDict()
        """When each removed record was, oldest first."""
        self._changes = 0
        self._forgotten = 0
        self.wake()

    def cursor(self) -> Cursor:
        """Return the cursor of who has read everything."""
        return Cursor(f"{self.epoch}/{self._changes}")

    def remembered(self) -> frozenset[Key]:
        """Return the keys of all records, removed ones that still count generations too."""
        return frozenset(self._records)

    def living(self) -> tuple[Record, ...]:
        """Return all records but the removed ones."""
        return tuple(record for record in self._records.values() if record.body)

    def after(self, cursor: Cursor) -> Changes | CursorTooOld:
        """Return what changed after a cursor."""
        epoch, _, number = cursor.rpartition("/")
        position = int(number) if number.isdigit() else -1
        if epoch != self.epoch or not self._forgotten <= position <= self._changes:
            return CursorTooOld()
        changed = []
        for key in reversed(self._changed):
            if self._changed[key] <= position:
                break
            changed.append(self._records[key])
        return Changes(records=tuple(reversed(changed)), cursor=self.cursor())

    def publish(self, writes: tuple[Write, ...]) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap."""
        outcomes = tuple(self._write(write) for write in writes)
        if any(isinstance(outcome, Published) for outcome in outcomes):
            self._limit(2 * self._keep_changes)
            self.wake()
        return outcomes

    def trim(self) -> int:
        """Forget all but the latest `keep_changes` changes, and records that were removed long ago."""
        return self._forget_removed(self._monotonic() - KEEP_REMOVED_SECONDS) + self._limit(self._keep_changes)

    async def next_change(self, wait: float) -> None:
        """Wait until something changes or a handle is closed, at most `wait` seconds."""
        await self._waiters.wait(wait)

    def wake(self) -> None:
        """Have all who wait look again."""
        self._waiters.wake()

    def _write(self, write: Write) -> Published | Refusal:
        held = self._records.get(write.key)
        if write.expected != (held.generation if held else 0):
            return Refusal(held)
        self._changes += 1
        self._records[write.key] = Record(key=write.key, generation=write.expected + 1, body=write.body)
        self._changed[write.key] = self._changes
        self._changed.move_to_end(write.key)
        self._removed.pop(write.key, None)
        if not write.body:
            self._removed[write.key] = self._monotonic()
        return Published(write.expected + 1)

    def _forget_removed(self, before: float) -> int:
        """Forget records removed before; a reader that has not read of their removal has to take a snapshot."""
        forgotten = 0
        while self._removed and next(iter(self._removed.values())) < before:
            key, _ = self._removed.popitem(last=False)
            del self._records[key]
            self._forgotten = max(self._forgotten, self._changed.pop(key, 0))
            forgotten += 1
        return forgotten

    def _limit(self, most: int) -> int:
        forgotten = max(0, len(self._changed) - most)
        for _ in range(forgotten):
            _, number = self._changed.popitem(last=False)
            self._forgotten = max(self._forgotten, number)
        return forgotten


class MemoryBackend:
    """A handle on records of this process, for one event loop; `another` makes more of them.

    It serves without having been opened, since nothing is to be connected.
    """

    def __init__(
        self,
        *,
        keep_changes: int = KEEP_CHANGES,
        monotonic: Callable[[], float] = time.monotonic,
        records: MemoryRecords | None = None,
    ) -> None:
        self.records = records or MemoryRecords(keep_changes=keep_changes, monotonic=monotonic)
        self._closed = False

    def another(self) -> MemoryBackend:
        """Return another handle on the same records, as another scheduler has."""
        return MemoryBackend(records=self.records)

    def wipe(self) -> None:
        """Lose everything, as a restart does: the next epoch begins."""
        self.records.wipe()

    async def open(self) -> None:
        """Nothing is to be connected."""
        self._closed = False

    async def close(self) -> None:
        """Serve no more; the records stay for other handles."""
        self._closed = True
        self.records.wake()

    async def epoch(self) -> Epoch:
        """Return the current epoch."""
        return self._serving().epoch

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life, unless the epoch is no longer `expected`; return the current epoch."""
        records = self._serving()
        if records.epoch == expected:
            records.wipe()
        return records.epoch

    async def snapshot(self) -> Snapshot:
        """Return all records; removed ones are left out."""
        records = self._serving()
        return Snapshot(epoch=records.epoch, records=records.living(), cursor=records.cursor())

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        if wait > 0 and cursor == self._serving().cursor():
            await self.records.next_change(wait)
        return self._serving().after(cursor)

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap."""
        records = self._serving()
        return records.publish(writes) if epoch in (None, records.epoch) else refuse_all(writes)

    async def trim(self) -> int:
        """Forget all but the latest changes, and records that were removed long ago."""
        return self._serving().trim()

    def _serving(self) -> MemoryRecords:
        if self._closed:
            raise Unavailable("the synchronizer's backend is closed")
        return self.records
