"""The contract as a state machine for hypothesis: operations of several handles in any order, against a model."""

from __future__ import annotations

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from skep.contracts.synchronizer.faults import LosesAnswers, Loss, store_for_certain
from skep.contracts.synchronizer.store import Store, key, patiently, write
from skep.synchronizer.base import Backend, Cursor, CursorTooOld, Epoch, Key, Published, Record, Refusal, Write

T = TypeVar("T")

HANDLES = 3
_handles = st.integers(0, HANDLES - 1)
_bodies = st.sampled_from([b"", b"1", b"2", b"3"])
_offsets = st.sampled_from([0, 0, 0, 0, -1, 1])
"""How far what a writer expects is from the truth."""
_batches = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.tuples(_offsets, _bodies), min_size=1, max_size=3)
_NO_LOSS: Loss = "none"
_LOSSES: tuple[Loss, ...] = ("call", "answer")
_losses = st.sampled_from(_LOSSES)


@dataclass
class _Reader:
    """What somebody who follows the changes believes."""

    epoch: Epoch
    cursor: Cursor
    records: dict[Key, Record] = field(default_factory=dict)
    doubtful: bool = False
    """An old copy was put in place behind its back."""


class BackendModel(RuleBasedStateMachine):
    """Any order of operations by any handle, against a model that holds the truth."""

    @abstractmethod
    def make_store(self) -> Store:
        """Return an empty store; the one thing that a subclass must say."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """Start with an empty store, a few handles, two readers."""
        self.runner = asyncio.Runner()
        self.store = self.make_store()
        self.handles = [self._run(self.store.open) for _ in range(HANDLES)]
        self.truth: dict[Key, Record] = {}
        self.copied: tuple[object, dict[Key, Record], Epoch] | None = None
        first = self._run(self.handles[0].snapshot)
        self.epoch = first.epoch
        self.readers = [_Reader(first.epoch, first.cursor) for _ in range(2)]

    def teardown(self) -> None:
        """Close handles and loop."""
        if hasattr(self, "runner"):
            self._run(self.store.close)
            self.runner.close()

    def _run(self, operation: Callable[[], Awaitable[T]]) -> T:
        return self.runner.run(patiently(operation))

    @rule(by=_handles, batch=_batches)
    def publish(self, by: int, batch: dict[str, tuple[int, bytes]]) -> None:
        """Each write is taken exactly when it expects the truth."""
        writes = self._writes(batch)
        self._check(writes, self._run(lambda: self.handles[by].publish(writes)))

    @rule(by=_handles, batch=_batches, lost=_losses)
    def publish_with_a_loss(self, by: int, batch: dict[str, tuple[int, bytes]], lost: Loss) -> None:
        """A call or an answer is lost; the writer repeats, and it is as if nothing had been."""
        losses = itertools.chain([lost], itertools.repeat(_NO_LOSS))
        proxy = LosesAnswers(self.handles[by], losses.__next__)
        # A write that is refused may show just what it was to write; then it is as good as taken.
        writes = tuple(one for one in self._writes(batch) if not self._is_truth(one))
        if writes:
            self._check(writes, self._run(lambda: store_for_certain(proxy, writes)))

    @rule(by=_handles)
    def trim(self, by: int) -> None:
        """Forgetting changes loses no record."""
        self._run(self.handles[by].trim)

    @rule(by=_handles, orderly=st.booleans())
    def crash(self, by: int, orderly: bool) -> None:
        """A process ends, with or without closing its handle, and starts anew."""
        if orderly:
            self._run(self.handles[by].close)
        self.handles[by] = self._run(self.store.open)

    @rule(by=_handles)
    def look(self, by: int) -> None:
        """A snapshot is the truth."""
        snapshot = self._run(self.handles[by].snapshot)
        assert snapshot.epoch == self.epoch == self._run(self.handles[by].epoch)
        assert {record.key: record for record in snapshot.records} == self._living()

    @rule(by=_handles, who=st.integers(0, 1))
    def read(self, by: int, who: int) -> None:
        """Whoever follows the changes, or is told to begin again, knows the truth."""
        reader, handle = self.readers[who], self.handles[by]
        changes = self._run(lambda: handle.changes(reader.cursor))
        if isinstance(changes, CursorTooOld):
            self._read_anew(reader, handle)
            return
        assert reader.epoch == self.epoch, "a cursor of another life was taken"
        reader.records.update({record.key: record for record in changes.records})
        reader.cursor = changes.cursor
        if reader.doubtful and not self.store.notices_every_restore:
            self._read_anew(reader, handle)
            return
        assert {name: record for name, record in reader.records.items() if record.body} == self._living()

    @rule(by=_handles, known=st.booleans())
    def begin_epoch(self, by: int, known: bool) -> None:
        """Another life begins, but only for who knows of the current one."""
        expected = self.epoch if known else Epoch("another")
        self._after_new_life(self._run(lambda: self.handles[by].begin_epoch(expected)), began=known)

    @precondition(lambda self: not self.store.cannot_wipe)
    @rule()
    def wipe(self) -> None:
        """All is lost."""
        self._run(self.store.wipe)
        self._after_new_life(self._run(self.handles[0].epoch), began=True)

    @precondition(lambda self: not self.store.cannot_copy)
    @rule()
    def copy(self) -> None:
        """Somebody makes a backup."""
        self.copied = (self._run(self.store.copy), dict(self.truth), self.epoch)

    @precondition(lambda self: not self.store.cannot_copy and self.copied is not None)
    @rule()
    def restore(self) -> None:
        """Somebody puts the backup in place: its life goes on, or another one begins."""
        assert self.copied is not None
        copied, truth, epoch = self.copied
        same = (truth, epoch) == (self.truth, self.epoch)
        self._run(lambda: self.store.restore(copied))
        now = self._run(self.handles[0].epoch)
        if now != epoch:
            self._after_new_life(now, began=True)
            return
        self.truth, self.epoch = dict(truth), epoch
        for reader in self.readers:
            reader.doubtful |= not same

    def _read_anew(self, reader: _Reader, handle: Backend) -> None:
        """Take a snapshot; who finds that records went back begins another epoch."""
        snapshot = self._run(handle.snapshot)
        assert {record.key: record for record in snapshot.records} == self._living()
        generations = {record.key: record.generation for record in snapshot.records}
        went_back = reader.epoch == snapshot.epoch and any(
            generations.get(name, 0) < record.generation for name, record in reader.records.items() if record.body
        )
        if went_back and reader.doubtful:
            self._after_new_life(self._run(lambda: handle.begin_epoch(snapshot.epoch)), began=True)
            snapshot = self._run(handle.snapshot)
        reader.doubtful = False
        reader.epoch, reader.cursor = snapshot.epoch, snapshot.cursor
        reader.records = {record.key: record for record in snapshot.records}

    def _after_new_life(self, epoch: Epoch, *, began: bool) -> None:
        assert (epoch != self.epoch) == began
        if began:
            self.epoch, self.truth = epoch, {}

    def _living(self) -> dict[Key, Record]:
        return {name: record for name, record in self.truth.items() if record.body}

    def _writes(self, batch: dict[str, tuple[int, bytes]]) -> tuple[Write, ...]:
        return tuple(
            write(name, max(0, self._generation(name) + offset), body) for name, (offset, body) in batch.items()
        )

    def _generation(self, name: str) -> int:
        held = self.truth.get(key(name))
        return held.generation if held else 0

    def _is_truth(self, one: Write) -> bool:
        return self.truth.get(one.key) == Record(key=one.key, generation=one.expected + 1, body=one.body)

    def _check(self, writes: tuple[Write, ...], outcomes: tuple[Published | Refusal, ...]) -> None:
        for one, outcome in zip(writes, outcomes, strict=True):
            if one.expected == self._generation(one.key.name):
                assert outcome == Published(one.expected + 1)
                self.truth[one.key] = Record(key=one.key, generation=one.expected + 1, body=one.body)
            else:
                assert outcome == Refusal(self.truth.get(one.key))
