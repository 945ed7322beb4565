"""The writes of start, stop and reboot inside a cell: a task beside the state, done by the host, resumable."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell import actions
from skep.database.cell.builds import Work, work_columns, work_of
from skep.database.cell.tables import instances
from skep.database.stored import dump
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Fault, PowerState, State, Task

row = instances.c

ACTIONS = {
    Task.POWERING_ON: "start",
    Task.POWERING_OFF: "stop",
    Task.REBOOTING: "reboot",
    Task.REBOOTING_HARD: "reboot",
}
_EVENTS = {
    Task.POWERING_ON: "compute_start_instance",
    Task.POWERING_OFF: "compute_stop_instance",
    Task.REBOOTING: "compute_reboot_instance",
    Task.REBOOTING_HARD: "compute_reboot_instance",
}


def begin(
    connection: sa.Connection,
    uuid: InstanceUuid,
    task: Task,
    allowed: frozenset[State],
    context: RequestContext,
    now: int,
) -> bool:
    """Begin a task on an instance that is in one of the `allowed` states and has no other; False when it may not."""
    begun = connection.execute(
        instances.update()
        .where(
            row.uuid == uuid,
            row.deleted_at.is_(None),
            row.task.is_(None),
            row.host.is_not(None),
            row.state.in_([state.value for state in allowed]),
        )
        .values(
            task=task.value,
            task_id=context.request_id,
            sent_at=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    ).rowcount
    if begun:
        actions.begin(connection, [actions.action_of(uuid, ACTIONS[task], context, now)])
    return begun == 1


def due(connection: sa.Connection, now: int, resend_before: int, limit: int) -> list[Work]:
    """Return instances whose host is to be told of their task now, and note that it was told."""
    told = (
        instances.update()
        .where(
            row.uuid.in_(
                sa.select(row.uuid)
                .where(
                    row.task.is_not(None),
                    row.task != Task.DELETING.value,
                    sa.or_(row.sent_at.is_(None), row.sent_at < resend_before),
                )
                .limit(limit)
            )
        )
        .values(sent_at=now)
        .returning(*work_columns)
    )
    return [work_of(found) for found in connection.execute(told)]


def done(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    task: Task,
    task_id: str,
    power_state: PowerState,
    error: str | None,
    now: int,
) -> bool:
    """End a task: the state follows the power state, an error becomes the action's result and a fault.

    Of a server that its host has not reported as built (ERROR, its host was silent) the state stays: `built` says what
    becomes of it, whichever of the host's two messages comes first.
    """
    started = connection.execute(
        sa.select(row.step_at, row.host, row.state, row.launched_at, row.fault).where(
            row.uuid == uuid, row.attempt == attempt, row.task == task.value, row.task_id == task_id
        )
    ).first()
    if started is None:
        return False
    fault = dump(Fault(code=500, message=error, created_at=now)) if error else None
    built = started.launched_at is not None
    connection.execute(
        instances.update()
        .where(row.uuid == uuid)
        .values(
            state=_state_after(State(started.state), power_state).value if built else started.state,
            task=None,
            power_state=int(power_state),
            fault=fault if built else started.fault,
            sent_at=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    )
    actions.finish(
        connection,
        actions.ActionEvent(
            instance=uuid,
            request_id=task_id,
            event=_EVENTS[task],
            host=started.host,
            started_at=started.step_at,
            finished_at=now,
            result="Error" if error else "Success",
            details=error,
        ),
    )
    return True


def _state_after(before: State, power_state: PowerState) -> State:
    if power_state is PowerState.RUNNING:
        return State.ACTIVE
    if power_state is PowerState.SHUTDOWN:
        return State.STOPPED
    return before
