"""Snapshots, and changes after a cursor: how far the reader has followed the log of each writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from skep.synchronizer.base import Changes, Cursor, CursorTooOld, Record, Snapshot
from skep.synchronizer.memcached import commands
from skep.synchronizer.memcached.connection import MemcachedReply
from skep.synchronizer.memcached.items import RING, Damaged, Root, decode_entry, decode_held
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.losses import Losses
from skep.synchronizer.memcached.server import MemcachedClient


@dataclass(frozen=True, slots=True)
class MemcachedPosition:
    """A cursor, taken apart."""

    epoch: str
    endings: int = 0
    """How many logs had ended; what they tell was read."""
    read: Mapping[str, int] = field(default_factory=dict)
    """By writer, the latest entry of its log that was read."""

    def cursor(self) -> Cursor:
        """Return it as readers keep it."""
        read = ",".join(f"{writer}.{number}" for writer, number in self.read.items())
        return Cursor(f"{self.epoch}/{self.endings}/{read}")

    @staticmethod
    def parse(cursor: Cursor) -> MemcachedPosition | None:
        """Read a cursor; None when it is not one of ours."""
        parts = cursor.split("/")
        if len(parts) != 3 or not _is_number(parts[1]):
            return None
        read = {}
        for part in parts[2].split(",") if parts[2] else ():
            writer, _, number = part.partition(".")
            if not writer or not _is_number(number):
                return None
            read[writer] = int(number)
        return MemcachedPosition(parts[0], int(parts[1]), read)

    def unread(self, now: MemcachedPosition, ended: Sequence[tuple[str, int]]) -> list[tuple[str, int]] | None:
        """Return the entries between this position and a later one, between which these logs have ended.

        None when they are no longer kept, or when this position cannot have been.
        """
        heads = {**dict(ended), **now.read}
        if not set(self.read) <= set(heads):
            return None
        entries: list[tuple[str, int]] = []
        for writer, head in heads.items():
            read = self.read.get(writer, 0)
            if not head - RING < read <= head:
                return None
            entries += [(writer, number) for number in range(read + 1, head + 1)]
        return entries


class Reader:
    """What a handle does to read."""

    def __init__(self, server: MemcachedClient, lives: MemcachedLives, losses: Losses) -> None:
        self._server = server
        self._lives = lives
        self._losses = losses

    async def snapshot(self, life: MemcachedLife) -> Snapshot:
        """Read all records; the logs' heads first, so that whatever changes meanwhile is told after the cursor."""
        position, _ = await self.position(life)
        parts = await self._losses.index(life, range(life.root.shards))
        records = await self.values(life, list(dict.fromkeys(digest for part in parts for digest in part)))
        life.complete = True
        living = tuple(record for record in records if record.body)
        return Snapshot(epoch=life.epoch, records=living, cursor=position.cursor())

    async def changes(self, life: MemcachedLife, position: MemcachedPosition) -> Changes | CursorTooOld:
        """Read what the logs tell after a position of this life."""
        now, root = await self.position(life)
        if not root.forgotten <= position.endings <= root.endings:
            return CursorTooOld()
        entries = position.unread(now, root.ended[position.endings - root.forgotten :])
        digests = None if entries is None else await self._told(life, entries)
        if digests is None:
            return CursorTooOld()
        records = await self.values(life, digests) if digests else []
        told = tuple(record for record in records if record.generation)
        return Changes(records=told, cursor=now.cursor())

    async def position(self, life: MemcachedLife) -> tuple[MemcachedPosition, Root]:
        """Return how far the logs have come, and the root that says which they are.

        Raises LifeEnded when the life is over.
        """
        known = life.root.writers
        reply, *replies = await self._server.read([self._lives.watch, *_heads(life, known)])
        self._lives.look(life, reply)
        root = life.root
        heads = dict(zip(known, replies, strict=True))
        new = [writer for writer in root.writers if writer not in heads]
        if new:
            heads.update(zip(new, await self._server.read(list(_heads(life, new))), strict=True))
        read = {writer: await self._head(life, heads[writer]) for writer in root.writers}
        return MemcachedPosition(life.epoch, root.endings, read), root

    async def values(self, life: MemcachedLife, digests: list[bytes]) -> list[Record]:
        """Read values, removed ones too; those that are absent are left out.

        Raises LifeEnded when one was lost.
        """
        records: list[Record] = []
        missing: list[bytes] = []
        rest = iter(digests)
        gets = [commands.get(life.names.value(digest)) for digest in digests]
        async for replies in self._server.stream(gets):
            for reply in replies:
                digest = next(rest)
                if reply.status != b"VA":
                    missing.append(digest)
                    continue
                try:
                    record, _ = decode_held(reply.value)
                except Damaged as error:
                    raise await self._lives.lost(life, f"a value is damaged: {error}") from error
                life.learn(digest, record.generation, reply.cas, removed=not record.body)
                records.append(record)
        if missing:
            await self._losses.judge(life, missing)
        return records

    async def _head(self, life: MemcachedLife, reply: MemcachedReply) -> int:
        if reply.status == b"VA" and reply.value.isdigit():
            return int(reply.value)
        raise await self._lives.lost(life, "the head of a log is missing")

    async def _told(self, life: MemcachedLife, entries: list[tuple[str, int]]) -> list[bytes] | None:
        """Return the digests that entries of logs name, each once; None when an entry is no longer there."""
        digests: dict[bytes, None] = {}
        replies = await self._server.read_all([commands.get(life.names.entry(*entry)) for entry in entries])
        for (_, number), reply in zip(entries, replies, strict=True):
            if reply.status != b"VA":
                return None
            try:
                found, named = decode_entry(reply.value)
            except Damaged as error:
                raise await self._lives.lost(life, f"a log is damaged: {error}") from error
            if found != number:
                return None
            digests.update(dict.fromkeys(named))
        return list(digests)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _heads(life: MemcachedLife, writers: Iterable[str]) -> Iterable[bytes]:
    return (commands.get(life.names.head(writer)) for writer in writers)
