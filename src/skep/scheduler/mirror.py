"""Keeping this scheduler's memory equal to the backend's records, and noticing when the backend lost some of them.

Generations of a record only grow within an epoch, and records of hosts are never removed. A backend that shows less
than was seen has gone back in time (an old copy was put in place, the last writes were lost): nothing in it can be
believed, for claims may be missing. Then another epoch begins, in which everything is told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import structlog

from skep.domain.decoding import json_decoder
from skep.domain.errors import StorageUnavailable
from skep.scheduler import records
from skep.scheduler.memory import give_back
from skep.scheduler.records import COMPUTE, GROUPS
from skep.scheduler.states import HostStates
from skep.synchronizer.base import (
    FORGET_REMOVED_SECONDS,
    Backend,
    Cursor,
    CursorTooOld,
    Epoch,
    Key,
    Record,
    Snapshot,
)

PAGE = 2_000
"""Records that are taken without letting others go on: some 20 ms."""
MOST_LIVES = 5
"""So many epochs are begun in a row before the backend counts as broken."""

_head = json_decoder(tuple[str, int, msgspec.Raw])
log = structlog.get_logger("skep.scheduler")


class Mirror:
    """What this scheduler has read of the backend. `lock` is held by whoever writes, and while all is read anew."""

    def __init__(self, backend: Backend, states: HostStates, monotonic: Callable[[], float]) -> None:
        self.lock = asyncio.Lock()
        """While it is held the states' epoch changes only by who holds it."""
        self._backend = backend
        self._states = states
        self._monotonic = monotonic
        self._cursor = Cursor("")
        self._lives: set[str] = set()
        """Epochs in which this scheduler has lived."""
        self._looking: asyncio.Task[None] | None = None
        self._next_look: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read all records."""
        async with self.lock:
            await self._load()
        give_back()

    async def catch_up(self, *, wait: float = 0.0) -> None:
        """Read what changed since the last reading; wait up to `wait` seconds for a change."""
        await self._read_changes(wait)

    async def _read_changes(self, wait: float) -> bool:
        """Read once; answer False where all was read anew meanwhile, by a snapshot that may be older than the call."""
        cursor, epoch = self._cursor, self._states.epoch
        changes = await self._backend.changes(cursor, wait=wait)
        async with self.lock:
            if self._states.epoch != epoch:
                return False
            if isinstance(changes, CursorTooOld):
                if self._cursor != cursor:
                    return False
                await self._load()
                return True
            self._states.forget_removed(self._monotonic() - FORGET_REMOVED_SECONDS)
            foreign = await self._take_many(changes.records, self._monotonic())
            if self._cursor == cursor:
                self._cursor = changes.cursor
            if foreign is not None:
                await self.begin_again(foreign)
            return True

    async def look(self) -> None:
        """Read what was written until now. Callers at the same time share one reading, however many they are."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look())
            self._next_look.add_done_callback(_seen)
        await asyncio.shield(self._next_look)

    async def _look(self) -> None:
        if self._looking is not None:
            # What it reads may be older than what the callers of this one have to see.
            await asyncio.wait((self._looking,))
        self._looking, self._next_look = self._next_look, None
        for _ in range(MOST_LIVES):
            if await self._read_changes(0.0):
                return
        raise StorageUnavailable("the synchronizer began several epochs in a row")

    async def read_again(self) -> None:
        """Read the changes; for who holds the lock."""
        changes = await self._backend.changes(self._cursor)
        foreign: str | None = None
        if isinstance(changes, CursorTooOld):
            await self._load()
        else:
            foreign = await self._take_many(changes.records, self._monotonic())
            self._cursor = changes.cursor
        if foreign is not None:
            await self.begin_again(foreign)

    def take_refusal(self, key: Key, fresh: Record | None, now: float) -> str | None:
        """Take the record that refused a write; return how it shows that the backend lost something, if it does."""
        held = self._states.held(key)
        if fresh is not None and fresh.generation > held.generation:
            return self._take_all((fresh,), now)
        if held.value is None or key in self._states.quarantined:
            # A record removed so long ago that the backend may have forgotten it: the key begins anew.
            self._states.forget(key)
            return None if fresh is None else self._take_all((fresh,), now)
        if fresh is None:
            return f"{key.namespace}/{key.name} is missing, generation {held.generation} was known"
        if fresh.generation < held.generation:
            return f"{key.namespace}/{key.name} is of generation {fresh.generation}, {held.generation} was known"
        if _value(self._states.epoch, fresh) != held.value:
            return f"{key.namespace}/{key.name} differs from the known record of its generation"
        return None

    async def begin_again(self, lost: str) -> None:
        """Have another epoch begin, for the backend lost what it had; for who holds the lock. Raises Unavailable."""
        epoch = self._states.epoch
        log.error("the synchronizer's records went back in time: new epoch", epoch=epoch, lost=lost)
        await self._backend.begin_epoch(Epoch(epoch))
        await self._load()

    async def _load(self) -> None:
        for _ in range(MOST_LIVES):
            snapshot = await self._backend.snapshot()
            lost = self._lost(snapshot) or await self._take_snapshot(snapshot)
            if lost is None:
                self._cursor = snapshot.cursor
                return
            log.error("the synchronizer's records went back in time: new epoch", epoch=snapshot.epoch, lost=lost)
            await self._backend.begin_epoch(snapshot.epoch)
        raise StorageUnavailable("the records read from the synchronizer differ from those written, in several epochs")

    def _lost(self, snapshot: Snapshot) -> str | None:
        """Return what this scheduler knows to be missing in a snapshot, if anything."""
        states = self._states
        if snapshot.epoch != states.epoch:
            return "its epoch is one that had ended" if snapshot.epoch in self._lives else None
        shown = {record.key: record.generation for record in snapshot.records}
        for key, generation in shown.items():
            held = states.held(key)
            if generation < held.generation and held.value is not None:
                return f"{key.namespace}/{key.name} is of generation {generation}, {held.generation} was known"
        missing = next((key for key in states.keys(COMPUTE) if key not in shown), None)
        return None if missing is None else f"{missing.namespace}/{missing.name} is missing"

    async def _take_snapshot(self, snapshot: Snapshot) -> str | None:
        states = self._states
        if snapshot.epoch != states.epoch:
            tell = log.warning if states.epoch else log.info
            tell("synchronizer epoch", epoch=snapshot.epoch, before=states.epoch, records=len(snapshot.records))
            more = True
            while more:
                more = states.let_go(PAGE)
                await asyncio.sleep(0)
            states.begin(snapshot.epoch)
            self._lives.add(snapshot.epoch)
        states.forget_removed(self._monotonic())
        foreign = await self._take_many(snapshot.records, None)
        present = {record.key for record in snapshot.records}
        for namespace in records.KINDS:
            for key in states.keys(namespace):
                if key not in present:
                    states.forget(key)
        return foreign

    async def _take_many(self, fresh: tuple[Record, ...], now: float | None) -> str | None:
        """Take records a page at a time, and let others go on between: beats, answers, decisions.

        They may know only some of a new epoch's records then. Whatever would be written meanwhile waits for the lock,
        and before anybody is refused a host `look` waits for it too.
        """
        foreign: str | None = None
        for start in range(0, len(fresh), PAGE):
            if start:
                await asyncio.sleep(0)
            foreign = self._take_all(fresh[start : start + PAGE], now) or foreign
        return foreign

    def _take_all(self, fresh: Iterable[Record], now: float | None) -> str | None:
        """Take records, unless younger ones are known; return why they cannot be of this epoch, if they cannot."""
        foreign: list[str] = []
        self._states.take_all(self._read(fresh, now, foreign), now)
        return foreign[-1] if foreign else None

    def _read(self, fresh: Iterable[Record], now: float | None, foreign: list[str]) -> Iterator[tuple[Key, int, Any]]:
        """Yield what can be read, one after the other: the columns take it at once, but memory need not hold it so."""
        states = self._states
        for record in fresh:
            if record.generation <= states.held(record.key).generation:
                continue
            try:
                value = records.decode(states.epoch, record)
                if value is None and _is_foreign(states.epoch, record):
                    foreign.append(f"{record.key.namespace}/{record.key.name} was overwritten from another epoch")
            except msgspec.DecodeError as error:
                states.quarantine(record.key, record.generation, str(error), now)
                continue
            yield record.key, record.generation, value


def _value(epoch: str, record: Record) -> Any:
    try:
        return records.decode(epoch, record)
    except msgspec.DecodeError:
        return None


def _is_foreign(epoch: str, record: Record) -> bool:
    """Tell whether a scheduler that had not heard of this epoch wrote over a record of it, so that claims were lost."""
    if not record.body or record.generation == 1 or record.key.namespace not in (COMPUTE, GROUPS):
        return False
    written_in, _, _ = _head.decode(record.body)
    return written_in != epoch


def _seen(task: asyncio.Task[None]) -> None:
    """Take note of a reading's failure also where each caller has gone meanwhile."""
    if not task.cancelled():
        task.exception()
