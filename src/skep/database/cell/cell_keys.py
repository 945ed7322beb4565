"""The cell's own key, by which agents know its conductors: made once, read by all of them."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import cell_keys
from skep.database.upsert import insert
from skep.domain.sessions import new_exchange_key

ONLY = 1


def private_key(connection: sa.Connection, now: int) -> bytes:
    """Return the private half, made if there is none."""
    known = _known(connection)
    if known is None:
        fresh = insert(connection, cell_keys).values(only=ONLY, private_key=new_exchange_key(), made_at=now)
        connection.execute(fresh.on_conflict_do_nothing(index_elements=["only"]))
        known = _known(connection)
    assert known is not None
    return known


def _known(connection: sa.Connection) -> bytes | None:
    return connection.execute(sa.select(cell_keys.c.private_key).where(cell_keys.c.only == ONLY)).scalar_one_or_none()
