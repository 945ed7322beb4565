"""What a handle holds of its server: connection, current life, the feed of changes; each made anew when lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from nats.aio.msg import Msg

from skep.config.sign_ins import SignIns
from skep.domain.errors import SkepError, Unavailable, Unreachable
from skep.synchronizer.base import Epoch
from skep.synchronizer.nats_consumer import StreamGoneError, state_of
from skep.synchronizer.nats_feed import Feed, FeedKnowledge
from skep.synchronizer.nats_frames import NatsLife
from skep.synchronizer.nats_link import NatsLink, NatsServers
from skep.synchronizer.nats_lives import NatsLives

WATCH_SECONDS = 1.0
"""How often a handle looks whether its epoch is still the current one, and its feed alive."""
RETRY_SECONDS = 0.1
"""How long to wait after a look that failed."""

log = structlog.get_logger("skep.synchronizer")


@dataclass
class HeldLife:
    """What a handle holds of one life."""

    life: NatsLife
    knowledge: FeedKnowledge
    feed: Feed | None = None


class NatsSession:
    """One handle's dealings with the server, from `open` to `close`."""

    def __init__(self, server: NatsServers, lives: NatsLives, *, call_seconds: float, keep_changes: int) -> None:
        """Remember where the server is."""
        self._server = server
        self._lives = lives
        self._call_seconds = call_seconds
        self._keep_changes = keep_changes
        self._link: NatsLink | None = None
        self.sign_ins = SignIns(lambda: server.sign_in_version)
        self._held: HeldLife | None = None
        self._settled = False
        """Whether what is held was the current life when we looked last, over the connection that we have."""
        self._connecting = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._following = asyncio.Lock()
        self._nudge = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        """Connections that broke, or that others follow, being closed."""
        self._closed = True

    def open(self) -> None:
        """Connect from now on, whenever the connection is needed."""
        self._closed = False

    def watch(self) -> None:
        """Keep connection, life and feed current, in the background."""
        self._watch = asyncio.create_task(self._watch_over())

    async def close(self) -> None:
        """Disconnect; whoever waits is told."""
        self._closed = True
        self._settled = False
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
        if self._leaving:
            await asyncio.wait(self._leaving)

    @contextlib.asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Raise Unreachable when what is done within takes longer than a call may."""
        try:
            async with asyncio.timeout(self._call_seconds):
                yield
        except TimeoutError as error:
            raise Unreachable(f"synchronizer: NATS did not answer within {self._call_seconds:g} s") from error

    async def connected(self) -> NatsLink:
        """Return the connection; connect where there is none. Raises Unreachable."""
        async with self._connecting:
            self.check_open()
            if self._link is None or not self._link.alive:
                broken, self._link = self._link, None
                if broken is not None:
                    self._leave(broken)
                self._link = await self._connect()
            return self._link

    def _leave(self, broken: NatsLink) -> None:
        """Close a connection that broke, and meanwhile go on: a client may take seconds to let go of it."""
        self._let_go(broken.close())

    def _let_go(self, ending: Coroutine[Any, Any, None]) -> None:
        leaving = asyncio.create_task(ending)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _connect(self) -> NatsLink:
        self.sign_ins.begin()
        link = await NatsLink.connect(self._server, self.unsettle, answer_seconds=self._call_seconds)
        try:
            await link.subscribe(self._lives.subject, self._take_hint)
            self.check_open()  # `close` may have come meanwhile, and found no connection to end
        except BaseException:
            await link.close()
            raise
        self.sign_ins.succeed()
        return link

    @contextlib.asynccontextmanager
    async def apart(self) -> AsyncIterator[NatsLink]:
        """Have another connection for a while: a long answer would hold up all others on the same one."""
        self.check_open()
        try:
            link = await NatsLink.connect(self._server, lambda: None, answer_seconds=self._call_seconds)
        except Unreachable as error:
            # A server that reads its configuration anew cuts off who is just signing in.
            if not isinstance(error.__cause__, ConnectionError):
                raise
            link = await NatsLink.connect(self._server, lambda: None, answer_seconds=self._call_seconds)
        try:
            yield link
        finally:
            await link.close()

    async def ready(self) -> tuple[NatsLink, HeldLife]:
        """Return connection and current life; look only where there is reason to."""
        if not self._settled:
            async with self._looking:
                if not self._settled:
                    await self._look_now()
        self.check_open()
        if self._link is None or self._held is None:
            raise Unreachable("synchronizer: the connection to NATS ended")
        return self._link, self._held

    async def look(self) -> HeldLife:
        """Look which life is the current one, and hold it."""
        async with self._looking:
            return await self._look_now()

    async def end_life(self, expected: Epoch) -> HeldLife:
        """Begin another life, unless `expected` is no longer the current one; hold the current one."""
        async with self._looking:
            return await self._enter(await self._lives.end(await self.connected(), expected))

    async def fed(self, held: HeldLife, sequence: int) -> Feed:
        """Return the feed of a life, which follows the stream; the first one begins after a sequence."""
        async with self._following:
            link = await self.connected()
            if held.feed is None:
                # A cursor may come from anybody: nothing is there yet after the last message.
                sequence = min(sequence, (await state_of(link, held.life.stream)).last_seq)
                held.feed = Feed(held.knowledge, sequence, keep=self._keep_changes)
            if not held.feed.alive:
                await held.feed.follow(link)
            return held.feed

    def holds(self, held: HeldLife) -> bool:
        """Whether a life is still the one that is held; raises Unavailable after `close`."""
        self.check_open()
        return self._held is held

    def check_open(self) -> None:
        """Raise Unavailable after `close`."""
        if self._closed:
            raise Unavailable("the synchronizer's backend is closed")

    def unsettle(self) -> None:
        """Look again before anything else is done: the connection broke, or another life may have begun."""
        self._settled = False
        self._nudge.set()

    async def _look_now(self) -> HeldLife:
        link = await self.connected()
        return await self._enter(await self._lives.current(link))

    async def _enter(self, life: NatsLife) -> HeldLife:
        """Hold a life, and let go of another that was held."""
        before = self._held
        if before is not None and before.life == life:
            held = before
        else:
            held = self._held = HeldLife(life, FeedKnowledge(life))
            if before is not None and before.feed is not None:
                before.feed.wake()
                await before.feed.end()
        self._settled = self._link is not None and self._link.alive and not self._closed
        return held

    async def _follow_sign_in(self, link: NatsLink) -> NatsLink:
        """Return the connection that goes on: another one, once what we sign in by has been replaced.

        What was asked over the one before is still answered.
        """
        async with self._connecting:
            if self._link is not link or not link.alive or not self.sign_ins.is_due:
                return link
            try:
                async with self.in_time():
                    self._link = await self._connect()
            except Exception as error:
                self.sign_ins.fail()
                unforeseen = None if isinstance(error, SkepError) else error
                log.warning(
                    "NATS refused the new sign-in, the connection was kept",
                    error=str(error),
                    exc_info=unforeseen,
                )
                return link
        if self._held is not None and self._held.feed is not None:
            await self._held.feed.end()  # the look that comes now has it follow the new connection
        self._let_go(link.leave())
        log.info("the synchronizer's connection uses a new sign-in")
        return self._link

    async def _take_hint(self, _message: Msg) -> None:
        self.unsettle()

    async def _watch_over(self) -> None:
        """Keep the feed alive for those who wait, and the epoch current for those who only write."""
        serves = True
        # A cancellation may get lost in the client, which waits by `asyncio.wait_for`: the task still counts it.
        watch = asyncio.current_task()
        assert watch is not None
        while not self._closed and not watch.cancelling():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS if serves else RETRY_SECONDS):
                    await self._nudge.wait()
            self._nudge.clear()
            link = self._link
            if link is not None:
                link.check()
                link = await self._follow_sign_in(link)
            received = link.received if link is not None else 0
            try:
                async with self.in_time():
                    held = await self.look()
                    if held.feed is not None:
                        await self.fed(held, held.feed.position)
            except StreamGoneError:
                self.unsettle()
            except SkepError as error:
                if serves:
                    log.warning("the synchronizer's server did not answer", error=str(error))
                serves = False
                if link is not None and link.received == received:
                    link.drop()  # nothing came in, not even an answer to our look
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if not serves:
                    log.info("the synchronizer's server answered again")
                serves = True
