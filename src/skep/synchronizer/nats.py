"""Records in NATS JetStream: a stream for each epoch, a subject for each record, compare-and-set by sequence.

A record's message holds its generation; the stream keeps the latest message of each subject, so that the stream itself
is the log of changes, which is never longer than there are records, and a cursor is a sequence of it. Streams are held
in memory: docs/decisions/0303 says why, and what that means for a server that restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import structlog
from nats.aio.msg import Msg

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured, SkepError, Unavailable, Unreachable
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
)
from skep.synchronizer.nats_consumer import Delivery, StreamGoneError, read_all, state_of
from skep.synchronizer.nats_feed import KEEP_CHANGES, Feed, Knowledge, forgotten
from skep.synchronizer.nats_frames import FRAME_BYTES, Life, read_cursor
from skep.synchronizer.nats_link import NO_RESPONDERS, Link, require
from skep.synchronizer.nats_lives import Lives
from skep.synchronizer.nats_trim import MOST_SPAN, trim
from skep.synchronizer.nats_writes import RecordsLostError, Writer

CALL_SECONDS = 5.0
"""How long a call may take; a snapshot may take so long without getting anything."""
WATCH_SECONDS = 1.0
"""How often a handle looks whether its epoch is still the current one, and its feed alive."""
RETRY_SECONDS = 0.1
"""How long to wait after a look that failed."""
REACH_SECONDS = 0.25
"""How long to wait for the feed to bring what is known to be there, before asking the server for it."""
HOST_BYTES = 2048
"""Memory that a host's records take on the server, estimated: its state of about 600 bytes, subject and bookkeeping."""

T = TypeVar("T")

log = structlog.get_logger("skep.synchronizer")


def make(settings: SynchronizerSettings) -> NatsBackend:
    """Return a backend for `nats://HOST:PORT[,nats://...][?replicas=N]`; raises Misconfigured for any other address."""
    url, _, query = settings.url.partition("?")
    if not url or any(urlsplit(one).scheme not in {"nats", "tls"} for one in url.split(",")):
        raise Misconfigured("synchronizer.url: the nats backend needs nats://HOST:PORT")
    options = dict(parse_qsl(query))
    replicas = options.pop("replicas", "1")
    if options or replicas not in {"1", "3", "5"}:
        raise Misconfigured("synchronizer.url: the nats backend takes ?replicas=1, 3 or 5 and nothing else")
    return NatsBackend(url, settings.name, replicas=int(replicas), expected_hosts=settings.expected_hosts)


@dataclass
class _Held:
    """What a handle holds of the current life."""

    life: Life
    knowledge: Knowledge
    feed: Feed | None = None


