"""Moves whose server was taken away from them: they end, and what they began is undone."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from skep.database.cell import attempts, tasks
from skep.database.cell.cold_moves import COLUMNS, FINISHED, move_of, over_with, told
from skep.database.cell.tables import instances, migrations
from skep.database.constants import constants
from skep.domain.actions import Over
from skep.domain.instances import State, Task
from skep.domain.moves import HELD_BY

row = instances.c
move = migrations.c


def abandon(connection: sa.Connection, now: int, limit: int) -> tuple[int, list[Over]]:
    """End moves whose server was taken away from them, and let go of what nobody needs any more.

    Return how many, and the actions that are over with it.

    A server in ERROR keeps all its attempts: what it has lost may be on any of their hosts.
    """
    # Apart, for each has an index of its own.
    found = [one for wanted in _TAKEN_AWAY for one in connection.execute(wanted, {"most": limit}).all()]
    over: list[Over] = []
    for one in found:
        rests = one.step is None
        if not rests:
            known = move_of(one)
            over += told(connection, known, tasks.OVERTAKEN, now)
            # A row that follows a guest of another attempt, since its database went back in time, has its task still.
            left = sa.and_(row.uuid == one.instance, row.task_id == one.task_id, row.task == known.row.task.value)
            connection.execute(
                instances.update().where(left).values(task=None, action_request=None, changed_at=now, updated_at=now)
            )
        status = "confirmed" if rests and one.doing == Task.DELETING.value else "error"
        connection.execute(migrations.update().where(move.uuid == one.uuid).values(over_with(status, now, one.error)))
        beside: Iterable[int | None] = (one.dest_attempt, one.back_attempt)
        if one.stands != State.ERROR.value:
            beside = (*beside, one.source_attempt)
        elif one.step not in HELD_BY["source"]:
            beside = (one.back_attempt,)
        for number in beside:
            if number is not None and number != one.current:
                attempts.give_up(connection, one.instance, number, now)
    return len(found), over


_holder = sa.case(
    (move.step.in_(constants(HELD_BY["source"])), move.source_attempt),
    (move.step.in_(constants(HELD_BY["back"])), move.back_attempt),
    else_=move.dest_attempt,
)
_lost = sa.and_(
    move.step.is_not(None),
    sa.or_(row.attempt != _holder, row.task_id.is_distinct_from(move.task_id), row.deleted_at.is_not(None)),
)
_let_go = sa.and_(
    move.step.is_(None),
    move.status == FINISHED,
    sa.or_(
        row.task == Task.DELETING.value,
        row.deleted_at.is_not(None),
        sa.and_(
            row.task.is_(None),
            row.state.not_in((State.RESIZED.value, State.ERROR.value)),
            row.state != State.AWAY.value,
        ),
    ),
)
_TAKEN_AWAY = tuple(
    sa.select(*COLUMNS, row.attempt.label("current"), row.state.label("stands"), row.task.label("doing"))
    .join(instances, row.uuid == move.instance)
    .where(condition)
    .limit(sa.bindparam("most", type_=sa.Integer))
    for condition in (_lost, _let_go)
)
