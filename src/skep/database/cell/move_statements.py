"""Statements that every step of a move runs. Each is made once: making one costs more than running it.

Columns to write are parameters by their names, beside those of the conditions (`of_move`, or what `held_by` names).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from skep.database.cell import builds
from skep.database.cell.tables import attempts, instances, migrations
from skep.database.cell.transitions import moving
from skep.domain.instances import State
from skep.domain.moves import MoveRow
from skep.domain.states import SETTLED, before

row = instances.c
_beside = sa.and_(attempts.c.instance == row.uuid, attempts.c.attempt == sa.bindparam("mine"))

MINE = sa.and_(
    row.uuid == sa.bindparam("of"),
    row.attempt == sa.bindparam("holder"),
    row.task_id == sa.bindparam("asked"),
    row.task == sa.bindparam("doing"),
    row.deleted_at.is_(None),
)
"""Says of an instance that it still is that of a move."""

CHANGE = migrations.update().where(migrations.c.uuid == sa.bindparam("of_move")).values(turn=migrations.c.turn + 1)
CHANGE_SERVER = instances.update().where(MINE)
IS_HELD = sa.select(row.uuid).where(MINE)
HELD = sa.select(*builds.work_columns).where(MINE)
HELD_BESIDE = (
    sa.select(*builds.work_columns, row.allocation, attempts.c.allocation.label("allocation_beside"))
    .select_from(instances.outerjoin(attempts, _beside))
    .where(MINE)
)
"""The server of a move, and what an attempt beside the one that holds it has (`mine`)."""

LEFT = (
    sa.select(
        row.allocation,
        row.bound_to,
        row.attempt,
        row.highest,
        row.body,
        row.spec,
        attempts.c.allocation.label("allocation_beside"),
    )
    .select_from(instances.outerjoin(attempts, _beside))
    .where(row.uuid == sa.bindparam("of"))
)
"""What the attempt holds that loses a server, and the one that gets it (`mine`)."""
KEEP = (
    attempts.update()
    .where(attempts.c.instance == sa.bindparam("of"), attempts.c.attempt == sa.bindparam("mine"))
    .values(allocation=sa.bindparam("holds"))
)

_HOLDERS = {
    "source": migrations.c.source_attempt,
    "target": migrations.c.dest_attempt,
    "back": migrations.c.back_attempt,
}


def at_step(step: MoveRow, columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """Return the statement that finds the columns of a move which is at this step and still has its server.

    `asked` names the request, too, for which the move is under way.
    """
    move = migrations.c
    server = sa.and_(
        row.uuid == move.instance,
        row.attempt == _HOLDERS[step.holder],
        row.task_id == move.task_id,
        row.task == step.task.value,
        row.deleted_at.is_(None),
    )
    mine = sa.and_(move.uuid == sa.bindparam("of_move"), move.step == step.name, move.task_id == sa.bindparam("asked"))
    return sa.select(*columns).join(instances, server).where(mine)


@cache
def ending(state: State) -> sa.Update:
    """Return the statement that writes this state at the end of a move."""
    return instances.update().where(row.uuid == sa.bindparam("of"), moving(SETTLED & (before(state) | {state}), state))
