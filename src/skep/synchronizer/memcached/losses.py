"""Whether something that is missing was lost: then another epoch begins, and everything is told again."""

from __future__ import annotations

from collections.abc import Sequence

from skep.synchronizer.memcached import commands
from skep.synchronizer.memcached.items import Damaged, decode_index
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.server import MemcachedClient

LOOK_AGAIN_SECONDS = (0.02, 0.1, 0.5)
"""A new key is listed a moment before its value is there; so often it is looked at before a value counts as lost."""


class Losses:
    """Judges what is missing."""

    def __init__(self, server: MemcachedClient, lives: MemcachedLives) -> None:
        self._server = server
        self._lives = lives

    async def judge(self, life: MemcachedLife, digests: Sequence[bytes], *, surely: bool = False) -> None:
        """Judge values that are not there. A value is lost when its key is listed, and either somebody has seen it
        (`surely`) or the server has lost items since the epoch began. A key whose value was never written, since its
        writer was cut off, is listed too: it counts as absent.

        Raises LifeEnded when one was lost; another life has begun then.
        """
        missing = list(digests)
        if not surely and await self._server.losses() == life.root.losses:
            return
        for seconds in (0.0, *LOOK_AGAIN_SECONDS):
            if seconds:
                await self._server.pause(seconds)
            listed = await self._listed(life, missing)
            values = await self._server.read_all([commands.look(life.names.value(digest)) for digest in listed])
            missing = [digest for digest, reply in zip(listed, values, strict=True) if reply.status != b"HD"]
            if not missing:
                return
        raise await self._lives.lost(life, f"{len(missing)} listed values are missing")

    async def index(self, life: MemcachedLife, numbers: Sequence[int]) -> list[list[bytes]]:
        """Read parts of the index.

        Raises LifeEnded when one is gone or damaged; another life has begun then.
        """
        replies = await self._server.read_all([commands.get(life.names.shard(number)) for number in numbers])
        try:
            if all(reply.status == b"VA" for reply in replies):
                return [decode_index(reply.value) for reply in replies]
            reason = "a part of the index is missing"
        except Damaged as error:
            reason = str(error)
        raise await self._lives.lost(life, reason)

    async def _listed(self, life: MemcachedLife, digests: list[bytes]) -> list[bytes]:
        shards = sorted({life.names.shard_of(digest) for digest in digests})
        listed = {digest for part in await self.index(life, shards) for digest in part}
        return [digest for digest in digests if digest in listed]
