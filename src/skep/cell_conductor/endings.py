"""What is told of actions: notifications when one begins, and a log line, a count and notifications when it is over."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from skep.cell_conductor import notifications
from skep.cell_conductor.parts import Parts
from skep.database.cell import instances
from skep.database.cell.unreadable import or_none
from skep.domain.actions import ACTIONS, Action, Ended
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
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


def with_instances(connection: sa.Connection, over: Iterable[Ended]) -> list[Over]:
    """Return each with its instance."""
    return [(one, instance_of(connection, one.instance)) for one in over]


def instance_of(connection: sa.Connection, uuid: InstanceUuid) -> Instance | None:
    """Return an instance as it is now, deleted ones too; None for a row that cannot be read."""
    found = connection.execute(sa.select(*instances.live_columns).where(instances.row.uuid == uuid)).first()
    return None if found is None else or_none(found, instances.instance_of)
