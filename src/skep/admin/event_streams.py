"""Answers that go on: events as server-sent events, as long as the reader and the process are there.

The form is that of the HTML standard (section "Server-sent events"): a reader that comes again says in `Last-Event-ID`
how far it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from skep.config.events import EventsSettings
from skep.database.api import events
from skep.database.api.events import Page, StoredEvent
from skep.database.engine import Database
from skep.domain.errors import SkepError, StorageUnavailable, TooManyRequests, Withdrawn
from skep.telemetry.logs import get_logger

LAST_EVENT = "Last-Event-ID"
"""The header by which a reader says how far it was."""
MEDIA_TYPE = "text/event-stream"
POLL_SECONDS = 0.5
"""Between two looks at the end of the log, while there is a stream."""
FULL_SECONDS = 10
"""After which who got no stream may ask again."""
COMMENT = ":\n\n"
"""Tells a reader, and what stands between, that the stream goes on."""

log = get_logger(__name__)

ReadPage = Callable[[str | None], Awaitable[Page]]
"""Reads the page behind a cursor."""
Show = Callable[[StoredEvent, Page], Mapping[str, object]]


class EventStreams:
    """The streams of a process. One look at the end of the log serves them all."""

    def __init__(self, database: Database, settings: EventsSettings) -> None:
        """Take the API database."""
        self._database = database
        self._settings = settings
        self._open: Counter[str] = Counter()
        """Streams by whose they are."""
        self._end = 0
        """Serial of the last event that was seen."""
        self._news = asyncio.Event()
        """Set, and replaced, when there are events behind it."""
        self._closing = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many are open."""
        return self._open.total()

    async def answer(self, whose: str, after: str | None, read: ReadPage, show: Show) -> StreamingResponse:
        """Return the answer that tells of all events behind a cursor, as they come.

        Raises TooManyRequests, and what `read` raises of the first page.
        """
        mine, all_ = self._settings.streams_of_project, self._settings.streams
        if self._closing or self._open[whose] >= mine or self.count >= all_:
            raise TooManyRequests.until(FULL_SECONDS)
        self._open[whose] += 1
        news = self._news
        try:
            first = await read(after)
        except BaseException:
            self._leave(whose)
            raise
        return _Stream(self._told(first, news, read, show), leave=lambda: self._leave(whose))

    async def close(self) -> None:
        """End all streams; there are no new ones."""
        self._closing = True
        self._news.set()
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    def _leave(self, whose: str) -> None:
        self._open[whose] -= 1
        if not self._open[whose]:
            del self._open[whose]

    async def _told(self, page: Page, news: asyncio.Event, read: ReadPage, show: Show) -> AsyncIterator[str]:
        """Tell of pages one after the other; `news` is set when there is more than the first has."""
        now = asyncio.get_running_loop().time
        ends = now() + self._settings.stream_seconds
        while True:
            for one in page.events:
                yield f"id: {one.cursor}\nevent: {one.type}\ndata: {_json(show(one, page))}\n\n"
            # Also of events that the reader does not want: it need not have them looked at again.
            yield f"id: {page.next}\n\n"
            while not page.more and not await self._is_news(news, ends):
                if self._closing or now() >= ends:
                    return
                yield COMMENT
            if self._closing or now() >= ends:
                return
            news = self._news
            try:
                page = await read(page.next)
            except (Withdrawn, StorageUnavailable) as error:
                # The reader comes again, and a status tells it.
                log.info("stream of events ended", reason=str(error))
                return

    async def _is_news(self, news: asyncio.Event, ends: float) -> bool:
        """Wait until there are events; False where there is none until it has to be said that the stream goes on."""
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look(), name="end of the event log")
        left = ends - asyncio.get_running_loop().time()
        try:
            await asyncio.wait_for(news.wait(), max(0.0, min(left, self._settings.stream_heartbeat_seconds)))
        except TimeoutError:
            return False
        return not self._closing

    async def _look(self) -> None:
        """Look at the end of the log as long as there is a stream."""
        while self.count:
            try:
                end = await self._database.read(events.last)
            except SkepError as error:
                log.warning("the event log cannot be read", error=str(error))
            else:
                if end != self._end:
                    self._end = end
                    news, self._news = self._news, asyncio.Event()
                    news.set()
            await asyncio.sleep(POLL_SECONDS)


class _Stream(StreamingResponse):
    """One stream, of which it is said when it is left, however that came."""

    def __init__(self, told: AsyncIterator[str], leave: Callable[[], None]) -> None:
        # Nothing between may keep what is told, or keep it back.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(told, media_type=MEDIA_TYPE, headers=headers)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell it until it is left."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _json(shown: Mapping[str, object]) -> str:
    return msgspec.json.encode(shown).decode()


def is_wanted(accept: str) -> bool:
    """Tell whether a reader accepts a stream by name: `*/*` is no wish for one, and a weight of zero says no (RFC 9110,
    12.4.2).
    """
    return any(_names_stream(*one.split(";")) for one in accept.lower().split(","))


def _names_stream(media_type: str, *parameters: str) -> bool:
    weights = [value.strip() for name, _, value in (one.partition("=") for one in parameters) if name.strip() == "q"]
    return media_type.strip() == MEDIA_TYPE and not any(one.startswith("0") and not one.strip("0.") for one in weights)
