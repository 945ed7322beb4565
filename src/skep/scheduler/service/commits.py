"""Storing changes of records by compare-and-swap: all that wait go in one round trip, one trip at a time.

Changes of one record that wait together become one write. On a refusal the fresh record is taken and the changes run
again on it, so a change must judge the value that it is given (see `changes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from skep.domain.errors import StorageUnavailable
from skep.scheduler.service import records
from skep.scheduler.service.changes import Changing
from skep.scheduler.service.states import HostStates
from skep.synchronizer.base import (
    FORGET_REMOVED_SECONDS,
    Backend,
    Cursor,
    CursorTooOld,
    Key,
    Published,
    Record,
    Refusal,
    Write,
)

AnswerT = TypeVar("AnswerT")
MOST_TRIES = 100
log = structlog.get_logger("skep.scheduler")


@dataclass(frozen=True, slots=True)
class Stored(Generic[AnswerT]):
    """What a change answered, once its value was stored, and the epoch in which it was."""

    answer: AnswerT
    epoch: str


@dataclass(slots=True)
class _Waiting:
    key: Key
    changing: Changing[Any]
    future: asyncio.Future[Stored[Any]]
    tries: int = 0
    answer: Any = None


class Commits:
    """The only way between this scheduler's states and the backend, in both directions."""

    def __init__(
        self,
        backend: Backend,
        states: HostStates,
        monotonic: Callable[[], float],
        on_conflict: Callable[[], None] | None = None,
    ) -> None:
        self._backend = backend
        self._on_conflict = on_conflict
        self._states = states
        self._monotonic = monotonic
        self._queue: list[_Waiting] = []
        self._drain: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        """Held while records are written or all are read anew: the states' epoch does not change in between."""
        self._cursor = Cursor("")

    def change(self, key: Key, changing: Changing[AnswerT]) -> asyncio.Future[Stored[AnswerT]]:
        """Change one record.

        The future raises Unavailable when the backend is away; nothing is half done then.
        """
        future: asyncio.Future[Stored[AnswerT]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(key, changing, future))
        if self._drain is None:
            self._drain = asyncio.create_task(self._write_all())
        return future

    async def load(self) -> None:
        """Read all records."""
        async with self._lock:
            await self._load()

    async def catch_up(self, *, wait: float = 0.0) -> None:
        """Read what changed since the last reading; wait up to `wait` seconds for a change."""
        cursor, epoch = self._cursor, self._states.epoch
        changes = await self._backend.changes(cursor, wait=wait)
        async with self._lock:
            if self._states.epoch != epoch:
                return
            if isinstance(changes, CursorTooOld):
                if self._cursor == cursor:
                    await self._load()
                return
            if self._cursor == cursor:
                self._cursor = changes.cursor
            self._states.forget_removed(self._monotonic() - FORGET_REMOVED_SECONDS)
            for record in changes.records:
                self._take(record, self._monotonic())

    async def finish(self) -> None:
        """Wait until everything that was asked for is stored or has failed."""
        if self._drain is not None:
            await asyncio.wait((self._drain,))

    async def _load(self) -> None:
        snapshot = await self._backend.snapshot()
        if snapshot.epoch != self._states.epoch:
            log.info("synchronizer epoch", epoch=snapshot.epoch, records=len(snapshot.records))
            self._states.begin(snapshot.epoch)
        self._states.forget_removed(self._monotonic())
        present = set()
        for record in snapshot.records:
            present.add(record.key)
            self._take(record, None)
        for namespace in records.KINDS:
            for key in self._states.keys(namespace):
                if key not in present:
                    self._states.forget(key)
        self._cursor = snapshot.cursor

    def _take(self, record: Record, now: float | None) -> None:
        if record.generation <= self._states.held(record.key).generation:
            return
        try:
            value = records.decode(self._states.epoch, record)
        except msgspec.DecodeError as error:
            log.error("record cannot be read", namespace=record.key.namespace, key=record.key.name, error=str(error))
            value = None
        self._states.take(record.key, record.generation, value, now)

    async def _write_all(self) -> None:
        try:
            while self._queue:
                waiting, self._queue = self._queue, []
                try:
                    async with self._lock:
                        again = await self._write(waiting)
                except Exception as error:  # noqa: BLE001  # whoever waits must hear of a bug too, and the next batch go on
                    for item in waiting:
                        if not item.future.done():
                            item.future.set_exception(error)
                    continue
                self._queue[:0] = again
        finally:
            self._drain = None

    async def _write(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Try all changes once; return those that met a fresher record."""
        by_key: dict[Key, list[_Waiting]] = {}
        for item in waiting:
            by_key.setdefault(item.key, []).append(item)
        epoch = self._states.epoch
        writes: list[Write] = []
        values: list[Any] = []
        for key, items in by_key.items():
            held = self._states.held(key)
            value = held.value
            for item in items:
                change = item.changing(value)
                value, item.answer = change.value, change.answer
            if value is held.value:
                _settle(items, epoch)
                continue
            body = records.encode(epoch, held.generation + 1, value)
            writes.append(Write(key=key, expected=held.generation, body=body))
            values.append(value)
        if not writes:
            return []
        outcomes = await self._backend.publish(tuple(writes))
        again: list[_Waiting] = []
        lost = False
        now = self._monotonic()
        for write, value, outcome in zip(writes, values, outcomes, strict=True):
            items = by_key[write.key]
            if isinstance(outcome, Published):
                self._states.take(write.key, outcome.generation, value, now)
                _settle(items, epoch)
            else:
                lost |= self._refused(write, outcome, now)
                again += [item for item in items if _may_try_again(item)]
        if lost:
            self._states.begin("")
            await self._load()
        return again

    def _refused(self, write: Write, refusal: Refusal, now: float) -> bool:
        """Take the fresh record; tell whether the backend has lost what it had."""
        if self._on_conflict is not None:
            self._on_conflict()
        if refusal.record is None or refusal.record.generation < write.expected:
            return True
        self._take(refusal.record, now)
        return False


def _settle(items: list[_Waiting], epoch: str) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_result(Stored(item.answer, epoch))


def _may_try_again(item: _Waiting) -> bool:
    item.tries += 1
    if item.tries < MOST_TRIES:
        return True
    if not item.future.done():
        item.future.set_exception(
            StorageUnavailable(f"record {item.key.namespace}/{item.key.name} changes too fast to be written")
        )
    return False
