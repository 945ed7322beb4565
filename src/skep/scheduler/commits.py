"""Storing changes of records by compare-and-swap: what waits goes in one round trip, one trip at a time.

Changes of one record that wait together become one write. On a refusal the fresh record is taken and the changes run
again on it, so a change must judge the value that it is given (see `changes.py`).

Where the backend went away during a round trip it is not known which of its writes were taken. Before anything is
decided on those records they are read again and written once more as they are: whatever was on its way finds a younger
generation then and can never be taken later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from skep.domain.errors import StorageUnavailable, TooLarge
from skep.scheduler import records
from skep.scheduler.changes import Change, Changing
from skep.scheduler.mirror import Mirror
from skep.scheduler.records import COMPUTE, GROUPS
from skep.scheduler.states import HostStates
from skep.synchronizer.base import MAX_BODY_BYTES, Backend, Epoch, Key, Published, Refusal, Write

AnswerT = TypeVar("AnswerT")
MOST_TRIES = 100
MOST_CHANGES = 500
"""Changes in one round trip, so that a claim does not wait for all reports of a cloud that begins."""
MOST_URGENT = 400
"""Of them urgent ones, while others wait."""


class Stored(msgspec.Struct, Generic[AnswerT], frozen=True):
    """What a change answered, once its value was stored, and the epoch in which it was."""

    answer: AnswerT
    epoch: str
    refused: int = 0
    """How often somebody else was quicker before."""


@dataclass(slots=True)
class _Waiting:
    key: Key
    changing: Changing[Any]
    future: asyncio.Future[Stored[Any]]
    tries: int = 0
    answer: Any = None

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Taken:
    """What became of a round trip's writes."""

    stored: set[Key] = field(default_factory=set)
    lost: str | None = None
    """What the backend lost, if it did."""
    ended: bool = False
    """Another epoch has begun."""


