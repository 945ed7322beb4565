"""Moves whose hosts are silent, or whose targets are lost: somebody else ends their steps."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from skep.database.cell import resting
from skep.database.cell.cold_moves import COLUMNS, Move, move_of
from skep.database.cell.move_steps import HERE
from skep.database.cell.tables import attempts, migrations
from skep.database.constants import constants
from skep.domain.moves import ON_HOSTS

move = migrations.c

_UNDONE_FIRST = ("rebuild_prepare", "reimage_prepare")
"""Those of `_BESIDE` whose host undoes what failed before it says why."""

_BESIDE = ("prepare", "transfer", "revert_receive", "evacuate_prepare", "live_prepare", *_UNDONE_FIRST)
"""Steps of an attempt beside the one that holds the server: none touches a guest."""


def overdue(connection: sa.Connection, since: int | None, limit: int) -> list[Move]:
    """Return moves whose host has been silent since before `since` (None: nobody has listened for long enough) at a
    step that it was not allowed to begin, or that touches no guest; and those whose target has no open attempt."""
    wanted = {"most": limit} if since is None else {"most": limit, "since": since}
    return [move_of(one) for one in connection.execute(_overdue(listened=since is not None), wanted)]


@cache
def _overdue(*, listened: bool) -> sa.Select[Any]:
    beside = move.step.in_(constants(_BESIDE))
    unasked = sa.or_(move.granted == sa.false(), beside)
    late = move.step_at < sa.bindparam("since") if listened else sa.false()
    silent = sa.and_(move.sent_at.is_not(None), late, unasked)
    attempt = attempts.c
    side = sa.case((move.step == "revert_receive", move.back_attempt), else_=move.dest_attempt)
    lost = sa.and_(
        beside,
        move.step.not_in(constants(_UNDONE_FIRST)),
        ~sa.exists(
            sa.select(attempt.attempt).where(attempt.instance == move.instance, attempt.attempt == side, attempt.open)
        ),
    )
    # An evacuation goes on without the host that it leaves.
    told = move.step.in_(constants(ON_HOSTS - {"evacuate_release"}))
    rests = resting.move_rests(move.instance, move.source_host, move.dest_host)
    given_up = sa.and_(move.step.is_not(None), told, HERE, sa.or_(silent, lost), ~rests)
    return sa.select(*COLUMNS).where(given_up).limit(sa.bindparam("most", type_=sa.Integer))
