"""Epochs: which life of the data it is, how one begins, how it is found that one has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from skep.domain.errors import StorageUnavailable
from skep.domain.ids import new_uuid
from skep.synchronizer.base import Epoch
from skep.synchronizer.memcached import capacity, commands
from skep.synchronizer.memcached.connection import MemcachedConnection, MemcachedReply
from skep.synchronizer.memcached.items import (
    Damaged,
    ItemNames,
    Root,
    decode_index,
    decode_root,
    encode_index,
    encode_root,
    root_name,
)
from skep.synchronizer.memcached.server import MemcachedClient

MOST_TRIES = 50

log = structlog.get_logger("skep.synchronizer")


class LifeEnded(Exception):  # it tells what happened; no caller of the backend ever sees it
    """The epoch in which something was tried is over: it has to be tried in the current one."""


class KnownValue(NamedTuple):
    """What a handle knows of a value: enough to swap it without reading it first."""

    generation: int
    cas: int
    removed: bool


@dataclass(slots=True)
class MemcachedLife:
    """One epoch as one handle knows it."""

    root: Root
    value: bytes
    """The root as the server has it: while it is the same, so is the life. A token alone would not say it, since a
    server that starts anew counts its tokens from 1 again."""
    cas: int
    names: ItemNames
    known: dict[bytes, KnownValue] = field(default_factory=dict)
    """By digest; a wrong one is noticed by the server and costs a round trip."""
    complete: bool = False
    """Whether all records were read, so that one which is not known is news."""

    @property
    def epoch(self) -> Epoch:
        """The epoch's name."""
        return Epoch(self.root.epoch)

    def learn(self, digest: bytes, generation: int, cas: int, *, removed: bool) -> None:
        """Remember a value; replies of two connections may cross, the older one of them says nothing."""
        known = self.known.get(digest)
        if known is None or generation >= known.generation or known.removed:
            self.known[digest] = KnownValue(generation, cas, removed)


class MemcachedLives:
    """The current life, and the way into the next."""

    def __init__(self, server: MemcachedClient, name: str, expected_hosts: int) -> None:
        self._server = server
        self._name = name
        self._root = root_name(name)
        self._shards = capacity.shards_for(expected_hosts)
        self._life: MemcachedLife | None = None
        self._lock = asyncio.Lock()

    @property
    def watch(self) -> bytes:
        """The command whose reply `look` takes: it belongs to the end of whatever must have happened in one life."""
        return commands.get(self._root)

    async def current(self) -> MemcachedLife:
        """Return the life that this handle knows, without asking whether it is over."""
        return self._life or await self.join()

    async def join(self) -> MemcachedLife:
        """Ask which life it is; begin one where there is none."""
        return await self._join(unless=None)

    async def begin(self, expected: str) -> MemcachedLife:
        """Begin another life, unless it is no longer `expected`; return the current one."""
        return await self._join(unless=expected)

    def look(self, life: MemcachedLife, reply: MemcachedReply) -> None:
        """Compare the root with the life in which something was done.

        Raises LifeEnded when it is another one now, or when the root is gone.
        """
        if reply.status == b"VA" and reply.cas == life.cas and reply.value == life.value:
            return
        if reply.status != b"VA" or self._adopt(reply) is not life:
            if self._life is life:
                self._life = None
            raise LifeEnded

    async def lost(self, life: MemcachedLife, reason: str) -> LifeEnded:
        """Begin another life, since this one has lost something; return what its finder has to raise."""
        log.warning("memcached lost records: new epoch", reason=reason, epoch=life.epoch)
        await self.begin(life.epoch)
        return LifeEnded()

    async def change_root(self, life: MemcachedLife, change: Callable[[Root], Root]) -> None:
        """Change what the root says beside the epoch.

        Raises LifeEnded when the life is over.
        """
        connection = await self._server.connection("writing")
        (reply,) = await connection.execute([self.watch])
        for _ in range(MOST_TRIES):
            self.look(life, reply)
            root = change(life.root)
            if root == life.root:
                return
            # Only on the connection that told the token: another server process counts its tokens from 1 again.
            _, reply = await connection.execute([commands.swap(self._root, encode_root(root), life.cas), self.watch])
        raise StorageUnavailable("the root changes too fast to be written")

    def _adopt(self, reply: MemcachedReply) -> MemcachedLife:
        try:
            root = decode_root(reply.value)
        except Damaged as error:
            raise StorageUnavailable(f"memcached: {self._root.decode()}: {error}") from error
        life = self._life
        if life is None or life.epoch != root.epoch:
            life = self._life = MemcachedLife(
                root, reply.value, reply.cas, ItemNames(self._name, root.epoch, root.shards)
            )
        elif reply.cas > life.cas:  # a token never goes down while the server lives, and with the server ends the epoch
            life.root, life.value, life.cas = root, reply.value, reply.cas
        return life

    async def _join(self, unless: str | None) -> MemcachedLife:
        """Return the current life if there is one and it is not that of `unless`; otherwise make one."""
        async with self._lock:
            connection = await self._server.connection("reading")
            for _ in range(MOST_TRIES):
                (reply,) = await connection.execute([self.watch])
                if reply.status == b"VA":
                    life = self._adopt(reply)
                    if life.epoch != unless:
                        return life
                await self._make(connection, reply)
            raise StorageUnavailable("memcached does not store the root, or loses it repeatedly")

    async def _make(self, connection: MemcachedConnection, old: MemcachedReply) -> None:
        """Try to put another root in the place of the old one; the index first, so that a life always has its index.

        All on one connection: another server process, after a restart, counts its tokens from 1 again.
        """
        losses = capacity.losses(await connection.statistics())
        root = Root(epoch=new_uuid().replace("-", "")[:16], shards=self._shards, losses=losses)
        names = ItemNames(self._name, root.epoch, root.shards)
        shards = [names.shard(number) for number in range(root.shards)]
        made = await connection.execute([commands.add(shard, encode_index([])) for shard in shards])
        if any(reply.status != b"HD" for reply in made):
            raise StorageUnavailable("memcached has no room for an index")
        value, replaces = encode_root(root), old.status == b"VA"
        put = commands.swap(self._root, value, old.cas) if replaces else commands.add(self._root, value)
        (reply,) = await connection.execute([put])
        if reply.status == b"ERROR":
            raise StorageUnavailable(f"memcached: {reply.value.decode(errors='replace')}")
        if reply.status != b"HD":
            await connection.execute([commands.delete(shard) for shard in shards])
        elif replaces:
            with contextlib.suppress(Damaged):  # nobody needs what cannot be read any more
                await self._sweep(decode_root(old.value))

    async def _sweep(self, root: Root) -> None:
        """Remove what the ended life has stored. What is missed here gives way when the server needs its place."""
        names = ItemNames(self._name, root.epoch, root.shards)
        shards = [names.shard(number) for number in range(root.shards)]
        for shard in await self._server.read_all([commands.get(shard) for shard in shards]):
            listed = set(decode_index(shard.value)) if shard.status == b"VA" else set()
            await self._server.read_all([commands.delete(names.value(digest)) for digest in listed])
        heads = [commands.delete(names.head(writer)) for writer in root.writers]
        await self._server.read_all([*(commands.delete(shard) for shard in shards), *heads])
