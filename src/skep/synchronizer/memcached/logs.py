"""Whose logs are followed: the root names them, and for a while the ends of those that ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from msgspec.structs import replace

from skep.synchronizer.memcached import commands
from skep.synchronizer.memcached.connection import MemcachedReply
from skep.synchronizer.memcached.items import Damaged, Root, decode_entry
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.server import MemcachedClient

KEEP_ENDED = 32
"""Ends of logs that the root keeps; who has missed more of them takes a snapshot."""

HEAD_SECONDS = 3600
"""The head of a log that ended stays for readers who have just read the root that named it."""


async def follow(lives: MemcachedLives, life: MemcachedLife, writer: str) -> None:
    """Have everybody follow a log; its head has to be there.

    Raises LifeEnded when the life is over.
    """
    await lives.change_root(
        life, lambda root: root if writer in root.writers else replace(root, writers=(*root.writers, writer))
    )


async def end(server: MemcachedClient, lives: MemcachedLives, life: MemcachedLife, writers: Set[str]) -> list[bytes]:
    """Have logs no longer followed, but to where they are; return what was written to them at the very moment.

    A writer that still lives finds, after its next entry, that its log is no longer followed, and begins another. What
    it wrote between our two looks at the head it believes to be told: that is for the caller to tell.
    Raises LifeEnded when the life is over.
    """
    names = {writer: life.names.head(writer) for writer in sorted(writers)}
    connection = await server.connection("writing")
    before = _numbers(names, await connection.execute([commands.get(name) for name in names.values()]))
    await lives.change_root(life, lambda root: _without(root, before))
    expired = [commands.expire(name, HEAD_SECONDS) for name in names.values()]
    after = _numbers(names, await connection.execute(expired))
    late = [(writer, number) for writer, head in after.items() for number in range(before.get(writer, 0) + 1, head + 1)]
    digests: list[bytes] = []
    for reply in await server.read_all([commands.get(life.names.entry(*entry)) for entry in late]):
        if reply.status == b"VA":
            try:
                digests += decode_entry(reply.value)[1]
            except Damaged as error:
                raise await lives.lost(life, f"a log is damaged: {error}") from error
    return digests


def _numbers(writers: Iterable[str], replies: list[MemcachedReply]) -> dict[str, int]:
    return {writer: int(reply.value) for writer, reply in zip(writers, replies, strict=True) if reply.value.isdigit()}


def _without(root: Root, ends: Mapping[str, int]) -> Root:
    ended = (*root.ended, *((writer, ends[writer]) for writer in root.writers if writer in ends))
    return replace(
        root,
        writers=tuple(writer for writer in root.writers if writer not in ends),
        ended=ended[-KEEP_ENDED:],
        forgotten=root.forgotten + max(0, len(ended) - KEEP_ENDED),
    )
