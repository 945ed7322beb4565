"""Attempt numbers of an instance: whoever gives one gives the next above all that the instance ever had.

The row's `attempt` is the holder, the only attempt that may run a guest. `highest` is the highest number that was
given beside it, to an attempt that does not hold the server (yet). Releases before 0.7.0 know `attempt` alone and raise
it by one, so the higher of the two counts.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import instances

row = instances.c


def given(above: int = 0) -> sa.ColumnElement[int]:
    """Return the highest number that was given so far, of which hosts have heard `above` at least."""
    highest = sa.case((row.attempt > row.highest, row.attempt), else_=row.highest)
    return highest if not above else sa.case((highest > above, highest), else_=above)


def raised(above: int = 0) -> dict[str, sa.ColumnElement[int]]:
    """Return the columns of a row of which another attempt is to be the holder, under the next number."""
    return {"attempt": given(above) + 1, "highest": given(above) + 1}


def next_target(connection: sa.Connection, uuid: str, holder: int) -> int | None:
    """Give the next number to an attempt beside the holder; None where `holder` is that no more."""
    return connection.execute(_NEXT_TARGET, {"of": uuid, "holder": holder}).scalar_one_or_none()


_NEXT_TARGET = (
    instances.update()
    .where(row.uuid == sa.bindparam("of"), row.attempt == sa.bindparam("holder"), row.deleted_at.is_(None))
    .values(highest=given() + 1)
    .returning(row.highest)
)
