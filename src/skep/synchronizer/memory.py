"""Records in this process: for a cloud in one process, and for tests. A new epoch at each start."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from skep.config.sections import SynchronizerSettings
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
)

KEEP_CHANGES = 100_000


def make(_settings: SynchronizerSettings) -> MemoryBackend:
    """Return a backend for this process alone."""
    return MemoryBackend()


class MemoryBackend:
    """A backend for one event loop; several schedulers of the loop may share it.

    The log of changes names each key once, at its latest change, so it is never longer than there are keys; beyond
    `keep_changes` of them the oldest are forgotten.
    """

    def __init__(self, *, keep_changes: int = KEEP_CHANGES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keep_changes = keep_changes
        self._monotonic = monotonic
        self._waiting: set[asyncio.Future[None]] = set()
        self.wipe()

    def wipe(self) -> None:
        """Lose everything, as a restart does: the next epoch begins."""
        self._epoch = Epoch(new_uuid())
        self._records: dict[Key, Record] = {}
        self._changed: OrderedDict[Key, int] = OrderedDict()
        self._removed: OrderedDict[Key, float] = OrderedDict()
        """When each removed record was, oldest first."""
        self._changes = 0
        self._forgotten = 0
        self._wake()

    async def open(self) -> None:
        """Nothing is to be connected."""

    async def close(self) -> None:
        """Nothing is to be disconnected: the records stay for other schedulers of the loop."""

    async def epoch(self) -> Epoch:
        """Return the current epoch."""
        return self._epoch

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life, unless the epoch is no longer `expected`; return the current epoch."""
        if self._epoch == expected:
            self.wipe()
        return self._epoch

    async def snapshot(self) -> Snapshot:
        """Return all records; removed ones are left out."""
        records = tuple(record for record in self._records.values() if record.body)
        return Snapshot(epoch=self._epoch, records=records, cursor=self._cursor())

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        if wait > 0 and cursor == self._cursor():
            await self._next_change(wait)
        epoch, _, number = cursor.rpartition("/")
        position = int(number) if number.isdigit() else -1
        if epoch != self._epoch or not self._forgotten <= position <= self._changes:
            return CursorTooOld()
        changed = []
        for key in reversed(self._changed):
            if self._changed[key] <= position:
                break
            changed.append(self._records[key])
        return Changes(records=tuple(reversed(changed)), cursor=self._cursor())

    async def publish(self, writes: tuple[Write, ...]) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap."""
        outcomes = tuple(self._write(write) for write in writes)
        if any(isinstance(outcome, Published) for outcome in outcomes):
            self._limit(2 * self._keep_changes)
            self._wake()
        return outcomes

    async def trim(self) -> int:
        """Forget all but the latest `keep_changes` changes, and records that were removed long ago."""
        return self._forget_removed(self._monotonic() - KEEP_REMOVED_SECONDS) + self._limit(self._keep_changes)

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

    def _cursor(self) -> Cursor:
        return Cursor(f"{self._epoch}/{self._changes}")

    async def _next_change(self, wait: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=wait)
        finally:
            self._waiting.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
