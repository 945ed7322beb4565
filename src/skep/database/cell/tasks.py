"""The writes of start, stop and reboot inside a cell: a task beside the state, done by the host, resumable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, resending
from skep.database.cell.resending import AGAIN_AT_ONCE, NOTHING_COUNTS
from skep.database.cell.tables import actions as action_rows
from skep.database.cell.tables import instances
from skep.database.stored import dump
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, UserId
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


NO_ANSWER = "The host did not answer"

_OF_POWER = sa.and_(
    row.task.is_not(None),
    row.task.in_([task.value for task in _EVENTS]),
    row.task_id.is_not(None),
    row.host.is_not(None),
)
"""The first part makes SQLite see that `instances_tasks` holds all of them."""

_columns = (row.uuid, row.attempt, row.host, row.task, row.task_id, row.project_id, row.user_id)


class PowerTask(msgspec.Struct, frozen=True, kw_only=True):
    """A start, stop or reboot that waits for its host. Nothing in it needs decoding."""

    instance: InstanceUuid
    attempt: int
    host: str
    task: Task
    task_id: str
    project_id: ProjectId
    user_id: UserId


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


def due(
    connection: sa.Connection, now: int, resend_before: int, limit: int, progress_before: int = NOTHING_COUNTS
) -> list[PowerTask]:
    """Return tasks whose host is to be told of them now, and note that it was told.

    Those that their host has in hand are left out, as `resending.due` says.
    """
    told = (
        instances.update()
        .where(
            row.uuid.in_(
                sa.select(row.uuid)
                .where(_OF_POWER, resending.due(row.sent_at, row.step_at, now, resend_before, progress_before))
                .limit(limit)
            )
        )
        .values(**resending.told(row.sent_at, row.step_at, now))
        .returning(*_columns)
    )
    return [_task(found) for found in connection.execute(told)]


def progressed(connection: sa.Connection, host: str, tasks: Sequence[tuple[InstanceUuid, str]], now: int) -> int:
    """Note that a host has these tasks in hand: their deadlines begin anew. Return how many are still its own."""
    return connection.execute(
        instances.update()
        .where(sa.tuple_(row.uuid, row.task_id).in_(tasks), row.host == host, _OF_POWER)
        .values(step_at=now)
    ).rowcount


def overdue(connection: sa.Connection, before: int, limit: int) -> list[PowerTask]:
    """Return tasks whose host was told of them and has been silent since before `before`."""
    return of(connection, sa.and_(row.sent_at > AGAIN_AT_ONCE, row.step_at < before), limit)


def of(connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int | None = None) -> list[PowerTask]:
    """Return the tasks of the instances that are `wanted`."""
    return [_task(one) for one in connection.execute(sa.select(*_columns).where(_OF_POWER, wanted).limit(limit))]


def give_up(connection: sa.Connection, task: PowerTask, now: int) -> bool:
    """End a task that its host does not end: an error for the action, the server as it was. False when it is over."""
    ended = connection.execute(
        instances.update()
        .where(
            row.uuid == task.instance, row.attempt == task.attempt, row.task_id == task.task_id, row.task == task.task
        )
        .values(task=None, task_id=None, sent_at=None, step_at=now, changed_at=now, updated_at=now)
    ).rowcount
    if ended:
        _finish(connection, task.instance, task.task, task.task_id, task.host, now, NO_ANSWER)
    return ended == 1


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
        sa.select(row.host, row.state, row.launched_at, row.fault).where(
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
    _finish(connection, uuid, task, task_id, started.host, now, error)
    return True


def _finish(
    connection: sa.Connection, uuid: InstanceUuid, task: Task, task_id: str, host: str, now: int, error: str | None
) -> None:
    started_at = connection.execute(
        sa.select(action_rows.c.started_at).where(action_rows.c.instance == uuid, action_rows.c.request_id == task_id)
    ).scalar_one_or_none()
    actions.finish(
        connection,
        actions.ActionEvent(
            instance=uuid,
            request_id=task_id,
            event=_EVENTS[task],
            host=host,
            started_at=now if started_at is None else started_at,
            finished_at=now,
            result="Error" if error else "Success",
            details=error,
        ),
    )


def _task(found: Any) -> PowerTask:
    return PowerTask(
        instance=found.uuid,
        attempt=found.attempt,
        host=found.host,
        task=Task(found.task),
        task_id=found.task_id,
        project_id=found.project_id,
        user_id=found.user_id,
    )


def _state_after(before: State, power_state: PowerState) -> State:
    if power_state is PowerState.RUNNING:
        return State.ACTIVE
    if power_state is PowerState.SHUTDOWN:
        return State.STOPPED
    return before
