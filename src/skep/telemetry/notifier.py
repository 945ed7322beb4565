"""Emits Nova's versioned notifications. Where they go is a list of sinks; the log is the first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from skep.domain import ids
from skep.domain.clock import Clock, isoformat_micro
from skep.domain.context import RequestContext
from skep.telemetry.logs import get_logger

Priority = Literal["DEBUG", "INFO", "WARN", "ERROR"]


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification in the envelope that consumers of Nova's read.

    `timestamp` is UTC as `2026-01-31 12:00:00.123456`; `publisher_id` is `service:host`.
    """

    event_type: str
    publisher_id: str
    priority: Priority
    payload: Mapping[str, Any]
    timestamp: str
    message_id: str
    context: RequestContext
    """The request that it tells of."""

    @property
    def request(self) -> str:
        """The id of that request."""
        return self.context.request_id


Sink = Callable[[Notification], None]
"""Takes a notification on. It returns at once and never raises: one that can fail keeps a queue."""

_log = get_logger("skep.notifications")


def to_log(notification: Notification) -> None:
    """Write a line of the logger `skep.notifications`: what happened to which instance.

    The payload is a screen by itself; it is there at level `debug` and in JSON form only.
    """
    data = notification.payload.get("nova_object.data", {})
    instance = data.get("uuid") or data.get("instance_uuid")
    more: dict[str, Any] = {"request": notification.request}
    if instance is not None:
        more["instance"] = instance
    if _log.is_enabled_for(logging.DEBUG):
        more["payload"] = notification.payload
    _log.info(
        notification.event_type,
        publisher_id=notification.publisher_id,
        priority=notification.priority,
        message_id=notification.message_id,
        **more,
    )


class Notifier:
    """Gives each notification its time and id and hands it to every sink in turn."""

    def __init__(self, clock: Clock, sinks: Sequence[Sink] = (to_log,)) -> None:
        self._clock = clock
        self._sinks = tuple(sinks)

    def add(self, sink: Sink) -> None:
        """Let a sink have every notification from now on, too."""
        self._sinks = (*self._sinks, sink)

    def remove(self, sink: Sink) -> None:
        """Let a sink have no more."""
        self._sinks = tuple(one for one in self._sinks if one is not sink)

    def emit(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        publisher_id: str,
        context: RequestContext,
        priority: Priority = "INFO",
    ) -> None:
        """Emit one notification, such as `instance.create.end` from `nova-compute:host1`, of a request."""
        notification = Notification(
            event_type=event_type,
            publisher_id=publisher_id,
            priority=priority,
            payload=payload,
            timestamp=isoformat_micro(self._clock.now()).replace("T", " "),
            message_id=ids.new_uuid(),
            context=context,
        )
        for sink in self._sinks:
            sink(notification)
