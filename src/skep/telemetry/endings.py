"""What is told of an action that is over: a log line, a count and a notification in Nova's events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.domain import notifications
from skep.domain.actions import ACTIONS, Action, Ended, Kind, Over
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.instances import Fault, Instance
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier

log = get_logger(__name__)

CONDUCTOR = "nova-conductor:cell"


def ended(metrics: Metrics, notifier: Notifier, over: Iterable[Over]) -> None:
    """Tell of actions that are over; one that is in doubt is not."""
    for one, instance in over:
        if one.in_doubt:
            continue
        metrics.actions.labels(one.action, one.outcome).inc()
        log.info(
            "action ended",
            action=one.action,
            instance=one.instance,
            host=one.host,
            attempt=one.attempt,
            outcome=one.outcome,
            seconds=round((one.ended_at - one.started_at) / SECOND, 3),
            request=one.context.request_id,
            error=one.error,
        )
        if instance is not None:
            _notify(notifier, instance, one)


def asked(notifier: Notifier, notification: str, instance: Instance, context: RequestContext, host: str) -> None:
    """Tell of something that was asked of a server, once, in the name of the API."""
    notifier.emit(
        f"instance.{notification}",
        notifications.action(instance, context),
        publisher_id=f"nova-api:{host}",
        context=context,
    )


def publisher(instance: Instance) -> str:
    """Return who speaks of an instance, in Nova's words: the compute of its host, or a conductor where it has none."""
    return f"nova-compute:{instance.host}" if instance.host else CONDUCTOR


def _notify(notifier: Notifier, instance: Instance, over: Ended) -> None:
    action = ACTIONS[over.action]
    if action.task is None:
        _notify_written(notifier, action, instance, over)
        return
    if action.kind is Kind.REHOST and (over.error is None or action.notification is None):
        # Its steps have told of it.
        return
    if action.notification is None:
        payload = notifications.update(instance, instance.state, action.task)
        notifier.emit("instance.update", payload, publisher_id=publisher(instance), context=over.context)
        return
    fault = None if over.error is None else Fault(code=500, message=over.error, created_at=over.ended_at)
    if action.kind is Kind.REBUILD:
        payload = notifications.rebuild(instance, over.context, fault)
    else:
        payload = notifications.action(instance, over.context, fault, over.arguments)
    notifier.emit(
        f"instance.{action.notification}.{'end' if fault is None else 'error'}",
        payload,
        publisher_id=publisher(instance),
        context=over.context,
        priority="INFO" if fault is None else "ERROR",
    )


def _notify_written(notifier: Notifier, action: Action, instance: Instance, over: Ended) -> None:
    """Tell of an action that was one write: in the name of the API, of one that begins in that of its host, as Nova."""
    publisher_id = publisher(instance) if action.begins else f"nova-api:{over.host}"
    if action.begins and over.before is not None:
        before = msgspec.structs.replace(instance, state=over.before, task=over.before_task)
        begun = notifications.action(before, over.context)
        notifier.emit(f"instance.{action.notification}.start", begun, publisher_id=publisher_id, context=over.context)
    if action.notification is None:
        name, payload = "update", notifications.update(instance, over.before, over.before_task)
    else:
        name = f"{action.notification}.end" if action.begins else action.notification
        payload = notifications.action(instance, over.context)
    notifier.emit(f"instance.{name}", payload, publisher_id=publisher_id, context=over.context)
