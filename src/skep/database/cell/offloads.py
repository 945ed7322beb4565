"""Shelved instances that leave their host: the attempt there is given up, and its host undoes it.

The row names no host from the first write on. Its task is over when the host has nothing of the server any more, or is
silent for too long: the content is in the image, and the attempt stays open until the host has answered.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, asked, attempts, numbers, resting
from skep.database.cell.tables import SHELVED, instances
from skep.database.cell.tables import actions as action_rows
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.stored import dump
from skep.domain.actions import ACTIONS, ActionRequest, Ended
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, UserId, new_request_id
from skep.domain.instances import State, Task

row = instances.c

OFFLOAD = ACTIONS["shelve_offload"]

_UNDER_WAY = sa.and_(row.task.is_not(None), row.task == Task.SHELVING_OFFLOADING.value)
"""The first part makes SQLite see that `instances_tasks` holds all of them."""


def begin(connection: sa.Connection, uuid: InstanceUuid, context: RequestContext, now: int) -> bool:
    """Take a shelved instance off its host; False when its row does not allow it."""
    mine = sa.and_(
        row.uuid == uuid,
        SHELVED,
        row.task.is_(None),
        row.deleted_at.is_(None),
        row.shelved.is_not(None),
        ~resting.undecided(row.uuid),
    )
    found = connection.execute(sa.select(row.attempt).where(mine)).first()
    if found is None:
        return False
    request = ActionRequest(action=OFFLOAD.name, context=context)
    connection.execute(
        instances.update()
        .where(mine)
        .values(
            **off_host(now),
            task=Task.SHELVING_OFFLOADING.value,
            task_id=context.request_id,
            action_request=dump(request),
        )
    )
    attempts.give_up(connection, uuid, found.attempt, now)
    actions.begin(connection, [actions.action_of(uuid, OFFLOAD.record, context, now)])
    return True


def off_host(now: int) -> dict[str, Any]:
    """Return the columns of a shelved instance that is on no host; its next attempt is above all it had."""
    return {
        **numbers.raised(),
        "state": State.SHELVED_OFFLOADED.value,
        "host": None,
        "node": None,
        "allocation": None,
        "owner": None,
        "sent_at": None,
        "in_doubt_at": None,
        "secrets": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }


def begin_due(connection: sa.Connection, before: int, limit: int, now: int) -> int:
    """Take instances off their hosts that are shelved since before `before`, oldest first; return how many."""
    begun = 0
    for uuid in list(connection.scalars(_due(before, limit))):
        context = RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))
        begun += begin(connection, InstanceUuid(uuid), context, now)
    return begun


def any_due(connection: sa.Connection, shelved_before: int | None) -> bool:
    """Tell whether an offload is under way, or is to begin; `shelved_before` None: none begins by itself."""
    if connection.execute(sa.select(row.uuid).where(_UNDER_WAY).limit(1)).first() is not None:
        return True
    return shelved_before is not None and connection.execute(_due(shelved_before, 1)).first() is not None


def start(connection: sa.Connection, now: int, limit: int) -> list[Ended]:
    """Return the offloads whose hosts were not told yet; note that they are told now."""
    waiting = sa.select(row.uuid).where(_UNDER_WAY, row.sent_at.is_(None)).limit(limit)
    found = connection.execute(
        instances.update().where(row.uuid.in_(waiting)).values(sent_at=now).returning(*asked.COLUMNS, row.attempt)
    ).all()
    return [_offload(connection, one, now) for one in found]


def finish(connection: sa.Connection, silent_before: int, now: int, limit: int) -> list[Ended]:
    """End the offloads of which no host has anything any more, and those that began before `silent_before`."""
    attempt = attempt_rows.c
    waits = sa.exists(sa.select(attempt.attempt).where(attempt.instance == row.uuid, attempt.open))
    over = sa.select(row.uuid).where(_UNDER_WAY, sa.or_(~waits, row.step_at < silent_before)).limit(limit)
    ended = connection.execute(
        instances.update()
        .where(row.uuid.in_(over), _UNDER_WAY)
        .values(task=None, step_at=now, changed_at=now, updated_at=now)
        .returning(*asked.COLUMNS, row.attempt)
    ).all()
    return [end(connection, one, now, None) for one in ended]


def end(connection: sa.Connection, found: Any, now: int, error: str | None) -> Ended:
    """Write that the action of an offload is over, of a row that has the columns of `asked` and its attempt."""
    over = msgspec.structs.replace(_offload(connection, found, now), error=error)
    actions.ended(connection, over)
    return over


def _due(before: int, limit: int) -> sa.Select[Any]:
    return (
        sa.select(row.uuid)
        .where(
            SHELVED, row.step_at < before, row.task.is_(None), row.shelved.is_not(None), ~resting.undecided(row.uuid)
        )
        .order_by(row.step_at)
        .limit(limit)
    )


def _offload(connection: sa.Connection, found: Any, now: int) -> Ended:
    begun = sa.and_(action_rows.c.instance == found.uuid, action_rows.c.request_id == found.task_id)
    started_at = connection.execute(sa.select(action_rows.c.started_at).where(begun)).scalar_one_or_none()
    return Ended(
        action=OFFLOAD.name,
        context=asked.request_of(found, OFFLOAD).context,
        instance=found.uuid,
        attempt=found.attempt,
        host=None,
        started_at=now if started_at is None else started_at,
        ended_at=now,
    )
