"""Writes of states, judged by the table of states: what it does not allow is no statement."""

from __future__ import annotations

from functools import cache

import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.constants import constants
from skep.domain.instances import State
from skep.domain.states import check


@cache
def moving(before: State | frozenset[State], *after: State) -> sa.ColumnElement[bool]:
    """Say of a row that it is in a state `before`, for a statement that writes one of `after` over it.

    Raises ValueError for a pair that the table does not allow.
    """
    befores = frozenset({before}) if isinstance(before, State) else before
    for one in after:
        check(befores, one)
    state = instances.c.state
    return state == min(befores).value if len(befores) == 1 else state.in_(constants(befores))
