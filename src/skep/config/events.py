"""Settings of the event log, and of who is told of it."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from skep.config.base import Section
from skep.domain.server_events import TYPES

SHORTEST_SECRET = 16


_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE)
MOST_OF_NAME = 253


def _wrong_address(url: str) -> str | None:
    """Return what was expected of an address to which requests can be sent; None: it is one."""
    if any(one.isspace() or not one.isprintable() for one in url):
        return "no spaces and nothing invisible"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "http://HOST/... or https://HOST/..., an IPv6 address as HOST within [ and ]"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return "http://HOST/... or https://HOST/... without a user"
    if "#" in url:
        return "no fragment (#), which is never sent"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return "a port from 1 to 65535"
    return None if _is_host(parts.hostname) else "the name of a host or its IP address after http:// or https://"


def _is_host(name: str) -> bool:
    """Tell whether a host may have this name, also one that is written in letters of any language."""
    if ":" in name:
        # Within brackets: `urlsplit` has read it.
        return True
    try:
        written = name.encode("idna").decode()
        labels = written.removesuffix(".").split(".")
        encoded = [one[4:].encode().decode("punycode") for one in labels if one.startswith("xn--")]
    except UnicodeError:
        return False
    return len(written) <= MOST_OF_NAME and all(encoded) and all(_LABEL.fullmatch(one) for one in labels)


class WebhookSettings(Section, frozen=True, kw_only=True):
    """A program that is sent events."""

    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_.-]{1,64}$", description="Its name; how far it is, is kept by it")]
    url: Annotated[str, Meta(description="Where events are sent to by POST: http:// or https://")]
    secret: Annotated[str, Meta(min_length=SHORTEST_SECRET, description="The key that requests are signed with")]
    types: Annotated[tuple[str, ...], Meta(description="Types of events; empty: all")] = ()
    project: Annotated[str, Meta(description="Id of the project whose events it is sent; empty: of all")] = ""
    whole: Annotated[bool, Meta(description="Whether it is told of hosts and cells, as operators are")] = False
    timeout: Annotated[float, Meta(gt=0, le=60, description="Seconds in which it has to answer")] = 10.0
    batch: Annotated[int, Meta(ge=1, le=1000, description="Events in one request")] = 100

    def __post_init__(self) -> None:
        """Refuses an address that nothing can be sent to, and types that there are not."""
        if (wrong := _wrong_address(self.url)) is not None:
            raise ValueError(f"url: expected {wrong}, got `{self.url[:80]}`")
        for name in self.types:
            if name not in TYPES:
                raise ValueError(f"types: there is no type of events `{name[:80]}`; docs/events.md lists them")


class EventsSettings(Section, frozen=True, kw_only=True):
    """The event log: what happened to servers, in one order."""

    keep_seconds: Annotated[
        int, Meta(ge=60, description="Seconds for which an event is kept; a reader that comes later is told so")
    ] = 604_800
    batch_rows: Annotated[int, Meta(ge=1, le=10000, description="Events that are copied or pruned at once")] = 500
    streams: Annotated[
        int, Meta(ge=0, le=100_000, description="Streams of events that one process tells at once; beyond it 429")
    ] = 100
    streams_of_project: Annotated[
        int, Meta(ge=0, le=100_000, description="Those of one project, and those of operators; beyond it 429")
    ] = 10
    stream_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds after which a stream ends: its reader comes with a token that is good"),
    ] = 600.0
    stream_heartbeat_seconds: Annotated[
        float, Meta(gt=0, description="Seconds without an event after which a stream says that it goes on")
    ] = 15.0
    webhooks: Annotated[
        tuple[WebhookSettings, ...],
        Meta(description="Who is told of events, each a table `[[events.webhooks]]`", extra={"hide": "value"}),
    ] = ()

    def __post_init__(self) -> None:
        """Refuses two webhooks of one name."""
        names = [one.name for one in self.webhooks]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"webhooks: the name `{name}` occurs twice")
