"""Reading a stream in its order: a consumer on the server that pushes, watched for gaps and for silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from skep.domain.errors import Unreachable
from skep.synchronizer.nats_link import STREAM_NOT_FOUND, JetStreamAnswer, NatsLink, StreamState, require

HEARTBEAT_SECONDS = 0.5
"""How often a consumer that has nothing to deliver says that it lives."""
SILENT_SECONDS = 5.0
"""A consumer that has said nothing for so long is made anew."""
RECOUNT_SECONDS = 0.1
"""Who reads what is there asks so often whether there is more: the server (2.9) counts messages that were overwritten
before they were delivered as still to come, and while somebody writes, its count may never be 0."""


class StreamGoneError(Exception):
    """The stream is no longer there: another life has begun, or has to."""


class Delivery(NamedTuple):
    """One message of a stream."""

    sequence: int
    subject: str
    payload: bytes
    time: int
    """When the server stored it, in nanoseconds since the epoch, by the server's clock."""
    pending: int
    """How many messages the consumer has left to deliver."""


class Consumer:
    """A consumer that delivers each message after a sequence, and goes on with those that come.

    It is not repeated when it breaks (`broken`): its owner makes another one from where this one stood.
    """

    def __init__(self, link: NatsLink, stream: str, deliver: Callable[[Delivery], None]) -> None:
        """Prepare to read a stream; `deliver` is called in the order of the stream and must not fail."""
        self._link = link
        self._stream = stream
        self._deliver = deliver
        self._subscription: Subscription | None = None
        self._name = ""
        self._delivered = 0
        self._heard = time.monotonic()
        self._gap = False
        self.caught_up = asyncio.Event()
        """Set by a heartbeat: at some moment since it was cleared, there was nothing left to deliver."""

    async def begin(self, after: int) -> JetStreamAnswer:
        """Deliver what comes after a sequence; raises StreamGoneError, Unreachable."""
        inbox = self._link.new_inbox()
        self._subscription = await self._link.subscribe(inbox, self._take)
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        answer = await self._link.api(f"CONSUMER.CREATE.{self._stream}", stream_name=self._stream, config=config)
        if answer.refused_for(STREAM_NOT_FOUND):
            raise StreamGoneError
        self._name = require(answer, "making a consumer").name
        return answer

    @property
    def broken(self) -> bool:
        """Whether it missed a message, fell silent, or lost its connection."""
        return self._gap or not self._link.alive or time.monotonic() - self._heard > SILENT_SECONDS

    async def end(self) -> None:
        """Deliver no more."""
        if self._subscription is not None:
            await self._link.unsubscribe(self._subscription)
        if self._name and self._link.alive:
            # Nobody waits for the answer: a consumer without a listener ends by itself a few seconds later.
            answer = await self._link.send(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}")
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _take(self, message: Msg) -> None:
        self._heard = time.monotonic()
        if message.headers and not message.data and message.headers.get("Status") == "100":
            await self._take_control(message)
            return
        # $JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<delivered>.<time>.<pending>; with a domain there is more
        # in front, and one token behind.
        tokens = message.reply.split(".")
        first = 5 if len(tokens) == 9 else 7
        self._delivered += 1
        if self._gap or int(tokens[first + 1]) != self._delivered:
            self._gap = True
            return
        sequence, _, when, pending = tokens[first : first + 4]
        self._deliver(Delivery(int(sequence), message.subject, message.data, int(when), int(pending)))

    async def _take_control(self, message: Msg) -> None:
        headers = message.headers or {}
        stalled = headers.get("Nats-Consumer-Stalled")
        if message.reply:  # flow control: the server waits until we have come so far
            await self._link.tell(message.reply)
        elif stalled:
            await self._link.tell(stalled)
        elif int(headers.get("Nats-Last-Consumer", "0")) != self._delivered:
            self._gap = True
        else:
            self.caught_up.set()


async def read_all(link: NatsLink, stream: str, after: int, deliver: Callable[[Delivery], None]) -> int:
    """Deliver all that the stream holds after a sequence; return the sequence up to which all was delivered.

    Raises StreamGoneError, and Unreachable when the consumer broke in between.
    """
    reading = _Reading(after, (await state_of(link, stream)).last_seq, deliver)
    while not reading.done.is_set():
        await _read_on(link, stream, reading)
    return reading.position


class _Reading:
    """How far a stream was read that has to be read up to a sequence, and on until nothing more is there."""

    def __init__(self, after: int, last: int, deliver: Callable[[Delivery], None]) -> None:
        self.position = after
        self.done = asyncio.Event()
        self._last = last
        self._deliver = deliver
        if self.is_beyond:
            self.done.set()

    @property
    def is_beyond(self) -> bool:
        """Whether all was read that was there at the beginning."""
        return self.position >= self._last

    def take(self, delivery: Delivery) -> None:
        if self.done.is_set() or delivery.sequence <= self.position:
            return  # of what comes while we read there may be no end
        self._deliver(delivery)
        self.position = delivery.sequence
        if not delivery.pending and self.is_beyond:
            self.done.set()


async def _read_on(link: NatsLink, stream: str, reading: _Reading) -> None:
    """Read on with a consumer; leave it where it tells no end, so that the next one counts anew what is left."""
    consumer = Consumer(link, stream, reading.take)
    try:
        answer = await consumer.begin(reading.position)
        if not answer.num_pending:
            reading.done.set()
        while not reading.done.is_set():
            if consumer.broken:
                raise Unreachable("synchronizer: a NATS consumer broke off")
            await _first_of(reading.done, consumer.caught_up, seconds=RECOUNT_SECONDS)
            if consumer.caught_up.is_set():
                reading.done.set()
            elif reading.is_beyond:
                break
    finally:
        await consumer.end()


async def state_of(link: NatsLink, stream: str) -> StreamState:
    """Return what a stream holds; raises StreamGoneError, Unreachable."""
    answer = await link.api(f"STREAM.INFO.{stream}")
    if answer.refused_for(STREAM_NOT_FOUND):
        raise StreamGoneError
    return require(answer, "asking for the stream").state or StreamState()


async def _first_of(*events: asyncio.Event, seconds: float) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
