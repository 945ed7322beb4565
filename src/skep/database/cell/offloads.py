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


_ANY_UNDER_WAY = sa.select(row.uuid).where(_UNDER_WAY).limit(1)
_DUE = (
    sa.select(row.uuid)
    .where(
        SHELVED,
        row.step_at < sa.bindparam("before"),
        row.task.is_(None),
        row.shelved.is_not(None),
        ~resting.undecided(row.uuid),
    )
    .order_by(row.step_at)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_BEGINS = sa.and_(
    row.uuid == sa.bindparam("of"),
    SHELVED,
    row.task.is_(None),
    row.deleted_at.is_(None),
    row.shelved.is_not(None),
    ~resting.undecided(row.uuid),
)
_READ = sa.select(row.attempt).where(_BEGINS)
_BEGIN = instances.update().where(_BEGINS).values(numbers.raised())


def begin(connection: sa.Connection, uuid: InstanceUuid, context: RequestContext, now: int) -> bool:
    """Take a shelved instance off its host; False when its row does not allow it."""
    found = connection.execute(_READ, {"of": uuid}).first()
    if found is None:
        return False
    request = ActionRequest(action=OFFLOAD.name, context=context)
    values = {
        **_off_host(now),
        "task": Task.SHELVING_OFFLOADING.value,
        "task_id": context.request_id,
        "action_request": dump(request),
    }
    connection.execute(_BEGIN, {"of": uuid, **values})
    attempts.give_up(connection, uuid, found.attempt, now)
    actions.begin(connection, [actions.action_of(uuid, OFFLOAD.record, context, now)])
    return True


def off_host(now: int) -> dict[str, Any]:
    """Return the columns of a shelved instance that is on no host; its next attempt is above all it had."""
    return {**numbers.raised(), **_off_host(now)}


def _off_host(now: int) -> dict[str, Any]:
    return {
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
    for uuid in list(connection.scalars(_DUE, {"before": before, "most": limit})):
        context = RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))
        begun += begin(connection, InstanceUuid(uuid), context, now)
    return begun


def any_due(connection: sa.Connection, shelved_before: int | None) -> bool:
    """Tell whether an offload is under way, or is to begin; `shelved_before` None: none begins by itself."""
    if connection.execute(_ANY_UNDER_WAY).first() is not None:
        return True
    if shelved_before is None:
        return False
    return connection.execute(_DUE, {"before": shelved_before, "most": 1}).first() is not None


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


def _offload(connection: sa.Connection, found: Any, now: int) -> Ended:
    started_at = actions.began_at(connection, found.uuid, found.task_id)
    return Ended(
        action=OFFLOAD.name,
        context=asked.request_of(found, OFFLOAD).context,
        instance=found.uuid,
        attempt=found.attempt,
        host=None,
        started_at=now if started_at is None else started_at,
        ended_at=now,
    )
