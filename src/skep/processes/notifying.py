"""Whether and where this process sends notifications, beside its log: read from `[notifications]`."""

from __future__ import annotations

from collections.abc import Sequence

from skep.config.notifications import NotificationsSettings
from skep.config.sections import Config
from skep.processes.process import Process
from skep.telemetry.notification_queue import NotificationQueue
from skep.telemetry.oslo_broker import Form, OsloBroker, unversioned, versioned


class BrokerNotifications:
    """The part of a process that sends its notifications to the configured broker; nothing where there is none."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._queue: NotificationQueue | None = None

    def start(self) -> None:
        """Send notifications from now on. A broker that is away is no hindrance.

        Raises Misconfigured when the address cannot work, or packages are missing.
        """
        asked = self._process.config.notifications
        if not asked.transport_url:
            return
        queue = NotificationQueue(
            broker_of(asked), self._process.metrics, length=asked.queue_length, flush_seconds=asked.flush_seconds
        )
        queue.start()
        self._queue = queue
        self._process.notifier.add(queue)

    async def stop(self) -> None:
        """Send what waits, within its time, and disconnect."""
        queue, self._queue = self._queue, None
        if queue is not None:
            self._process.notifier.remove(queue)
            await queue.stop()


def check_notifications(config: Config) -> None:
    """Refuse a broker that cannot be used as configured. Raises Misconfigured."""
    if config.notifications.transport_url:
        broker_of(config.notifications)


def broker_of(settings: NotificationsSettings) -> OsloBroker:
    """Return the configured broker, not connected yet. Raises Misconfigured when it cannot be."""
    forms: list[tuple[Form, Sequence[str]]] = []
    if settings.format in {"versioned", "both"}:
        forms.append((versioned, settings.topics))
    if settings.format in {"unversioned", "both"}:
        forms.append((unversioned, settings.unversioned_topics))
    return OsloBroker(settings.transport_url, forms)
