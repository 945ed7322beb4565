"""Keeping the stream small: records removed long ago are forgotten, records that stand far back are moved up.

Each message that is replaced leaves a hole in the stream, and the server walks over all of them whenever somebody
begins to read (about 0.07 s for each million). The messages at the low end, which nobody has written for long, hold the
holes open; so they are written again, unchanged, at the upper end.
"""

from __future__ import annotations

import asyncio

from skep.synchronizer.base import Key
from skep.synchronizer.nats_consumer import Delivery, StreamGoneError, read_all, state_of
from skep.synchronizer.nats_feed import FeedKnowledge
from skep.synchronizer.nats_link import (
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    NatsLink,
    require,
)
from skep.synchronizer.nats_writes import NatsWriter

MOST_SPAN = 4_000_000
"""Sequences between the first message of a stream and the last, at most; beyond, the first half is moved."""
MOST_FORGOTTEN = 5_000
MOST_MOVED = 20_000
"""At most so many in one call; the next one goes on."""


async def trim(link: NatsLink, writer: NatsWriter, knowledge: FeedKnowledge, *, keep_seconds: float, span: int) -> int:
    """Forget, then move; return how many records were forgotten. Raises StreamGoneError, Unreachable."""
    count = await _forget(link, writer, knowledge, keep_seconds)
    await _move(link, writer, knowledge, span)
    return count


async def _forget(link: NatsLink, writer: NatsWriter, knowledge: FeedKnowledge, keep_seconds: float) -> int:
    before = knowledge.clock - int(keep_seconds * 1e9)
    old = [(sequence, key) for key, (sequence, when) in knowledge.removals.items() if when < before]
    old = sorted(old)[:MOST_FORGOTTEN]
    if not old or not await _mark(link, writer, knowledge, old[-1][0]):
        return 0
    answers = await asyncio.gather(*(_drop(link, knowledge, key, sequence) for sequence, key in old))
    return sum(answers)


async def _mark(link: NatsLink, writer: NatsWriter, knowledge: FeedKnowledge, sequence: int) -> bool:
    """Say that removed records up to a sequence may be forgotten, before any is: readers before it begin anew.

    Return False where another handle trims just now.
    """
    life = knowledge.life
    answer = await link.last_of(life.stream, life.trimmed)
    if answer.refused_for(STREAM_NOT_FOUND):
        raise StreamGoneError
    message = None
    if not answer.refused_for(MESSAGE_NOT_FOUND):
        message = require(answer, "asking what was forgotten").message
    if message is not None and message.data.isdigit():
        sequence = max(sequence, int(message.data))
    marked = await (await writer.send(link, life.trimmed, b"%d" % sequence, message.seq if message is not None else 0))
    if marked.refused_for(WRONG_LAST_SEQUENCE):
        return False
    require(marked, "marking what is forgotten")
    return True


async def _drop(link: NatsLink, knowledge: FeedKnowledge, key: Key, sequence: int) -> bool:
    """Drop one message, which is there only as long as nobody wrote the record again."""
    answer = await link.api(f"STREAM.MSG.DELETE.{knowledge.life.stream}", seq=sequence, no_erase=True)
    knowledge.forget(key, sequence)
    return answer.error is None


async def _move(link: NatsLink, writer: NatsWriter, knowledge: FeedKnowledge, span: int) -> None:
    """Write the messages at the low end again, each only if it is still the latest of its subject."""
    stream = knowledge.life.stream
    state = await state_of(link, stream)
    if state.last_seq - state.first_seq <= span:
        return
    low: list[Delivery] = []
    until = state.last_seq - span // 2

    def take(delivery: Delivery) -> None:
        if delivery.sequence < until and len(low) < MOST_MOVED:
            low.append(delivery)

    await read_all(link, stream, 0, take)
    moving = [await writer.send(link, message.subject, message.payload, message.sequence) for message in low]
    for answer in moving:
        moved = await answer
        if not moved.refused_for(WRONG_LAST_SEQUENCE):
            require(moved, "moving a record")