class NatsBackend:
    """A handle on the records of one cloud on one NATS server or cluster."""

    def __init__(
        self,
        url: str,
        cloud: str,
        *,
        replicas: int = 1,
        expected_hosts: int = 1,
        keep_removed: float = KEEP_REMOVED_SECONDS,
        keep_changes: int = KEEP_CHANGES,
        most_span: int = MOST_SPAN,
    ) -> None:
        """Remember where the server is; nothing is done before `open`.

        `keep_removed` is in seconds, `keep_changes` bounds what is kept in memory for readers, `most_span` (sequences)
        how long the stream's holes may become before `trim` closes them.
        """
        self._url = url
        self._lives = Lives(cloud, replicas)
        self._expected_hosts = expected_hosts
        self._keep_removed = keep_removed
        self._keep_changes = keep_changes
        self._most_span = most_span
        self._writer = Writer()
        self._link: Link | None = None
        self._held: _Held | None = None
        self._settled = False
        """Whether what is held was the current life when we looked last, over the connection that we have."""
        self._looking = asyncio.Lock()
        self._following = asyncio.Lock()
        self._nudge = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._closed = True

    async def open(self) -> None:
        """Connect, look whether the server is fit, join the current epoch or begin one."""
        self._closed = False
        try:
            async with _within(CALL_SECONDS):
                async with self._looking:
                    await self._check(await self._connected())
                await self._ready()
        except BaseException:
            await self.close()
            raise
        self._watch = asyncio.create_task(self._watch_over())

    async def close(self) -> None:
        """Disconnect."""
        self._closed = True
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait((watch,))
        held, self._held = self._held, None
        link, self._link = self._link, None
        if held is not None and held.feed is not None:
            held.feed.wake()
            if link is not None and link.alive:
                await held.feed.end()
        if link is not None:
            await link.close()

    async def epoch(self) -> Epoch:
        """Return the current epoch, looked up."""
        async with _within(CALL_SECONDS):
            return (await self._look()).life.epoch

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Begin another life, unless the epoch is no longer `expected`; return the current epoch."""
        async with _within(CALL_SECONDS), self._looking:
            link = await self._connected()
            return (await self._enter(await self._lives.end(link, expected))).life.epoch

    async def snapshot(self) -> Snapshot:
        """Return all records but the removed ones."""
        return await self._in_life(self._snapshot)

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Return what changed after `cursor`; wait up to `wait` seconds for a change if there is none."""
        self._check_open()
        place = read_cursor(cursor)
        if place is None:
            return CursorTooOld()
        epoch, sequence = place
        async with _within(CALL_SECONDS):
            held = await self._ready()
            if held.life.epoch != epoch:
                held = await self._look()
        if held.life.epoch != epoch:
            return CursorTooOld()
        try:
            if wait > 0:
                return await self._next_changes(held, sequence, wait)
            async with _within(CALL_SECONDS):
                return await self._changes_now(held, sequence)
        except StreamGoneError:
            async with _within(CALL_SECONDS):
                await self._look()
            return CursorTooOld()

    async def publish(self, writes: tuple[Write, ...]) -> tuple[Published | Refusal, ...]:
        """Try each write by compare-and-swap, many in flight."""

        async def write(link: Link, held: _Held) -> tuple[Published | Refusal, ...]:
            async with _within(CALL_SECONDS):
                return await self._writer.publish(link, held.knowledge, writes)

        return await self._in_life(write)

    async def trim(self) -> int:
        """Forget records removed long ago; return how many."""

        async def forget(link: Link, held: _Held) -> int:
            async with _within(CALL_SECONDS):
                await self._fed(held, held.knowledge.last)
            return await trim(link, self._writer, held.knowledge, keep_seconds=self._keep_removed, span=self._most_span)

        return await self._in_life(forget)

    async def _in_life(self, operation: Callable[[Link, _Held], Awaitable[T]]) -> T:
        """Do it in the current life, and once more if that ended meanwhile."""
        for last_try in (False, True):
            async with _within(CALL_SECONDS):
                held = await self._ready()
            link = self._link
            if link is None:
                break
            try:
                return await operation(link, held)
            except StreamGoneError:
                self._settled = False
                if last_try:
                    break
            except RecordsLostError:
                log.warning("the server lost records: another epoch", epoch=held.life.epoch)
                await self.begin_epoch(held.life.epoch)
                break
        raise Unreachable("synchronizer: another epoch begins")

    async def _snapshot(self, link: Link, held: _Held) -> Snapshot:
        records, position = await self._read(link, held, 0)
        living = tuple(record for record in records.values() if record.body)
        return Snapshot(epoch=held.life.epoch, records=living, cursor=held.life.cursor(position))

    async def _read(self, link: Link, held: _Held, after: int) -> tuple[dict[Key, Record], int]:
        """Return the records that the server holds after a sequence, and up to where it was read."""
        records: dict[Key, Record] = {}
        understand = held.knowledge.understand

        def take(delivery: Delivery) -> None:
            record = understand(delivery).record
            if record is not None:
                records[record.key] = record

        position = await read_all(link, held.life.stream, after, take)
        return records, position

    async def _changes_now(self, held: _Held, sequence: int) -> Changes | CursorTooOld:
        """Return all that is on the server after a sequence."""
        link = await self._connected()
        last = (await state_of(link, held.life.stream)).last_seq
        if sequence > last:
            return CursorTooOld()
        feed = await self._fed(held, sequence)
        if sequence >= feed.start and await feed.reach(last, REACH_SECONDS):
            return feed.after(sequence)
        return await self._catch_up(link, held, sequence)

    async def _next_changes(self, held: _Held, sequence: int, wait: float) -> Changes | CursorTooOld:
        """Wait until the feed brings something after a sequence."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        async with _within(CALL_SECONDS):
            feed = await self._fed(held, sequence)
            if sequence > feed.position or sequence < feed.start:
                answer = await self._changes_now(held, sequence)
                if isinstance(answer, CursorTooOld) or answer.records:
                    return answer
        while True:
            self._check_open()
            if self._held is not held:
                return CursorTooOld()
            if feed.alive and sequence >= feed.start:
                changes = feed.after(sequence)
                if changes.records:
                    return changes
            elif feed.alive:
                async with _within(CALL_SECONDS):
                    return await self._changes_now(held, sequence)
            left = end - loop.time()
            if left <= 0:
                break
            await feed.next_change(left)
        if not feed.alive:
            raise Unreachable("synchronizer: NATS tells no changes")
        return Changes(records=(), cursor=held.life.cursor(sequence))

    async def _catch_up(self, link: Link, held: _Held, sequence: int) -> Changes | CursorTooOld:
        records, position = await self._read(link, held, sequence)
        if await forgotten(link, held.life) > sequence:
            return CursorTooOld()
        return Changes(records=tuple(records.values()), cursor=held.life.cursor(position))

    async def _fed(self, held: _Held, sequence: int) -> Feed:
        """Return the feed, which follows the stream; the first one begins after a sequence."""
        async with self._following:
            link = await self._connected()
            if held.feed is None:
                # A cursor may come from anybody: nothing is there yet after the last message.
                sequence = min(sequence, (await state_of(link, held.life.stream)).last_seq)
                held.feed = Feed(held.knowledge, sequence, keep=self._keep_changes)
            if not held.feed.alive:
                await held.feed.follow(link)
            return held.feed

    async def _ready(self) -> _Held:
        """Return what is held of the current life; look only where there is reason to."""
        if self._settled and self._held is not None and not self._closed:
            return self._held
        async with self._looking:
            if self._settled and self._held is not None:
                return self._held
            return await self._look_now()

    async def _look(self) -> _Held:
        """Look which life is the current one, and hold it."""
        async with self._looking:
            return await self._look_now()

    async def _look_now(self) -> _Held:
        link = await self._connected()
        return await self._enter(await self._lives.current(link))

    async def _enter(self, life: Life) -> _Held:
        """Hold a life, and let go of another that was held."""
        held = self._held
        if held is None or held.life != life:
            self._held = _Held(life, Knowledge(life))
            if held is not None and held.feed is not None:
                held.feed.wake()
                await held.feed.end()
            held = self._held
        self._settled = self._link is not None and self._link.alive
        return held

    async def _connected(self) -> Link:
        """Return the connection; connect where there is none."""
        self._check_open()
        if self._link is None or not self._link.alive:
            broken, self._link = self._link, None
            if broken is not None:
                await broken.close()
            link = await Link.connect(self._url, self._unsettle)
            await link.subscribe(self._lives.subject, self._take_hint)
            self._link = link
        return self._link

    async def _check(self, link: Link) -> None:
        """Raise Misconfigured where the server can never hold our records."""
        needed = MAX_BODY_BYTES + FRAME_BYTES
        if link.max_payload < needed:
            raise Misconfigured(
                f"synchronizer: NATS takes messages of {link.max_payload} bytes; max_payload has to be {needed} or more"
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

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the synchronizer's backend is closed")

    def _unsettle(self) -> None:
        """Look again before anything else is done: the connection broke, or another life may have begun."""
        self._settled = False
        self._nudge.set()

    async def _take_hint(self, _message: Msg) -> None:
        self._unsettle()

    async def _watch_over(self) -> None:
        """Keep the feed alive for those who wait, and the epoch current for those who only write."""
        serves = True
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS if serves else RETRY_SECONDS):
                    await self._nudge.wait()
            self._nudge.clear()
            try:
                async with _within(CALL_SECONDS):
                    held = await self._look()
                    if held.feed is not None:
                        await self._fed(held, held.feed.position)
            except StreamGoneError:
                self._unsettle()
            except SkepError as error:
                if serves:
                    log.warning("the synchronizer's server does not serve", error=str(error))
                serves = False
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if not serves:
                    log.info("the synchronizer's server serves again")
                serves = True


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unreachable(f"synchronizer: NATS did not answer within {seconds:g} s") from error
