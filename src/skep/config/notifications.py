"""The section of notifications."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from skep.config.base import Section

SCHEME = "rabbit://"
_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class NotificationsSettings(Section, frozen=True, kw_only=True):
    """Where Nova's notifications go beside the log: a broker, in the form of oslo.messaging."""

    transport_url: Annotated[
        str,
        Meta(
            description="RabbitMQ as oslo.messaging names it, `rabbit://USER:PASSWORD@HOST:5672/VHOST`, with options "
            "of its driver behind `?`; empty: notifications go to the log only",
            extra={"hide": "url"},
        ),
    ] = ""
    topics: Annotated[
        tuple[str, ...], Meta(description="Topics that versioned notifications are sent to (Nova's default)")
    ] = ("versioned_notifications",)
    format: Annotated[
        Literal["versioned", "unversioned", "both"],
        Meta(description="Which of Nova's two forms is sent (Nova's notification_format)"),
    ] = "versioned"
    unversioned_topics: Annotated[
        tuple[str, ...], Meta(description="Topics that unversioned notifications are sent to (Nova's default)")
    ] = ("notifications",)
    queue_length: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Most notifications that wait in one process; more are dropped")
    ] = 10_000
    flush_seconds: Annotated[
        float, Meta(ge=0, le=60, description="Seconds in which a process that stops sends what waits; the rest is lost")
    ] = 5.0

    def __post_init__(self) -> None:
        """Refuses another broker, and topics that no queue can be named after."""
        if self.transport_url and not self.transport_url.startswith(SCHEME):
            # Its text may hold a password.
            raise ValueError(f"transport_url must begin with `{SCHEME}`")
        _check_topics("topics", self.topics)
        _check_topics("unversioned_topics", self.unversioned_topics)


def _check_topics(name: str, topics: tuple[str, ...]) -> None:
    if not topics:
        raise ValueError(f"{name} must name a topic")
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise ValueError(f"{name} must be names of letters, digits, `_`, `.` and `-`, got {topic!r}")
