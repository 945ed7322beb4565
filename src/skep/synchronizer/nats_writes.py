"""Writing records by compare-and-set, many in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from skep.domain.errors import Unreachable
from skep.synchronizer.base import Published, Record, Refusal, Write
from skep.synchronizer.nats_consumer import StreamGoneError
from skep.synchronizer.nats_feed import FeedKnowledge, StreamPlace, forgotten
from skep.synchronizer.nats_frames import frame, record_in
from skep.synchronizer.nats_link import (
    MESSAGE_NOT_FOUND,
    NO_RESPONDERS,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    JetStreamAnswer,
    NatsLink,
    require,
)

IN_FLIGHT = 2000
IN_FLIGHT_BYTES = 8 * 1024 * 1024
"""Messages that wait for their acknowledgement, at most; whoever writes more waits before he sends."""
TRIES = 20
"""How often a write is tried whose record is moved (not changed) under it."""

_NOWHERE = StreamPlace(sequence=0, generation=0, removed=True)


class RecordsLostError(Exception):
    """The server no longer has what it acknowledged."""


class NatsWriter:
    """The compare-and-sets of one handle."""

    def __init__(self) -> None:
        """Begin with nothing in flight."""
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._room = asyncio.Event()

    async def publish(
        self, link: NatsLink, knowledge: FeedKnowledge, writes: Sequence[Write]
    ) -> tuple[Published | Refusal, ...]:
        """Try each write; raises StreamGoneError, RecordsLostError, Unreachable."""
        sent: list[tuple[int, int, asyncio.Future[JetStreamAnswer]]] = []
        outcomes: list[Published | Refusal | None] = [None] * len(writes)
        for number, write in enumerate(writes):
            place = knowledge.places.get(write.key, _NOWHERE)
            if place.generation == write.expected:
                last = knowledge.last
                sent.append((number, last, await self._send(link, knowledge, write, place.sequence)))
        for number, last, answer in sent:
            outcomes[number] = _outcome(knowledge, writes[number], await answer, last)
        doubtful = [number for number, outcome in enumerate(outcomes) if outcome is None]
        looked = await asyncio.gather(
            *(self._look_and_write(link, knowledge, writes[number]) for number in doubtful), return_exceptions=True
        )
        for number, result in zip(doubtful, looked, strict=True):
            if isinstance(result, BaseException):
                raise result
            outcomes[number] = result
        return tuple(outcome for outcome in outcomes if outcome is not None)

    async def _look_and_write(self, link: NatsLink, knowledge: FeedKnowledge, write: Write) -> Published | Refusal:
        """Write on what the server holds now, where that is the expected generation."""
        life = knowledge.life
        for _ in range(TRIES):
            answer = await link.last_of(life.stream, life.record(write.key))
            if answer.refused_for(STREAM_NOT_FOUND):
                raise StreamGoneError
            record: Record | None = None
            sequence = 0
            if answer.refused_for(MESSAGE_NOT_FOUND):
                await _check_absent(link, knowledge, write)
            elif message := require(answer, "asking for a record").message:
                sequence = message.seq
                record = record_in(write.key, sequence, message.data)
                knowledge.learn(write.key, StreamPlace(sequence, record.generation, not record.body))
            if (record.generation if record else 0) != write.expected:
                return Refusal(record)
            last = knowledge.last
            answered = await (await self._send(link, knowledge, write, sequence))
            outcome = _outcome(knowledge, write, answered, last)
            if outcome is not None:
                return outcome
        raise Unreachable(f"synchronizer: {write.key.namespace}/{write.key.name} is moved all the time")

    async def _send(
        self, link: NatsLink, knowledge: FeedKnowledge, write: Write, expected: int
    ) -> asyncio.Future[JetStreamAnswer]:
        payload = frame(write.expected + 1, write.body)
        return await self.send(link, knowledge.life.record(write.key), payload, expected)

    async def send(
        self, link: NatsLink, subject: str, payload: bytes, expected: int
    ) -> asyncio.Future[JetStreamAnswer]:
        """Send one compare-and-set as soon as there is room, and return what the answer will be."""
        while self._in_flight >= IN_FLIGHT or self._in_flight_bytes >= IN_FLIGHT_BYTES:
            self._room.clear()
            await self._room.wait()
        answer = await link.send(subject, payload, expected=expected)
        size = len(payload)
        self._in_flight += 1
        self._in_flight_bytes += size

        def landed(_: asyncio.Future[JetStreamAnswer]) -> None:
            self._in_flight -= 1
            self._in_flight_bytes -= size
            self._room.set()

        answer.add_done_callback(landed)
        return answer


def _outcome(knowledge: FeedKnowledge, write: Write, answer: JetStreamAnswer, last: int) -> Published | None:
    """Return that the write was taken, or None where the record was not what we thought; `last` was seen before."""
    if answer.error is None:
        if answer.seq <= last:
            raise RecordsLostError
        knowledge.learn(write.key, StreamPlace(answer.seq, write.expected + 1, not write.body))
        return Published(write.expected + 1)
    if answer.refused_for(NO_RESPONDERS, STREAM_NOT_FOUND):
        raise StreamGoneError
    if not answer.refused_for(WRONG_LAST_SEQUENCE):
        require(answer, "writing a record")
    return None


async def _check_absent(link: NatsLink, knowledge: FeedKnowledge, write: Write) -> None:
    """Raise RecordsLostError where a record is gone that was there, and that nobody may have forgotten in order."""
    held = knowledge.places.get(write.key)
    if held is None or held.sequence <= await forgotten(link, knowledge.life):
        knowledge.places.pop(write.key, None)
    elif not held.removed:
        raise RecordsLostError
