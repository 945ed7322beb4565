"""Which life of the records is the current one; how one ends and the next begins.

Each life is a stream of its own, and a small stream beside them names the current one. A life ends with its stream, so
that no writer can store anything in it afterwards; that is all there is to a loss too: the stream is gone, or the
message that it began with. Whoever finds it so begins the next life, by compare-and-set on the name; of several one
succeeds, and the others find his.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import structlog

from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured, Unreachable
from skep.domain.ids import new_uuid
from skep.synchronizer.base import Epoch
from skep.synchronizer.nats_consumer import StreamGoneError, state_of
from skep.synchronizer.nats_frames import FORMAT, BegunLife, NatsLife
from skep.synchronizer.nats_link import (
    MESSAGE_NOT_FOUND,
    NO_RESPONDERS,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    NatsLink,
    require,
)

log = structlog.get_logger("skep.synchronizer")


class _Named(NamedTuple):
    """What the small stream says."""

    sequence: int
    """Of the message, for the next compare-and-set; 0: there is none."""
    life: NatsLife | None
    """None when nothing can be read from it."""


class NatsLives:
    """The lives of one cloud's records."""

    def __init__(self, cloud: str, replicas: int) -> None:
        """Remember the cloud's name, and on how many servers of a cluster each stream is held."""
        self._cloud = cloud
        self._replicas = replicas
        self._stream = f"SKEP-{cloud}"
        self.subject = f"skep_sync.{cloud}.epoch"
        """Where a new life is told; a hint only, since refused messages are told too."""

    async def current(self, link: NatsLink) -> NatsLife:
        """Return the current life; begin one where there is none, or where it has lost anything.

        Raises Misconfigured when the streams are of another format, Unreachable.
        """
        named = await self._named(link)
        while named.life is None or not await self._lives(link, named.life):
            if named.life is not None:
                log.warning("the synchronizer's records were lost: new epoch", lost=named.life.epoch)
            named = await self._begin(link, named)
        return named.life

    async def end(self, link: NatsLink, expected: Epoch) -> NatsLife:
        """Begin another life, unless `expected` is no longer the current one; return the current life."""
        named = await self._named(link)
        if named.life is not None and named.life.epoch == expected:
            await self._begin(link, named)
        return await self.current(link)

    async def _named(self, link: NatsLink) -> _Named:
        # A server (2.9) crashes when it is asked for a message of a stream that is just being made, as this one may be
        # by another handle. Streams of lives are named only when they have been made.
        if not await self._is_made(link, self._stream):
            await self._make(link, self._stream, self.subject)
            return _Named(0, None)
        answer = await link.last_of(self._stream, self.subject)
        if answer.refused_for(STREAM_NOT_FOUND, MESSAGE_NOT_FOUND):
            return _Named(0, None)
        message = require(answer, "asking for the current epoch").message
        if message is None:
            raise Unreachable("synchronizer: NATS answered without the message that was asked for")
        try:
            begun = json_decoder(BegunLife).decode(message.data)
        except msgspec.DecodeError:
            return _Named(message.seq, None)
        if begun.format != FORMAT:
            found = f"the records of {self._cloud!r} are of format {begun.format}"
            raise Misconfigured(f"synchronizer: {found}, this version writes {FORMAT}")
        return _Named(message.seq, NatsLife(self._cloud, begun.epoch))

    async def _lives(self, link: NatsLink, life: NatsLife) -> bool:
        """Whether the life's stream is there, with the message that it began with."""
        answer = await link.last_of(life.stream, life.begun)
        if answer.refused_for(STREAM_NOT_FOUND, MESSAGE_NOT_FOUND):
            return False
        require(answer, "asking for the beginning of the epoch")
        return True

    async def _begin(self, link: NatsLink, named: _Named) -> _Named:
        """Begin a life after the one that was named; return who is named now, be it another's."""
        strays = await self._streams(link)
        if named.life is not None:
            await self._remove(link, named.life.stream)
        life = NatsLife(self._cloud, Epoch(new_uuid()))
        await self._make(link, life.stream, f"{life.subject}.>")
        require(await (await link.send(life.begun, b"", expected=0)), "beginning an epoch")
        name = msgspec.json.encode(BegunLife(format=FORMAT, epoch=life.epoch))
        answer = await (await link.send(self.subject, name, expected=named.sequence))
        if answer.refused_for(WRONG_LAST_SEQUENCE, STREAM_NOT_FOUND, NO_RESPONDERS):
            await self._remove(link, life.stream)
            return await self._named(link)
        sequence = require(answer, "naming an epoch").seq
        # Only those that were there before: what was made since may be somebody's next life.
        for stream in strays:
            if await self._is_made(link, stream):
                await self._remove(link, stream)
        log.info("the synchronizer's records began a new epoch", epoch=life.epoch)
        return _Named(sequence, life)

    async def _streams(self, link: NatsLink) -> list[str]:
        """Return all streams of this cloud's lives: the last one, and what crashes left behind."""
        answer = await link.api("STREAM.NAMES", subject=f"skep_sync.{self._cloud}.life.>")
        streams = require(answer, "listing streams").streams
        return streams if isinstance(streams, list) else []

    async def _is_made(self, link: NatsLink, stream: str) -> bool:
        try:
            return (await state_of(link, stream)).messages > 0
        except StreamGoneError:
            return False

    async def _make(self, link: NatsLink, stream: str, subject: str) -> None:
        answer = await link.api(
            f"STREAM.CREATE.{stream}",
            name=stream,
            subjects=[subject],
            # Not on disk: see docs/decisions/0303. Without limits of its own, since a stream at its limit would
            # forget records to take others; at the server's limit writes are refused.
            storage="memory",
            retention="limits",
            discard="new",
            max_msgs_per_subject=1,
            max_msgs=-1,
            max_bytes=-1,
            max_age=0,
            max_consumers=-1,
            num_replicas=self._replicas,
        )
        require(answer, "making a stream")

    async def _remove(self, link: NatsLink, stream: str) -> None:
        answer = await link.api(f"STREAM.DELETE.{stream}")
        if not answer.refused_for(STREAM_NOT_FOUND):
            require(answer, "removing a stream")
