"""What the super conductor tells the world of builds, in Nova's events and order.

The scheduler stays silent by design: the events about its work are emitted by whoever asked it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from skep.database.api.instance_mappings import Taken
from skep.database.cell.builds import Staged, Work
from skep.domain import notifications
from skep.domain.context import RequestContext
from skep.domain.instances import Fault
from skep.domain.request_specs import RequestSpec
from skep.telemetry.endings import CONDUCTOR
from skep.telemetry.notifier import Notifier

PUBLISHER = "nova-conductor:super"


def select(notifier: Notifier, phase: Literal["start", "end"], spec: RequestSpec, members: Sequence[Taken]) -> None:
    """Emit `scheduler.select_destinations.start` or `.end` (none at the end when there is no valid host)."""
    payload = notifications.request_spec(spec, members[0].instance.uuid, len(members))
    context = members[0].context
    notifier.emit(
        f"scheduler.select_destinations.{phase}", payload, publisher_id="nova-scheduler:skep", context=context
    )


def staged(notifier: Notifier, one: Staged) -> None:
    """Emit `instance.update` for a server that got its row, and the error of one that got no host."""
    update = notifications.update(one.on_host(), None)
    notifier.emit("instance.update", update, publisher_id=PUBLISHER, context=one.context)
    if one.instance.fault is not None:
        payload = notifications.compute_task_error(one.instance, one.spec, one.instance.fault.message)
        _no_host(notifier, payload, one.context)


def stays(notifier: Notifier, work: Work, fault: Fault) -> None:
    """Emit the error of a server whose cell keeps it: no other one has a host, or no host would change it."""
    payload = notifications.compute_task_error(work.instance, work.spec, fault.message)
    _no_host(notifier, payload, work.context)


def no_host_for_move(notifier: Notifier, work: Work, name: str, context: RequestContext, message: str) -> None:
    """Emit the error `name` of a move for which no cell has a host."""
    payload = notifications.compute_task_error(work.instance, work.spec, message)
    notifier.emit(name, payload, publisher_id=CONDUCTOR, context=context, priority="ERROR")


def _no_host(notifier: Notifier, payload: dict[str, Any], context: RequestContext) -> None:
    name = "compute_task.build_instances.error"
    notifier.emit(name, payload, publisher_id=PUBLISHER, context=context, priority="ERROR")
