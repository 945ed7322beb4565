"""Records in NATS JetStream: a stream for each epoch, a subject for each record, compare-and-set by sequence.

A record's message holds its generation; the stream keeps the latest message of each subject, so that the stream itself
is the log of changes, which is never longer than there are records, and a cursor is a sequence of it. Streams are held
in memory: docs/decisions/0303 says why, and what that means for a server that restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import structlog

from skep.config.nats_security import NatsSecurity
from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured, Unreachable
from skep.synchronizer.base import (
    KEEP_REMOVED_SECONDS,
    MAX_BODY_BYTES,
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
    refuse_all,
)
from skep.synchronizer.nats_consumer import Delivery, StreamGoneError, read_all, state_of
from skep.synchronizer.nats_feed import KEEP_CHANGES, forgotten
from skep.synchronizer.nats_frames import FRAME_BYTES, read_cursor
from skep.synchronizer.nats_link import NO_RESPONDERS, NatsLink, NatsServers, require
from skep.synchronizer.nats_lives import NatsLives
from skep.synchronizer.nats_session import HeldLife, NatsSession
from skep.synchronizer.nats_trim import MOST_SPAN, trim
from skep.synchronizer.nats_writes import NatsWriter, RecordsLostError

CALL_SECONDS = 5.0
"""How long a call may take; a snapshot may take so long to begin."""
REACH_SECONDS = 0.25
"""How long to wait for the feed to bring what is known to be there, before asking the server for it."""
HOST_BYTES = 2048
"""Memory that a host's records take on the server, estimated: its state of about 600 bytes, subject and bookkeeping."""

_NO_FILES = NatsSecurity()

T = TypeVar("T")

log = structlog.get_logger("skep.synchronizer")


def make(settings: SynchronizerSettings) -> NatsBackend:
    """Return a backend for `nats://HOST:PORT[,nats://...][?replicas=N]`; raises Misconfigured for any other address."""
    url, _, query = settings.url.partition("?")
    if not url or any(urlsplit(one).scheme not in {"nats", "tls"} for one in url.split(",")):
        raise Misconfigured("synchronizer.url: expected nats://HOST:PORT")
    options = dict(parse_qsl(query, keep_blank_values=True))
    replicas = options.pop("replicas", "1")
    if options or replicas not in {"1", "3", "5"}:
        raise Misconfigured("synchronizer.url: expected no parameter but replicas, 1, 3 or 5")
    return NatsBackend(
        url, settings.name, replicas=int(replicas), expected_hosts=settings.expected_hosts, security=settings
    )


