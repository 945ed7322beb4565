"""What a cell conductor tells the world of builds, deletes and other actions, in Nova's events and order.

`instance.create.start` when the host may begin, `.end` when the guest runs, `.error` for each attempt that failed; the
publisher is the host's compute, as consumers expect.
"""

from __future__ import annotations

import msgspec

from skep.database.cell.builds import Work
from skep.domain import notifications
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.context import RequestContext
from skep.domain.flavors import Flavor
from skep.domain.instances import Fault, Instance, PowerState, State
from skep.domain.moves import ONCE
from skep.telemetry.endings import CONDUCTOR, publisher
from skep.telemetry.notifier import Notifier


def create_start(notifier: Notifier, work: Work) -> None:
    """The host may begin to build."""
    instance = msgspec.structs.replace(work.instance, state=State.BUILDING)
    _update(notifier, instance, State.SCHEDULED, work.context)
    notifier.emit(
        "instance.create.start",
        notifications.create(instance, work.context),
        publisher_id=publisher(instance),
        context=work.context,
    )


def create_end(notifier: Notifier, work: Work, launched_at: int, power_state: PowerState) -> None:
    """The guest runs."""
    instance = msgspec.structs.replace(
        work.instance, state=State.ACTIVE, launched_at=launched_at, power_state=power_state
    )
    _update(notifier, instance, State.SPAWNING, work.context)
    notifier.emit(
        "instance.create.end",
        notifications.create(instance, work.context),
        publisher_id=publisher(instance),
        context=work.context,
    )


def create_error(notifier: Notifier, work: Work, message: str, now: int) -> None:
    """An attempt failed on its host, whatever comes next."""
    fault = Fault(code=500, message=message, created_at=now)
    notifier.emit(
        "instance.create.error",
        notifications.create(work.instance, work.context, fault),
        publisher_id=publisher(work.instance),
        context=work.context,
        priority="ERROR",
    )


def exhausted(notifier: Notifier, work: Work, message: str) -> None:
    """No host of the cell is left for the server."""
    instance = msgspec.structs.replace(work.instance, state=State.ERROR)
    notifier.emit(
        "compute_task.build_instances.error",
        notifications.compute_task_error(instance, work.spec, message),
        publisher_id=CONDUCTOR,
        context=work.context,
        priority="ERROR",
    )
    _update(notifier, instance, State.SCHEDULED, work.context)


def action_start(notifier: Notifier, request: ActionRequest, instance: Instance) -> None:
    """The host may begin an action."""
    notification = ACTIONS[request.action].notification
    if notification is None:
        _update(notifier, instance, instance.state, request.context)
        return
    notifier.emit(
        f"instance.{notification}.start",
        notifications.action(instance, request.context, arguments=request.arguments),
        publisher_id=publisher(instance),
        context=request.context,
    )


def rebuild_scheduled(notifier: Notifier, notification: str, instance: Instance, context: RequestContext) -> None:
    """The host is told to rebuild a server."""
    notifier.emit(
        f"instance.{notification}",
        notifications.rebuild(instance, context),
        publisher_id=CONDUCTOR,
        context=context,
    )


def rebuild_step(notifier: Notifier, notification: str, when: str, instance: Instance, context: RequestContext) -> None:
    """A step of a rebuild begins, or is over."""
    notifier.emit(
        f"instance.{notification}.{when}",
        notifications.rebuild(instance, context),
        publisher_id=publisher(instance),
        context=context,
    )


def move_step(
    notifier: Notifier, notification: str, when: str, instance: Instance, context: RequestContext, to: Flavor | None
) -> None:
    """A step of a move begins, or is over; `to` is given where the move is prepared."""
    told = notifications.action(instance, context) if to is None else notifications.resize_prep(instance, context, to)
    notifier.emit(
        f"instance.{notification}" if notification in ONCE else f"instance.{notification}.{when}",
        told,
        publisher_id=publisher(instance),
        context=context,
    )


def no_host(notifier: Notifier, event_type: str, work: Work, context: RequestContext, message: str) -> None:
    """No host was found for a server that was to go to another one, or to be made anew."""
    notifier.emit(
        event_type,
        notifications.compute_task_error(work.instance, work.spec, message),
        publisher_id=CONDUCTOR,
        context=context,
        priority="ERROR",
    )


def offload_start(notifier: Notifier, instance: Instance, context: RequestContext) -> None:
    """The host of a shelved server is told to undo it."""
    move_step(notifier, "shelve_offload", "start", instance, context, None)


def unshelve_start(notifier: Notifier, work: Work) -> None:
    """The host may begin to build a server from the image it is in."""
    move_step(notifier, "unshelve", "start", work.instance, work.context, None)


def unshelve_end(notifier: Notifier, instance: Instance, context: RequestContext) -> None:
    """The guest of a server that was on no host runs."""
    move_step(notifier, "unshelve", "end", instance, context, None)


def delete_start(notifier: Notifier, instance: Instance, context: RequestContext) -> None:
    """The host is told to destroy the guest."""
    notifier.emit(
        "instance.delete.start",
        notifications.action(instance, context),
        publisher_id=publisher(instance),
        context=context,
    )


def _update(notifier: Notifier, instance: Instance, old: State, context: RequestContext) -> None:
    payload = notifications.update(instance, old)
    notifier.emit("instance.update", payload, publisher_id=publisher(instance), context=context)
