"""Publishing: compare-and-swap of many records in one pipeline, which tells readers of them by itself.

A handle that writes has a log. A pipeline is: the log's next entry (which values will change), the new keys into the
index, the values, the log's head. The server executes it in this order, so wherever it is cut off, what was done is
either told by the head, or stands in the entry after it, where `healing.py` finds it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skep.domain.clock import Clock
from skep.domain.errors import StorageUnavailable, TooLarge
from skep.domain.ids import new_uuid
from skep.synchronizer.base import MAX_BODY_BYTES, Published, Refusal, Write
from skep.synchronizer.memcached import commands, logs
from skep.synchronizer.memcached.connection import MemcachedConnection, MemcachedReply
from skep.synchronizer.memcached.items import Damaged, HeldItem, decode_held, digest_of, encode_entry, encode_held
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.losses import Losses
from skep.synchronizer.memcached.server import MemcachedClient

BATCH_WRITES = 500
BATCH_BYTES = 4 * 1024 * 1024
"""A pipeline holds at most so many writes, and bytes of bodies."""

ENTRY_SECONDS = 900
"""So long an entry of a log can be read; who was away for longer takes a snapshot."""

MOST_ROUNDS = 20
"""A write that met another writer so often in one call without seeing a fresher record has met a bug."""


@dataclass(slots=True)
class _Log:
    """The log of one handle on one connection in one life."""

    writer: str
    connection: MemcachedConnection
    life: MemcachedLife
    number: int = 0
    """Of the latest entry."""


@dataclass(slots=True)
class _Try:
    """One write on its way."""

    write: Write
    digest: bytes
    cas: int | None = None
    """The token that the value is believed to have; 0: there is no value; None: that has to be looked up."""
    was_there: bool = False
    outcome: Published | Refusal | None = None


class MemcachedWriter:
    """What a handle does to write."""

    def __init__(self, server: MemcachedClient, lives: MemcachedLives, losses: Losses, clock: Clock) -> None:
        self._server = server
        self._lives = lives
        self._losses = losses
        self._clock = clock
        self._log: _Log | None = None
        self._lock = asyncio.Lock()

    async def publish(self, life: MemcachedLife, writes: Sequence[Write]) -> tuple[Published | Refusal, ...]:
        """Try each write.

        Raises LifeEnded when the life was over before all were done: then none counts.
        """
        outcomes: list[Published | Refusal] = []
        for batch in _batches(writes):
            outcomes += await self._publish(life, batch)
        return tuple(outcomes)

    async def tell(self, life: MemcachedLife, digests: list[bytes]) -> None:
        """Tell readers to look at these values: somebody may have changed them without telling."""
        await self._send(life, digests, {}, [])

    async def end_log(self) -> None:
        """Have the log no longer followed. What was sent before is executed before; after a lost connection that is not
        certain, and `trimming.py` ends the log one day."""
        log, self._log = self._log, None
        if log is not None and not log.connection.closed:
            await logs.end(self._server, self._lives, log.life, {log.writer})

    def is_mine(self, writer: str) -> bool:
        """Tell whether this handle writes that log now."""
        return self._log is not None and self._log.writer == writer and not self._log.connection.closed

    async def _publish(self, life: MemcachedLife, writes: Sequence[Write]) -> list[Published | Refusal]:
        tries = [_first_try(life, write) for write in writes]
        for _ in range(MOST_ROUNDS):
            await self._look_up(life, [one for one in tries if one.outcome is None and one.cas is None])
            ready = [one for one in tries if one.outcome is None]
            if not ready:
                break
            await self._swap(life, ready)
        outcomes = [one.outcome for one in tries if one.outcome is not None]
        if len(outcomes) < len(tries):
            raise StorageUnavailable(f"records could not be written in {MOST_ROUNDS} rounds")
        return outcomes

    async def _look_up(self, life: MemcachedLife, tries: list[_Try]) -> None:
        """Read what is there, and decide as far as it decides."""
        if not tries:
            return
        gets = [commands.get(life.names.value(one.digest)) for one in tries]
        connection = await self._server.connection("writing")
        *replies, root = await connection.execute([*gets, self._lives.watch])
        self._lives.look(life, root)
        for one, reply in zip(tries, replies, strict=True):
            if reply.status == b"EN":
                await self._absent(life, one)
            else:
                self._present(life, one, await self._read(life, reply), reply.cas)

    async def _absent(self, life: MemcachedLife, one: _Try) -> None:
        known = life.known.get(one.digest)
        surely = one.was_there or (known is not None and not known.removed)
        if surely or one.write.expected:
            await self._losses.judge(life, [one.digest], surely=surely)
        life.known.pop(one.digest, None)
        if one.write.expected:
            one.outcome = Refusal(None)
        else:
            one.cas = 0

    def _present(self, life: MemcachedLife, one: _Try, held: HeldItem, cas: int) -> None:
        record = held.record
        life.learn(one.digest, record.generation, cas, removed=not record.body)
        if record.generation == one.write.expected:
            one.cas = cas
        else:
            one.outcome = Refusal(record if record.generation else None)

    async def _read(self, life: MemcachedLife, reply: MemcachedReply) -> HeldItem:
        try:
            return decode_held(reply.value)
        except Damaged as error:
            raise await self._lives.lost(life, f"a value is damaged: {error}") from error

    async def _swap(self, life: MemcachedLife, tries: list[_Try]) -> None:
        """Send one pipeline; what met another writer is looked up in the next round."""
        listed: dict[int, list[bytes]] = defaultdict(list)
        values = []
        now = self._clock.now()
        for one in tries:
            write = one.write
            name = life.names.value(one.digest)
            value = encode_held(write.key, write.expected + 1, write.body, removed_at=now)
            flags = 0 if write.body else commands.REMOVED
            if not write.expected:
                listed[life.names.shard_of(one.digest)].append(one.digest)
            values.append(
                commands.swap(name, value, one.cas, flags=flags) if one.cas else commands.add(name, value, flags=flags)
            )
        replies = await self._send(life, [one.digest for one in tries], listed, values)
        for one, reply in zip(tries, replies, strict=True):
            if reply.status == b"HD":
                generation = one.write.expected + 1
                one.outcome = Published(generation)
                life.learn(one.digest, generation, reply.cas, removed=not one.write.body)
            else:
                one.was_there |= reply.status in {b"NF", b"EX"}
                one.cas = None

    async def _send(
        self, life: MemcachedLife, digests: list[bytes], listed: dict[int, list[bytes]], values: list[bytes]
    ) -> list[MemcachedReply]:
        """Send one pipeline; return the replies of `values`, once it is known that all the rest was done."""
        log = await self._my_log(life)
        log.number += 1  # from here to the sending nobody may come between
        entry = commands.store(
            life.names.entry(log.writer, log.number), encode_entry(log.number, digests), seconds=ENTRY_SECONDS
        )
        index = [commands.append(life.names.shard(number), b"".join(some)) for number, some in listed.items()]
        head = commands.store(life.names.head(log.writer), b"%d" % log.number)
        replies = await log.connection.execute([entry, *index, *values, head, self._lives.watch])
        self._lives.look(life, replies[-1])
        for reply in replies:
            if reply.status == b"ERROR":  # the server may have dropped what it had no room to replace
                await self._lives.lost(life, f"the server did not store: {reply.value.decode(errors='replace')}")
                raise StorageUnavailable(f"memcached: {reply.value.decode(errors='replace')}")
        after_index = 1 + len(index)
        if any(reply.status != b"HD" for reply in replies[1:after_index]):
            raise await self._lives.lost(life, "a part of the index is missing")
        if log.writer not in life.root.writers:
            await self._tell_again(life, log, digests)
        return replies[after_index:-2]

    async def _tell_again(self, life: MemcachedLife, log: _Log, digests: list[bytes]) -> None:
        """The log was ended by somebody who took this handle for dead: nobody follows it any more."""
        if self._log is log:
            self._log = None
        await self.tell(life, digests)

    async def _my_log(self, life: MemcachedLife) -> _Log:
        """Return the log of this connection and life; a new one where there is none yet."""
        async with self._lock:
            connection = await self._server.connection("writing")
            log = self._log
            if log is None or log.connection is not connection or log.life is not life:
                log = _Log(new_uuid()[:8], connection, life)
                await connection.execute([commands.store(life.names.head(log.writer), b"0")])
                await logs.follow(self._lives, life, log.writer)
                self._log = log
            return log


def _first_try(life: MemcachedLife, write: Write) -> _Try:
    """Believe what is known; a new key is believed to be new."""
    digest = digest_of(write.key)
    known = life.known.get(digest)
    if known is None:
        return _Try(write, digest, cas=None if write.expected else 0)
    believed = known.generation == write.expected
    return _Try(write, digest, cas=known.cas if believed else None)


def _batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Cut writes into pipelines.

    Raises TooLarge when a body is larger than the contract allows.
    """
    batch: list[Write] = []
    room = BATCH_BYTES
    for write in writes:
        if len(write.body) > MAX_BODY_BYTES:
            raise TooLarge(f"record {write.key.namespace}/{write.key.name}: {len(write.body)} bytes")
        if batch and (room < len(write.body) or len(batch) == BATCH_WRITES):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(write)
        room -= len(write.body)
    if batch:
        yield batch
