"""Programs that are sent events: in their order, each at least once, signed, and again until they take them.

One super conductor tells a webhook at a time; another takes over when it has not said for a while that it goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from functools import partial
from time import monotonic
from typing import Any

import httpx
import msgspec

from skep.config.events import WebhookSettings
from skep.database import Connection, clocks
from skep.database.api import event_webhooks, events
from skep.database.api.event_views import shown_event, whole_event
from skep.database.api.event_webhooks import WebhookPlace
from skep.database.api.events import EventsWanted, Page
from skep.domain.clock import SECOND
from skep.domain.errors import Withdrawn
from skep.super_conductor.parts import Parts
from skep.telemetry.logs import get_logger

LEASE_SECONDS = 30
"""Beyond the time of one request: for so long a super conductor tells a webhook without saying so again."""
FIRST_PAUSE, LONGEST_PAUSE = 1, 300
"""Seconds before a request is sent again; each is twice the one before."""
SIGNATURE = "X-Skep-Signature"
TIMESTAMP = "X-Skep-Timestamp"

log = get_logger(__name__)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return how a request is signed: HMAC-SHA256 over its timestamp, a point and its body, in hexadecimal."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """One webhook, told by `run` again and again."""

    def __init__(self, parts: Parts, settings: WebhookSettings) -> None:
        self.name = settings.name
        self._parts = parts
        self._settings = settings
        self._client: httpx.AsyncClient | None = None
        self._deadline: asyncio.Timeout | None = None
        """Of the request under way."""
        self._whole_since: float | None = None
        """When (monotonic seconds) it was last known to have everything; None: another super conductor tells it."""

    async def run(self) -> bool:
        """Tell it of one page; True when there may be more."""
        place, now = await self._parts.api.read(self._place)
        more = False
        if place.holder != self._parts.owner and place.until > now:
            self._whole_since = None
        elif place.next_at <= now:
            more = await self._tell(place)
        since = self._whole_since
        self._parts.steps.metrics.webhook_lag.labels(self.name).set(0 if since is None else monotonic() - since)
        return more

    def hurry(self) -> None:
        """Wait for no answer any more: what it says to the request under way is not heard."""
        if self._deadline is not None:
            self._deadline.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client.aclose()

    def _place(self, connection: Connection) -> tuple[WebhookPlace, int]:
        """Return where it stands, and the time by the database."""
        found = event_webhooks.find(connection, self.name)
        return found or event_webhooks.NEW, clocks.now(connection, self._parts.clock)

    def _hold(self, connection: Connection) -> WebhookPlace | None:
        """Have this super conductor tell it; None where another one does by now."""
        now = clocks.now(connection, self._parts.clock)
        until = now + round((LEASE_SECONDS + self._settings.timeout) * SECOND)
        held = event_webhooks.hold(connection, self.name, self._parts.owner, now, until)
        return event_webhooks.find(connection, self.name) if held else None

    async def _tell(self, place: WebhookPlace) -> bool:
        """Tell it of what is behind its place. Only who holds it sends, and only who holds it notes what it took."""
        began = monotonic()
        if self._whole_since is None:
            self._whole_since = began
        page, missed = (None, False) if not place.cursor else await self._read(place)
        if page is not None and page.next == place.cursor:
            self._whole_since = began
            return False
        held = await self._parts.api.write(self._hold)
        if page is None or held is None or held.cursor != place.cursor:
            return held is not None
        refused = await self._post(page, missed=missed) if page.events or missed else None
        if refused is not None:
            await self._parts.api.write(partial(self._fail, failures=place.failures + 1))
            log.warning("webhook not told", webhook=self.name, failures=place.failures + 1, error=refused)
            return False
        name, owner = self.name, self._parts.owner
        taken = await self._parts.api.write(partial(event_webhooks.advance, name=name, owner=owner, cursor=page.next))
        if taken and not page.more:
            self._whole_since = began
        return taken and page.more

    async def _read(self, place: WebhookPlace) -> tuple[Page, bool]:
        """Return what it is to be told next, and whether it has missed something before that."""
        settings = self._settings
        wanted = EventsWanted(
            after=place.cursor or None,
            limit=settings.batch,
            types=frozenset(settings.types),
            server=None,
            project=settings.project or None,
        )
        try:
            return await self._parts.api.read(partial(events.page, wanted=wanted)), False
        except Withdrawn as error:
            log.error("webhook missed events", webhook=settings.name, error=str(error))
            anew = msgspec.structs.replace(wanted, after=None)
            return await self._parts.api.read(partial(events.page, wanted=anew)), True

    def _fail(self, connection: Connection, failures: int) -> None:
        pause = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_PAUSE)
        at = clocks.now(connection, self._parts.clock) + round(pause * SECOND)
        event_webhooks.fail(connection, self.name, self._parts.owner, failures, at)

    async def _post(self, page: Page, *, missed: bool) -> str | None:
        """Send a page. Return why it was not taken; None: it was."""
        settings = self._settings
        told: list[Any] = [whole_event(one, page) if settings.whole else shown_event(one) for one in page.events]
        body = msgspec.json.encode({"webhook": settings.name, "missed": missed, "events": told, "next": page.next})
        timestamp = str(self._parts.clock.now() // SECOND)
        headers = {
            "Content-Type": "application/json",
            TIMESTAMP: timestamp,
            SIGNATURE: signature(settings.secret, timestamp, body),
        }
        count = self._parts.steps.metrics.webhook_requests
        try:
            async with asyncio.timeout(settings.timeout) as self._deadline:
                # What it says besides the status is of no interest, however much it is.
                async with self._opened().stream("POST", settings.url, content=body, headers=headers) as answer:
                    refused = None if answer.is_success else f"it answered {answer.status_code}"
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            refused = str(error) or type(error).__name__
        except Exception as error:
            # Whatever it is, it is a request that was not taken: the next one waits its time.
            log.exception("webhook request failed", webhook=settings.name)
            refused = str(error) or type(error).__name__
        finally:
            self._deadline = None
        count.labels(settings.name, "taken" if refused is None else "refused").inc()
        return refused

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(), trust_env=False, timeout=self._settings.timeout
            )
        return self._client