class Commits:
    """The only way of this scheduler's changes to the backend."""

    def __init__(self, backend: Backend, states: HostStates, mirror: Mirror, monotonic: Callable[[], float]) -> None:
        self._backend = backend
        self._states = states
        self._mirror = mirror
        self._monotonic = monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._urgent: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._drain: asyncio.Task[None] | None = None
        self._uncertain: set[Key] = set()
        """Records of hosts and groups of which it is not known whether they were written."""

    def change(self, key: Key, changing: Changing[AnswerT], *, urgent: bool = False) -> asyncio.Future[Stored[AnswerT]]:
        """Change one record; somebody's server waits for an `urgent` change, so it goes first.

        The future raises Unavailable when the backend is away, and then nobody knows yet whether it was stored;
        TooLarge when the record would be larger than a backend takes.
        """
        if self._drain is None:
            self._loop = asyncio.get_running_loop()
            self._drain = self._loop.create_task(self._write_all())
        assert self._loop is not None
        future: asyncio.Future[Stored[AnswerT]] = self._loop.create_future()
        (self._urgent if urgent else self._others).append(_Waiting(key, changing, future))
        return future

    async def look(self) -> None:
        """Read what others have written until now."""
        await self._mirror.look()

    async def be_certain(self) -> None:
        """Find out what became of writes whose answer was lost. Raises Unavailable while that cannot be known."""
        while self._uncertain:
            # A change that changes nothing waits for its round trip, and each begins with what is uncertain.
            await self.change(next(iter(self._uncertain)), _nothing, urgent=True)

    async def finish(self) -> None:
        """Wait until everything that was asked for is stored or has failed."""
        if self._drain is not None:
            await asyncio.wait((self._drain,))

    async def _write_all(self) -> None:
        try:
            while batch := self._next_batch():
                try:
                    async with self._mirror.lock:
                        await self._settle_uncertain()
                        again = await self._write(batch)
                except Exception as error:  # noqa: BLE001  # whoever waits must hear of a bug too, and the next batch go on
                    for item in batch:
                        item.fail(error)
                    continue
                self._urgent.extendleft(reversed(again))
                # Whom an answer has come for goes on, also where the backend never makes anybody wait.
                await asyncio.sleep(0)
        finally:
            self._drain = None

    def _next_batch(self) -> list[_Waiting]:
        most = MOST_URGENT if self._others else MOST_CHANGES
        batch = [self._urgent.popleft() for _ in range(min(most, len(self._urgent)))]
        batch += [self._others.popleft() for _ in range(min(MOST_CHANGES - len(batch), len(self._others)))]
        return batch

    async def _settle_uncertain(self) -> None:
        if not self._uncertain:
            return
        await self._mirror.read_again()
        writes = []
        for key in sorted(self._uncertain):
            held = self._states.held(key)
            if held.value is not None:
                body = records.encode(self._states.epoch, held.generation + 1, held.value)
                writes.append(Write(key=key, expected=held.generation, body=body))
        if writes:
            values = [self._states.held(write.key).value for write in writes]
            epoch = Epoch(self._states.epoch)
            taken = self._take_outcomes(writes, values, await self._backend.publish(tuple(writes), epoch=epoch))
            await self._read_anew(taken)
        self._uncertain.clear()

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
            value = _run(items, held.value)
            if value is held.value:
                _settle(items, epoch)
                continue
            body = records.encode(epoch, held.generation + 1, value)
            if len(body) > MAX_BODY_BYTES:
                value, body = _run_fitting(items, held.value, epoch, held.generation + 1)
                if value is held.value:
                    _settle(items, epoch)
                    continue
            writes.append(Write(key=key, expected=held.generation, body=body))
            values.append(value)
        if not writes:
            return []
        try:
            outcomes = await self._backend.publish(tuple(writes), epoch=Epoch(epoch))
        except Exception:
            self._uncertain.update(write.key for write in writes if write.key.namespace in (COMPUTE, GROUPS))
            raise
        taken = self._take_outcomes(writes, values, outcomes)
        again: list[_Waiting] = []
        for write in writes:
            if write.key in taken.stored:
                _settle(by_key[write.key], epoch)
            else:
                again += [item for item in by_key[write.key] if _may_try_again(item)]
        await self._read_anew(taken)
        return again

    async def _read_anew(self, taken: _Taken) -> None:
        """Read everything where the epoch is over, or has to end because the backend lost something."""
        if taken.lost is not None:
            await self._mirror.begin_again(taken.lost)
        elif taken.ended:
            await self._mirror.read_again()

    def _take_outcomes(
        self, writes: list[Write], values: list[Any], outcomes: tuple[Published | Refusal, ...]
    ) -> _Taken:
        """Take what became of each write."""
        now = self._monotonic()
        taken = _Taken()
        for write, value, outcome in zip(writes, values, outcomes, strict=True):
            if isinstance(outcome, Published):
                self._states.take(write.key, outcome.generation, value, now)
                taken.stored.add(write.key)
            elif outcome.ended:
                taken.ended = True
            else:
                taken.lost = self._mirror.take_refusal(write.key, outcome.record, now) or taken.lost
        return taken


def _nothing(value: Any) -> Change[None]:
    return Change(value, None)


def _run(items: list[_Waiting], value: Any) -> Any:
    """Run the changes one after the other. One that fails is told so and leaves the value to the others."""
    for item in items:
        try:
            change = item.changing(value)
        except Exception as error:  # noqa: BLE001  # a bug in one change is told to who asked for it; the others go on
            item.fail(error)
            continue
        value, item.answer = change.value, change.answer
    return value


def _run_fitting(items: list[_Waiting], value: Any, epoch: str, generation: int) -> tuple[Any, bytes]:
    """Run the changes, leaving out each that would make the record too large."""
    body = b""
    for item in items:
        if item.future.done():
            continue
        change = item.changing(value)
        if change.value is not value:
            encoded = records.encode(epoch, generation, change.value)
            if len(encoded) > MAX_BODY_BYTES:
                item.fail(_too_large(item.key, len(encoded)))
                continue
            value, body = change.value, encoded
        item.answer = change.answer
    return value, body


def _too_large(key: Key, size: int) -> TooLarge:
    return TooLarge(f"record {key.namespace}/{key.name} would have {size} bytes; at most {MAX_BODY_BYTES} are possible")


def _settle(items: list[_Waiting], epoch: str) -> None:
    for item in items:
        if not item.future.done():
            item.future.set_result(Stored(item.answer, epoch, item.tries))


def _may_try_again(item: _Waiting) -> bool:
    item.tries += 1
    if item.tries < MOST_TRIES:
        return True
    item.fail(StorageUnavailable(f"record {item.key.namespace}/{item.key.name} changes too fast to be written"))
    return False
