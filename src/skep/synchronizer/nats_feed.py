"""What one handle knows of a life: where each record stands, and the latest changes, for readers who wait."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

import msgspec
import structlog

from skep.domain.errors import Unreachable
from skep.synchronizer.base import Changes, Key, Record
from skep.synchronizer.nats_consumer import HEARTBEAT_SECONDS, Consumer, Delivery, StreamGoneError, state_of
from skep.synchronizer.nats_frames import NatsLife, is_frame, record_in
from skep.synchronizer.nats_link import MESSAGE_NOT_FOUND, STREAM_NOT_FOUND, NatsLink, require
from skep.synchronizer.waiters import Waiters

KEEP_CHANGES = 50_000
KEEP_CHANGES_BYTES = 64 * 1024 * 1024
"""Latest changes kept in memory, at most; who stands further back reads them from the server."""

log = structlog.get_logger("skep.synchronizer")


class StreamPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in the stream: what a compare-and-set has to name.

    There is one for each record, and they hold numbers only: the garbage collector need not look at them.
    """

    sequence: int
    generation: int
    removed: bool


class FeedMessage(NamedTuple):
    """One message, understood: a record of this life or the mark of what was forgotten."""

    record: Record | None
    forgotten: int


class FeedKnowledge:
    """Where records stand, as far as deliveries and acknowledgements told it."""

    def __init__(self, life: NatsLife) -> None:
        """Begin with nothing."""
        self.life = life
        self.places: dict[Key, StreamPlace] = {}
        self.removals: dict[Key, tuple[int, int]] = {}
        """Removed records: sequence, and when (nanoseconds, by the server's clock)."""
        self.clock = 0
        """The latest time at which the server stored anything that was seen here; nanoseconds since the epoch."""
        self.last = 0
        """The highest sequence seen."""

    def learn(self, key: Key, place: StreamPlace) -> None:
        """Take where a record stands, unless something later is known."""
        held = self.places.get(key)
        if held is None or held.sequence < place.sequence:
            self.places[key] = place
            self.last = max(self.last, place.sequence)
            if self.removals:
                self.removals.pop(key, None)

    def understand(self, delivery: Delivery) -> FeedMessage:
        """Take what a message of the stream says."""
        self.clock = max(self.clock, delivery.time)
        self.last = max(self.last, delivery.sequence)
        key = self.life.key(delivery.subject)
        if key is None:
            forgotten = _number(delivery.payload) if delivery.subject == self.life.trimmed else 0
            return FeedMessage(None, forgotten)
        if not is_frame(delivery.payload):
            log.warning("record overwritten by an unreadable message", namespace=key.namespace, key=key.name)
        record = record_in(key, delivery.sequence, delivery.payload)
        self.learn(key, StreamPlace(delivery.sequence, record.generation, not record.body))
        if not record.body and self.places[key].sequence == delivery.sequence:
            self.removals[key] = (delivery.sequence, delivery.time)
        return FeedMessage(record, 0)

    def forget(self, key: Key, sequence: int) -> None:
        """Drop a removed record that the server has dropped."""
        held = self.places.get(key)
        if held is not None and held.sequence == sequence:
            del self.places[key]
        self.removals.pop(key, None)


class Feed:
    """The changes of a life from `start` on, as they come; the latest of each record, within bounds."""

    def __init__(self, knowledge: FeedKnowledge, start: int, *, keep: int = KEEP_CHANGES) -> None:
        """Have everything after a sequence, once `follow` was called; at most `keep` records, the latest."""
        self._keep_most = keep
        self.start = start
        """Changes after this sequence are all here."""
        self.position = start
        """Up to where the stream was read."""
        self._knowledge = knowledge
        self._changed: OrderedDict[Key, tuple[int, Record]] = OrderedDict()
        self._bytes = 0
        self._consumer: Consumer | None = None
        self._waiters = Waiters()

    @property
    def alive(self) -> bool:
        """Whether changes come in."""
        return self._consumer is not None and not self._consumer.broken

    async def follow(self, link: NatsLink) -> None:
        """Read on from where it stands, up to what is there now; raises StreamGoneError, Unreachable."""
        await self.end()
        life = self._knowledge.life
        last = (await state_of(link, life.stream)).last_seq
        consumer = Consumer(link, life.stream, self._take)
        try:
            await consumer.begin(self.position)
            while self.position < last and not consumer.caught_up.is_set():
                if consumer.broken:
                    raise Unreachable("synchronizer: a NATS consumer broke off")
                await self.next_change(HEARTBEAT_SECONDS)
            # Only now: whatever was forgotten before the consumer came by is under this mark.
            self.start = max(self.start, await forgotten(link, life))
        except BaseException:
            await consumer.end()
            raise
        self._consumer = consumer
        self.wake()

    async def reach(self, sequence: int, seconds: float) -> bool:
        """Wait until the stream was read up to a sequence, and return whether it was."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.position < sequence and loop.time() < end:
            await self.next_change(end - loop.time())
        return self.position >= sequence

    async def end(self) -> None:
        """Read no more."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.end()

    def after(self, sequence: int) -> Changes:
        """Return the changes after a sequence, which is not before `start`."""
        records = []
        for changed_at, record in reversed(self._changed.values()):
            if changed_at <= sequence:
                break
            records.append(record)
        records.reverse()
        return Changes(records=tuple(records), cursor=self._knowledge.life.cursor(max(sequence, self.position)))

    async def next_change(self, seconds: float) -> None:
        """Wait until something comes, or somebody wakes those who wait."""
        await self._waiters.wait(seconds)

    def wake(self) -> None:
        """Have those who wait look again."""
        self._waiters.wake()

    def _take(self, delivery: Delivery) -> None:
        seen = self._knowledge.understand(delivery)
        self.position = delivery.sequence
        if seen.record is not None:
            self._keep(delivery.sequence, seen.record)
        # Removals before the mark may have been forgotten before this consumer came by.
        self.start = max(self.start, seen.forgotten)
        if self._waiters:
            self.wake()

    def _keep(self, sequence: int, record: Record) -> None:
        held = self._changed.pop(record.key, None)
        if held is not None:
            self._bytes -= len(held[1].body)
        self._changed[record.key] = (sequence, record)
        self._bytes += len(record.body)
        while len(self._changed) > self._keep_most or self._bytes > KEEP_CHANGES_BYTES:
            _, (dropped_at, dropped) = self._changed.popitem(last=False)
            self._bytes -= len(dropped.body)
            self.start = max(self.start, dropped_at)


async def forgotten(link: NatsLink, life: NatsLife) -> int:
    """Return the sequence up to which removed records may have been forgotten."""
    answer = await link.last_of(life.stream, life.trimmed)
    if answer.refused_for(STREAM_NOT_FOUND):
        raise StreamGoneError
    if answer.refused_for(MESSAGE_NOT_FOUND):
        return 0
    message = require(answer, "asking what was forgotten").message
    return _number(message.data) if message else 0


def _number(payload: bytes) -> int:
    return int(payload) if payload.isdigit() else 0
