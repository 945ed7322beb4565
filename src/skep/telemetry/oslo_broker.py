"""The broker of Nova's notifications: RabbitMQ by oslo.messaging, in the form that consumers of Nova's read.

oslo.messaging comes with the extra `notifications`, and is loaded only where a broker is configured.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from skep.domain import unversioned_notifications
from skep.domain.context import RequestContext
from skep.domain.errors import Misconfigured, Unavailable
from skep.telemetry.notifier import Notification
from skep.telemetry.oslo_threads import use_threads

EXCHANGE = "nova"
SETTING = "notifications.transport_url"
DEFAULT_PORT = 5672

_EXTRA = "it needs packages that are not installed: `pip install 'skep[notifications]'`"
_RABBIT = "oslo_messaging_rabbit"
_ENVELOPE = 2.0
_DRIVERS = ("oslo_messaging", "oslo.messaging", "amqp", "kombu")
"""Loggers that write a line for each attempt to connect; the queue says that once."""


class Message(NamedTuple):
    """One message of a notification."""

    topic: str
    context: dict[str, Any]
    body: dict[str, Any]


Form = Callable[[Notification], dict[str, Any] | None]
"""What is sent of a notification, in the envelope of oslo.messaging; None: there is none in this form."""


def versioned(notification: Notification) -> dict[str, Any]:
    """Return a notification in the envelope of oslo.messaging, its payload as it is."""
    return _envelope(notification, notification.publisher_id, notification.event_type, notification.payload)


def unversioned(notification: Notification) -> dict[str, Any] | None:
    """Return a notification in the form that Nova had before versions; None where it had none."""
    found = unversioned_notifications.unversioned(notification.event_type, notification.payload, notification.context)
    if found is None:
        return None
    event_type, payload = found
    return _envelope(
        notification, unversioned_notifications.publisher(event_type, notification.publisher_id), event_type, payload
    )


def _envelope(
    notification: Notification, publisher_id: str, event_type: str, payload: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "message_id": notification.message_id,
        "publisher_id": publisher_id,
        "event_type": event_type,
        "priority": notification.priority,
        "payload": msgspec.to_builtins(payload),
        "timestamp": notification.timestamp,
    }


def context_of(context: RequestContext) -> dict[str, Any]:
    """Return what is known of a request, in the names of Nova's contexts. It never holds a token."""
    return {
        "request_id": context.request_id,
        "global_request_id": None,
        "user_id": context.user_id or None,
        "user_name": context.user_name or None,
        "user_domain": context.user_domain_id if context.user_id else None,
        "project_id": context.project_id or None,
        "project_name": context.project_name or None,
        "project_domain": context.project_domain_id if context.project_id else None,
        # The names of old, which consumers still ask for.
        "user": context.user_id or None,
        "tenant": context.project_id or None,
        "roles": list(context.roles),
        "is_admin": context.is_admin,
    }


class OsloBroker:
    """Sends notifications to the queues `TOPIC.PRIORITY` of the exchange `nova`; connects when there is one to send."""

    def __init__(self, url: str, forms: Sequence[tuple[Form, Sequence[str]]]) -> None:
        """Take the broker's address, and the forms with the topics of each.

        Raises Misconfigured when the address cannot work, or oslo.messaging is not installed.
        """
        self._forms = tuple((form, tuple(topics)) for form, topics in forms)
        messaging = _loaded()
        self._target = messaging.Target
        self._transport, self.hosts = _transport(messaging, url)
        # Each of several hosts gets a try before the queue pauses; the library does not pause between them.
        self._retries = len(self.hosts) - 1

    def messages(self, notification: Notification) -> list[Message]:
        """Return the messages that tell of a notification."""
        context = context_of(notification.context)
        priority = notification.priority.lower()
        bodies = ((form(notification), topics) for form, topics in self._forms)
        return [
            Message(f"{topic}.{priority}", context, body)
            for body, topics in bodies
            if body is not None
            for topic in topics
        ]

    def send(self, message: Message) -> None:
        """Send one message, and return when the broker has confirmed it. Raises Unavailable when it has not."""
        target = self._target(exchange=EXCHANGE, topic=message.topic)
        try:
            # The library's own notifier raises nothing and tells nothing of a message that was not sent. The library
            # adds fields to what it sends.
            self._transport._send_notification(
                target, message.context, dict(message.body), version=_ENVELOPE, retry=self._retries
            )
        except Exception as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Disconnect."""
        self._transport.cleanup()


def _loaded() -> Any:
    """Import oslo.messaging."""
    try:
        use_threads()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import oslo_messaging
    except ImportError:
        raise Misconfigured(f"{SETTING}: {_EXTRA}") from None
    for name in _DRIVERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return oslo_messaging


def _transport(messaging: Any, url: str) -> tuple[Any, list[tuple[str, int]]]:
    """Return the transport to a broker, which is not connected yet, and the hosts and ports of the address."""
    from oslo_config import cfg

    conf = cfg.ConfigOpts()
    # Neither a command line, nor files, nor variables of the environment say anything about it.
    conf([], project="skep", default_config_files=[], default_config_dirs=[], use_env=False)
    try:
        parsed = messaging.TransportURL.parse(conf, url)
        hosts = [(host.hostname, DEFAULT_PORT if host.port is None else host.port) for host in parsed.hosts]
    except (messaging.exceptions.MessagingException, ValueError) as error:
        raise Misconfigured(f"{SETTING}: no address of a broker: {type(error).__name__}") from None
    if not hosts or not all(name for name, _ in hosts):
        raise Misconfigured(f"{SETTING}: it names no host")
    if any(not 0 < port < 65536 for _, port in hosts):
        raise Misconfigured(f"{SETTING}: a port must be from 1 to 65535")
    try:
        transport = messaging.get_notification_transport(conf, parsed)
    except cfg.NoSuchOptError as error:
        raise Misconfigured(f"{SETTING}: there is no option `{error.opt_name}` behind `?`") from None
    except (ValueError, RuntimeError, messaging.exceptions.MessagingException) as error:
        raise Misconfigured(f"{SETTING}: an option behind `?` cannot be used: {error}") from None
    return transport, hosts
