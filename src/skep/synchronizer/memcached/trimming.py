"""Forgetting: records removed long ago, keys that are listed twice, logs of writers that went away.

A key leaves the index only when nobody can be writing it: its value is first swapped for one of generation 0, which
means that there is none; whoever writes the key anew lists it again before, and a part of the index that has changed
since it was read is left for the next time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from skep.domain.clock import SECOND, Clock
from skep.synchronizer.base import KEEP_REMOVED_SECONDS, Key
from skep.synchronizer.memcached import commands
from skep.synchronizer.memcached.healing import Healer
from skep.synchronizer.memcached.items import Damaged, HeldItem, decode_held, decode_index, encode_held, encode_index
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.losses import Losses
from skep.synchronizer.memcached.reading import Reader
from skep.synchronizer.memcached.server import MemcachedClient
from skep.synchronizer.memcached.writing import MemcachedWriter

SILENT_SECONDS = 120.0
"""A log without a new entry for so long is no longer followed; its writer, if it lives, begins another."""

PARTS = 16
"""Parts of the index that one call looks through, so that it does not take long; the next call goes on."""

NOBODY = Key("", "")


@dataclass(slots=True)
class _Part:
    """What becomes of a part of the index."""

    number: int
    cas: int
    listed: Counter[bytes]
    forget: dict[bytes, int] = field(default_factory=dict)
    """Digests that leave it, with the tokens of their values."""

    def value(self) -> bytes:
        """Return it as it shall be: each key once."""
        return encode_index([digest for digest in self.listed if digest not in self.forget])

    def changes(self) -> bool:
        """Tell whether it has to be written."""
        return bool(self.forget) or self.listed.total() > len(self.listed)


class Trimmer:
    """What a handle does to forget."""

    def __init__(
        self,
        server: MemcachedClient,
        lives: MemcachedLives,
        losses: Losses,
        reader: Reader,
        writer: MemcachedWriter,
        healer: Healer,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
        self._server = server
        self._lives = lives
        self._losses = losses
        self._reader = reader
        self._writer = writer
        self._healer = healer
        self._clock = clock
        self._monotonic = monotonic
        self._next = 0
        self._heads: dict[str, tuple[int, float]] = {}
        """By writer, how far its log was and since when this handle knows it there."""

    async def trim(self, life: MemcachedLife) -> int:
        """Forget; return how many records and logs."""
        forgotten = await self._end_silent_logs(life)
        for _ in range(min(PARTS, life.root.shards)):
            self._next = (self._next + 1) % life.root.shards
            forgotten += await self._trim_part(life, self._next)
        return forgotten

    async def _end_silent_logs(self, life: MemcachedLife) -> int:
        now = self._monotonic()
        position, _ = await self._reader.position(life)
        self._heads = {
            writer: seen if (seen := self._heads.get(writer)) and seen[0] == head else (head, now)
            for writer, head in position.read.items()
        }
        silent = [
            writer
            for writer, (_, since) in self._heads.items()
            if now - since >= SILENT_SECONDS and not self._writer.is_mine(writer)
        ]
        if silent:
            await self._healer.end_logs(life, set(silent))
        return len(silent)

    async def _trim_part(self, life: MemcachedLife, number: int) -> int:
        part = await self._read(life, number)
        looks = await self._server.read_all([commands.look(life.names.value(digest)) for digest in part.listed])
        replies = dict(zip(part.listed, looks, strict=True))
        missing = [digest for digest, reply in replies.items() if reply.status != b"HD"]
        if missing:
            await self._losses.judge(life, missing)
            await self._plant(life, missing)
        removed = [digest for digest, reply in replies.items() if reply.flags == commands.REMOVED]
        if removed:
            await self._choose(life, part, removed)
        if not part.changes():
            return 0
        shard = commands.swap(life.names.shard(number), part.value(), part.cas)
        (reply,) = await self._server.read([shard])
        if reply.status != b"HD":
            return 0
        await self._server.read_all([commands.delete(life.names.value(one), cas) for one, cas in part.forget.items()])
        for digest in part.forget:
            life.known.pop(digest, None)
        return len(part.forget)

    async def _read(self, life: MemcachedLife, number: int) -> _Part:
        (reply,) = await self._server.read([commands.get(life.names.shard(number))])
        try:
            if reply.status == b"VA":
                return _Part(number, reply.cas, Counter(decode_index(reply.value)))
            reason = "a part of the index is missing"
        except Damaged as error:
            reason = str(error)
        raise await self._lives.lost(life, reason)

    async def _plant(self, life: MemcachedLife, digests: list[bytes]) -> None:
        """Where a key was listed and its value never written, say that there is none: it is forgotten like others."""
        value = encode_held(NOBODY, 0, b"", removed_at=self._clock.now())
        await self._server.read_all(
            [commands.add(life.names.value(digest), value, flags=commands.REMOVED) for digest in digests]
        )

    async def _choose(self, life: MemcachedLife, part: _Part, removed: list[bytes]) -> None:
        """Choose what was removed long enough ago, and bar it.

        What is listed twice may just be written anew by somebody slow: it waits once more.
        """
        now = self._clock.now()
        before = now - int(KEEP_REMOVED_SECONDS * SECOND)
        old: list[tuple[bytes, HeldItem, int]] = []
        replies = await self._server.read_all([commands.get(life.names.value(digest)) for digest in removed])
        for digest, reply in zip(removed, replies, strict=True):
            if reply.status != b"VA":
                continue
            try:
                held = decode_held(reply.value)
            except Damaged as error:
                raise await self._lives.lost(life, f"a value is damaged: {error}") from error
            if not held.record.body and held.removed_at <= before:
                old.append((digest, held, reply.cas))
        swaps = []
        for digest, held, cas in old:
            twice = part.listed[digest] > 1
            key, generation = held.record.key, held.record.generation if twice else 0
            value = encode_held(key, generation, b"", removed_at=now if twice else held.removed_at)
            swaps.append(commands.swap(life.names.value(digest), value, cas, flags=commands.REMOVED))
        for (digest, _, _), reply in zip(old, await self._server.read_all(swaps), strict=True):
            if reply.status == b"HD" and part.listed[digest] == 1:
                part.forget[digest] = reply.cas
