"""What no writer told: found by looking, and told then.

A writer that was cut off has left an entry in its log after the head: what it names is told by whoever finds it. Beside
that every handle that follows changes walks through the whole index, so that nothing stays hidden whatever happened,
and whatever was lost is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

import structlog

from skep.synchronizer.memcached import commands, logs
from skep.synchronizer.memcached.items import Damaged, decode_entry
from skep.synchronizer.memcached.lives import MemcachedLife, MemcachedLives
from skep.synchronizer.memcached.losses import Losses
from skep.synchronizer.memcached.reading import Reader
from skep.synchronizer.memcached.server import MemcachedClient
from skep.synchronizer.memcached.writing import MemcachedWriter

LOOK_SECONDS = 1.0
"""How often a handle looks after writers that were cut off, and walks a bit further."""

WALK_SECONDS = 120
"""How long a walk through the whole index takes."""

CUT_OFF_SECONDS = 10.0
"""A log whose last entry stays unfinished for so long (a call takes half of it at most) is no longer followed."""

HURRY_SECONDS = 10.0
"""When the server says that it has lost items, all of the index is walked at once, not more often than this."""

log = structlog.get_logger("skep.synchronizer")
Entry = tuple[str, int]


class Healer:
    """Looks now and then, on the way of a reader."""

    def __init__(
        self,
        server: MemcachedClient,
        lives: MemcachedLives,
        losses: Losses,
        reader: Reader,
        writer: MemcachedWriter,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._server = server
        self._lives = lives
        self._reader = reader
        self._writer = writer
        self._losses = losses
        self._monotonic = monotonic
        self._life: MemcachedLife | None = None
        self._due = monotonic() + LOOK_SECONDS
        self._begin(None)

    def _begin(self, life: MemcachedLife | None) -> None:
        self._life = life
        self._unfinished: dict[Entry, tuple[float, bool]] = {}
        """Entries after heads: since when they are known, whether they were told."""
        self._next = 0
        """Part of the index to be walked next."""
        self._unknown: dict[bytes, int] = {}
        """Tokens that the last look did not know."""
        self._counted = life.root.losses if life else 0
        self._hurried = self._monotonic() - HURRY_SECONDS

    async def look_if_due(self, life: MemcachedLife) -> None:
        """Look, unless it was just done.

        Raises LifeEnded when something was lost.
        """
        if self._monotonic() >= self._due:
            self._due = self._monotonic() + LOOK_SECONDS
            await self.look(life)

    async def look(self, life: MemcachedLife) -> None:
        """Look once.

        Raises LifeEnded when something was lost.
        """
        if life is not self._life:
            self._begin(life)
        await self._look_after_writers(life)
        await self._walk(life, await self._parts(life))

    async def end_logs(self, life: MemcachedLife, writers: Set[str]) -> None:
        """Have logs no longer followed; what they have not told is told first.

        Raises LifeEnded when the life is over.
        """
        left = [named for (writer, _), named in (await self._after_heads(life)).items() if writer in writers]
        digests = [digest for named in left for digest in named]
        if digests:
            await self._writer.tell(life, digests)
        late = await logs.end(self._server, self._lives, life, writers)
        if late:
            await self._writer.tell(life, late)

    async def _look_after_writers(self, life: MemcachedLife) -> None:
        """Tell what entries after heads name when they are seen for the second time; later end the log."""
        now = self._monotonic()
        found = await self._after_heads(life)
        before, self._unfinished = self._unfinished, {}
        cut_off: set[str] = set()
        for entry, named in found.items():
            since, told = before.get(entry, (now, False))
            if entry in before and not told:
                log.info("records announced for an interrupted writer", writer=entry[0], records=len(named))
                await self._writer.tell(life, named)
            self._unfinished[entry] = (since, entry in before)
            if now - since >= CUT_OFF_SECONDS and not self._writer.is_mine(entry[0]):
                cut_off.add(entry[0])
        if cut_off:
            await self.end_logs(life, cut_off)

    async def _after_heads(self, life: MemcachedLife) -> dict[Entry, list[bytes]]:
        position, _ = await self._reader.position(life)
        entries = [(writer, head + 1) for writer, head in position.read.items()]
        replies = await self._server.read_all([commands.get(life.names.entry(*entry)) for entry in entries])
        found = {}
        for entry, reply in zip(entries, replies, strict=True):
            if reply.status != b"VA":
                continue
            try:
                number, named = decode_entry(reply.value)
            except Damaged as error:
                log.error("entry of a log not read", writer=entry[0], error=str(error))
                continue
            if number == entry[1]:
                found[entry] = named
        return found

    async def _parts(self, life: MemcachedLife) -> range:
        """Return which parts of the index are to be walked now."""
        losses = await self._server.losses()
        now = self._monotonic()
        if losses != self._counted and now - self._hurried >= HURRY_SECONDS:
            log.warning("memcached lost items: it is too small, or other clients fill it", lost=losses - self._counted)
            self._counted, self._hurried = losses, now
            return range(life.root.shards)
        first = self._next % life.root.shards
        last = min(life.root.shards, first + -(-life.root.shards // WALK_SECONDS))
        self._next = last
        return range(first, last)

    async def _walk(self, life: MemcachedLife, parts: range) -> None:
        """Compare tokens with those that are known; what two looks did not know is told."""
        listed = {digest for part in await self._losses.index(life, parts) for digest in part}
        suspects = [*listed, *(digest for digest in self._unknown if digest not in listed)]
        tokens = dict(zip(suspects, await self._tokens(life, suspects), strict=True))
        missing = [digest for digest in listed if not tokens[digest]]
        if missing:
            seen = [digest for digest in missing if (known := life.known.get(digest)) and not known.removed]
            await self._losses.judge(life, seen or missing, surely=bool(seen))
        if not life.complete:
            return
        unknown = {digest: token for digest, token in tokens.items() if token and not _knows(life, digest, token)}
        hidden = {digest for digest, token in unknown.items() if self._unknown.get(digest) == token}
        if hidden:
            log.info("records announced that no log named", records=len(hidden))
            await self._writer.tell(life, list(hidden))
        self._unknown = {digest: token for digest, token in unknown.items() if digest not in hidden}

    async def _tokens(self, life: MemcachedLife, digests: Sequence[bytes]) -> list[int]:
        """Return the token of each value; 0: there is none."""
        looks = [commands.look(life.names.value(digest)) for digest in digests]
        return [reply.cas for reply in await self._server.read_all(looks)]


def _knows(life: MemcachedLife, digest: bytes, token: int) -> bool:
    known = life.known.get(digest)
    return known is not None and known.cas == token
