"""Notifications on their way to a broker: a bounded queue, and one thread that empties it.

The queue is a sink of the notifier: it takes a notification at once, whatever the broker does. What does not fit is
dropped and counted. The log says once that the broker is away or too slow, and once that it takes notifications again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from skep.domain.errors import Unavailable
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notification

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two attempts to send, while the broker is away."""

Reason = Literal["full", "unsendable", "stopped"]

log = get_logger(__name__)


class Broker(Protocol):
    """What takes messages. Its calls may block; only the thread of the queue makes them."""

    def messages(self, notification: Notification) -> Sequence[Any]:
        """Return the messages that tell of a notification. An error means that it can never be sent."""

    def send(self, message: Any) -> None:
        """Send one message, and return when the broker has it. Raises Unavailable when that is not known to be so."""

    def close(self) -> None:
        """Disconnect."""


class NotificationQueue:
    """Takes notifications and sends them in their order, each until the broker has it."""

    def __init__(
        self,
        broker: Broker,
        metrics: Metrics,
        *,
        length: int,
        flush_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._metrics = metrics
        self._length = length
        self._flush_seconds = flush_seconds
        self._clock = clock
        self._waiting: deque[Notification] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self._ends_at = float("inf")
        """By the clock; what waits may be sent until then."""
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._dropped = 0
        """Since all was sent the last time."""
        self._away = False

    def __call__(self, notification: Notification) -> None:
        """Take a notification, or drop it where there is no room. Returns at once and never raises."""
        with self._changed:
            if self._stopping.is_set():
                reason: Reason | None = "stopped"
            elif len(self._waiting) >= self._length:
                reason = "full"
            else:
                reason = None
                self._waiting.append(notification)
                self._changed.notify()
            waiting = len(self._waiting)
        self._metrics.notifications_waiting.set(waiting)
        if reason is not None:
            self._drop(reason)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    async def stop(self) -> None:
        """Send what waits, for as long as configured, and end. What is left is lost, and counted."""
        with self._changed:
            self._ends_at = self._clock() + self._flush_seconds
            self._stopping.set()
            self._changed.notify()
        # A broker that hangs keeps the thread; it dies with the process.
        await asyncio.to_thread(self._thread.join, self._flush_seconds)
        with self._changed:
            self._given_up.set()
            left = len(self._waiting)
            self._waiting.clear()
        self._metrics.notifications_waiting.set(0)
        if left:
            self._metrics.notifications_dropped.labels("stopped").inc(left)
            log.error("notifications lost", reason="stopped", notifications=left)

    def _run(self) -> None:
        try:
            while (notification := self._next()) is not None:
                self._send(notification)
        finally:
            try:
                self._broker.close()
            except Exception as error:  # noqa: BLE001 - whatever the library raises: the connection ends all the same
                log.warning("broker of notifications not closed", error=str(error))

    def _next(self) -> Notification | None:
        """Wait for the next notification, which stays the first until it is sent; None: all is over."""
        with self._changed:
            while not self._waiting and not self._stopping.is_set():
                self._changed.wait()
            return self._waiting[0] if self._waiting and not self._is_over() else None

    def _is_over(self) -> bool:
        return self._given_up.is_set() or self._clock() >= self._ends_at

    def _send(self, notification: Notification) -> None:
        try:
            messages = self._broker.messages(notification)
        except Exception:
            log.exception("notification not sent", event_type=notification.event_type, request=notification.request)
            self._is_done(notification)
            self._drop("unsendable")
            return
        for message in messages:
            if not self._sent(message):
                return
        if self._is_done(notification):
            self._metrics.notifications_sent.inc()

    def _sent(self, message: Any) -> bool:
        """Send a message, again and again; False: the process stops first."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._broker.send(message)
            except Unavailable as error:
                self._is_away(str(error))
            else:
                self._is_back()
                return True
            if not self._stopping.wait(pause):
                pause = min(2 * pause, LONGEST_PAUSE)
            elif self._given_up.wait(FIRST_PAUSE) or self._is_over():
                return False

    def _is_done(self, notification: Notification) -> bool:
        """Take the first notification away; False where the process has given it up meanwhile, and counted it."""
        with self._changed:
            if not self._waiting or self._waiting[0] is not notification:
                return False
            self._waiting.popleft()
            waiting = len(self._waiting)
            dropped = 0
            if not waiting:
                dropped, self._dropped = self._dropped, 0
        self._metrics.notifications_waiting.set(waiting)
        if dropped:
            log.warning("notifications fit again", dropped=dropped)
        return True

    def _drop(self, reason: Reason) -> None:
        """Count a notification that is lost, and say it of the first."""
        self._metrics.notifications_dropped.labels(reason).inc()
        if reason == "unsendable":
            return
        with self._changed:
            self._dropped += 1
            first = self._dropped == 1
        if first:
            log.error("notifications dropped", reason=reason, queue_length=self._length)

    def _is_away(self, error: str) -> None:
        self._metrics.notifications_broker_away.set(1)
        if not self._away:
            self._away = True
            log.warning("broker of notifications is away", error=error)

    def _is_back(self) -> None:
        self._metrics.notifications_broker_away.set(0)
        if self._away:
            self._away = False
            log.info("broker of notifications is back")
