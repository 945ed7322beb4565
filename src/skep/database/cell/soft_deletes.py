"""Soft-deleted instances: which servers can be kept, and the end of their time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from skep.database.cell import agents, deletes, resting
from skep.database.cell.tables import SOFT_DELETED, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.domain.actions import ACTIONS, Ended
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId, UserId, new_request_id
from skep.domain.instances import Instance, PowerState, State

row = instances.c

SOFT_DELETE = ACTIONS["soft_delete"]


def can_be_kept(connection: sa.Connection, instance: Instance) -> bool:
    """Tell whether a server that is deleted can be kept for a while: its host has its guest and can stop it."""
    if SOFT_DELETE.begins_in is None or instance.state not in SOFT_DELETE.begins_in:
        return False
    if instance.launched_at is None or instance.host is None or SOFT_DELETE.capability is None:
        return False
    if instance.state is State.ERROR and instance.power_state is PowerState.NOSTATE:
        return False
    attempt = attempt_rows.c
    mine = (attempt.instance == instance.uuid, attempt.attempt == instance.attempt, attempt.host == instance.host)
    there = connection.execute(sa.select(attempt.attempt).where(*mine, attempt.open)).first()
    return there is not None and not agents.lacks(connection, instance.host, SOFT_DELETE.capability)


def any_due(connection: sa.Connection, before: int) -> bool:
    """Tell whether `reclaim` would find something."""
    return connection.execute(_due(before, 1)).first() is not None


def reclaim(connection: sa.Connection, before: int, limit: int, now: int) -> tuple[int, list[Ended]]:
    """Begin to delete instances that are soft-deleted since before `before`, oldest first.

    Return how many, and the actions that are over with it.
    """
    return delete(connection, list(connection.scalars(_due(before, limit))), now)


def delete(connection: sa.Connection, uuids: Iterable[str], now: int) -> tuple[int, list[Ended]]:
    """Begin to delete soft-deleted instances, whom nobody asks for it now; return as `reclaim`."""
    begun, ended = 0, list[Ended]()
    for uuid in uuids:
        context = RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))
        over = deletes.begin(connection, InstanceUuid(uuid), context, now)
        if over is not None:
            begun += 1
            ended += over
    return begun, ended


def _due(before: int, limit: int) -> sa.Select[Any]:
    return (
        sa.select(row.uuid)
        .where(SOFT_DELETED, row.step_at < before, row.task.is_(None), ~resting.undecided(row.uuid))
        .order_by(row.step_at)
        .limit(limit)
    )
