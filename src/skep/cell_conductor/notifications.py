"""What a cell conductor tells the world of builds, deletes and other actions, in Nova's events and order.

`instance.create.start` when the host may begin, `.end` when the guest runs, `.error` for each attempt that failed; the
publisher is the host's compute, as consumers expect.
"""

from __future__ import annotations

import msgspec

from skep.database.cell.builds import Work
from skep.domain import notifications
from skep.domain.actions import Action, Ended
from skep.domain.context import RequestContext
from skep.domain.instances import Fault, Instance, PowerState, State
from skep.telemetry.notifier import Notifier


def create_start(notifier: Notifier, work: Work) -> None:
    """The host may begin to build."""
    instance = msgspec.structs.replace(work.instance, state=State.BUILDING)
    _update(notifier, instance, State.SCHEDULED)
    notifier.emit(
        "instance.create.start",
        notifications.create(instance, work.context),
        publisher_id=_publisher(instance),
    )


def create_end(notifier: Notifier, work: Work, launched_at: int, power_state: PowerState) -> None:
    """The guest runs."""
    instance = msgspec.structs.replace(
        work.instance, state=State.ACTIVE, launched_at=launched_at, power_state=power_state
    )
    _update(notifier, instance, State.SPAWNING)
    notifier.emit(
        "instance.create.end", notifications.create(instance, work.context), publisher_id=_publisher(instance)
    )


def create_error(notifier: Notifier, work: Work, message: str, now: int) -> None:
    """An attempt failed on its host, whatever comes next."""
    fault = Fault(code=500, message=message, created_at=now)
    notifier.emit(
        "instance.create.error",
        notifications.create(work.instance, work.context, fault),
        publisher_id=_publisher(work.instance),
        priority="ERROR",
    )


def exhausted(notifier: Notifier, work: Work, message: str) -> None:
    """No host of the cell is left for the server."""
    instance = msgspec.structs.replace(work.instance, state=State.ERROR)
    notifier.emit(
        "compute_task.build_instances.error",
        notifications.compute_task_error(instance, work.spec, message),
        publisher_id="nova-conductor:cell",
        priority="ERROR",
    )
    _update(notifier, instance, State.SCHEDULED)


def action_start(notifier: Notifier, action: Action, instance: Instance, context: RequestContext) -> None:
    """The host may begin an action."""
    notifier.emit(
        f"instance.{action.notification}.start",
        notifications.action(instance, context),
        publisher_id=_publisher(instance),
    )


def action_end(notifier: Notifier, action: Action, instance: Instance, over: Ended) -> None:
    """An action is over, well or with an error."""
    fault = None if over.error is None else Fault(code=500, message=over.error, created_at=over.ended_at)
    notifier.emit(
        f"instance.{action.notification}.{'end' if fault is None else 'error'}",
        notifications.action(instance, over.context, fault),
        publisher_id=_publisher(instance),
        priority="INFO" if fault is None else "ERROR",
    )


def delete_start(notifier: Notifier, work: Work) -> None:
    """The host is told to destroy the guest."""
    notifier.emit(
        "instance.delete.start",
        notifications.action(work.instance, work.context),
        publisher_id=_publisher(work.instance),
    )


def _update(notifier: Notifier, instance: Instance, old: State) -> None:
    notifier.emit("instance.update", notifications.update(instance, old), publisher_id=_publisher(instance))


def _publisher(instance: Instance) -> str:
    return f"nova-compute:{instance.host}" if instance.host else "nova-conductor:cell"