class NatsBackend:
    """A handle on the records of one cloud on one NATS server or cluster."""

    def __init__(
        self,
        url: str,
        cloud: str,
        *,
        replicas: int = 1,
        expected_hosts: int = 1,
        security: NatsSecurity = _NO_FILES,
        call_seconds: float = CALL_SECONDS,
        keep_removed: float = KEEP_REMOVED_SECONDS,
        keep_changes: int = KEEP_CHANGES,
        most_span: int = MOST_SPAN,
    ) -> None:
        """Remember where the server is; nothing is done before `open`.

        `keep_removed` is in seconds, `keep_changes` bounds what is kept in memory for readers, `most_span` (sequences)
        how long the stream's holes may become before `trim` closes them.
        """
        self.security = security
        server = NatsServers(url, security)
        self._session = NatsSession(
            server, NatsLives(cloud, replicas), call_seconds=call_seconds, keep_changes=keep_changes
        )
        self._expected_hosts = expected_hosts
        self._keep_removed = keep_removed
        self._most_span = most_span
        self._writer = NatsWriter()

    async def open(self) -> None:
        """Connect, look whether the server is fit, join the current epoch or begin one."""
        self._session.open()
        try:
            async with self._session.in_time():
                await self._check(await self._session.connected())
                await self._session.look()
        except BaseException:
            await self.close()
            raise
        self._session.watch()

    async def close(self) -> None:
        """Disconnect."""
        await self._session.close()

    async def epoch(self) -> Epoch:
        """Return the current epoch, looked up."""
        async with self._session.in_time():
            return (await self._session.look()).life.epoch

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life, unless the epoch is no longer `expected`; return the current epoch."""
        async with self._session.in_time():
            return (await self._session.end_life(expected)).life.epoch

    async def snapshot(self) -> Snapshot:
        """Return all records but the removed ones."""

        async def read(_: NatsLink, held: HeldLife) -> Snapshot:
            async with self._session.apart() as link:
                records, position = await _read(link, held, 0)
            living = tuple(record for record in records.values() if record.body)
            return Snapshot(epoch=held.life.epoch, records=living, cursor=held.life.cursor(position))

        return await self._in_life(read)

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        self._session.check_open()
        place = read_cursor(cursor)
        if place is None:
            return CursorTooOld()
        epoch, sequence = place
        try:
            async with self._session.in_time():
                _, held = await self._session.ready()
                if held.life.epoch != epoch:
                    held = await self._session.look()
                if held.life.epoch != epoch:
                    return CursorTooOld()
                if wait <= 0:
                    return await self._changes_now(held, sequence)
            return await self._next_changes(held, sequence, wait)
        except StreamGoneError:
            async with self._session.in_time():
                await self._session.look()
            return CursorTooOld()

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap, many in flight."""

        async def write(link: NatsLink, held: HeldLife) -> tuple[Published | Refusal, ...]:
            async with self._session.in_time():
                if epoch is not None and held.life.epoch != epoch:
                    held = await self._session.look()
                    if held.life.epoch != epoch:
                        return refuse_all(writes)
                return await self._writer.publish(link, held.knowledge, writes)

        return await self._in_life(write)

    async def trim(self) -> int:
        """Forget records removed long ago, close holes in the stream; return how many records were forgotten."""

        async def forget(link: NatsLink, held: HeldLife) -> int:
            if held.feed is None:
                # Whoever follows knows what was removed and when; whoever never did has to read it once.
                _, position = await _read(link, held, 0)
                async with self._session.in_time():
                    await self._session.fed(held, position)
            return await trim(link, self._writer, held.knowledge, keep_seconds=self._keep_removed, span=self._most_span)

        return await self._in_life(forget)

    async def _in_life(self, operation: Callable[[NatsLink, HeldLife], Awaitable[T]]) -> T:
        """Do it in the current life, and once more if that ended meanwhile."""
        for _ in range(2):
            async with self._session.in_time():
                link, held = await self._session.ready()
            try:
                return await operation(link, held)
            except StreamGoneError:
                self._session.unsettle()
            except RecordsLostError:
                log.warning("NATS lost records: new epoch", lost=held.life.epoch)
                await self.begin_epoch(held.life.epoch)
                break
        raise Unreachable("synchronizer: a new epoch begins")

    async def _changes_now(self, held: HeldLife, sequence: int) -> Changes | CursorTooOld:
        """Return all that is on the server after a sequence."""
        link = await self._session.connected()
        last = (await state_of(link, held.life.stream)).last_seq
        if sequence > last:
            return CursorTooOld()
        feed = await self._session.fed(held, sequence)
        if sequence >= feed.start and await feed.reach(last, REACH_SECONDS):
            return feed.after(sequence)
        records, position = await _read(link, held, sequence)
        if await forgotten(link, held.life) > sequence:
            return CursorTooOld()
        return Changes(records=tuple(records.values()), cursor=held.life.cursor(position))

    async def _next_changes(self, held: HeldLife, sequence: int, wait: float) -> Changes | CursorTooOld:
        """Wait until the feed brings something after a sequence."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        async with self._session.in_time():
            feed = await self._session.fed(held, sequence)
            if sequence > feed.position:
                answer = await self._changes_now(held, sequence)
                if isinstance(answer, CursorTooOld) or answer.records:
                    return answer
        while self._session.holds(held):
            if feed.alive:
                if sequence < feed.start:
                    async with self._session.in_time():
                        return await self._changes_now(held, sequence)
                changes = feed.after(sequence)
                if changes.records:
                    return changes
            left = end - loop.time()
            if left <= 0:
                if not feed.alive:
                    raise Unreachable("synchronizer: NATS delivers no changes")
                return Changes(records=(), cursor=held.life.cursor(sequence))
            await feed.next_change(left)
        return CursorTooOld()

    async def _check(self, link: NatsLink) -> None:
        """Raise Misconfigured where the server can never hold our records."""
        needed = MAX_BODY_BYTES + FRAME_BYTES
        if link.max_payload < needed:
            raise Misconfigured(
                f"synchronizer: max_payload of NATS is {link.max_payload} bytes; expected at least {needed}"
            )
        answer = await link.api("INFO")
        if answer.refused_for(NO_RESPONDERS):
            raise Misconfigured("synchronizer: the NATS server has no JetStream")
        limits = require(answer, "asking for limits").limits
        needed = self._expected_hosts * HOST_BYTES
        if limits is not None and 0 <= limits.max_memory < needed:
            raise Misconfigured(
                f"synchronizer: the NATS account may hold {limits.max_memory} bytes in memory; {self._expected_hosts}"
                f" hosts (synchronizer.expected_hosts) of {HOST_BYTES} bytes need {needed}"
            )


async def _read(link: NatsLink, held: HeldLife, after: int) -> tuple[dict[Key, Record], int]:
    """Return the records that the server holds after a sequence, and up to where it was read."""
    records: dict[Key, Record] = {}
    understand = held.knowledge.understand

    def take(delivery: Delivery) -> None:
        record = understand(delivery).record
        if record is not None:
            records[record.key] = record

    position = await read_all(link, held.life.stream, after, take)
    return records, position
