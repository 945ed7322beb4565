"""What is told of actions: notifications when one begins, and a log line, a count and notifications when it is over."""

from __future__ import annotations

from collections.abc import Iterable

from skep.cell_conductor import notifications
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import listing
from skep.domain.actions import ACTIONS, Action, Ended
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.instances import Instance
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

Over = tuple[Ended, Instance | None]
"""An action that is over, and its instance as it is now; None for a row that cannot be read."""


def begun(parts: Parts, action: Action, instance: Instance | None, context: RequestContext) -> None:
    """Tell that a host may begin an action."""
    if instance is not None:
        notifications.action_start(parts.notifier, action, instance, context)


def ended(parts: Parts, over: Iterable[Over]) -> None:
    """Tell of actions that are over; one that is in doubt is not."""
    for one, instance in over:
        if one.in_doubt:
            continue
        parts.steps.metrics.actions.labels(one.action, one.outcome).inc()
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
            notifications.action_end(parts.notifier, ACTIONS[one.action], instance, one)


def with_instances(connection: Connection, over: Iterable[Ended]) -> list[Over]:
    """Return each with its instance."""
    return [(one, listing.find(connection, one.instance)) for one in over]
