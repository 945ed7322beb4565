"""Guests that wait on a host until their ports are bound to it and their volumes connected.

Super conductors do both, since a cell reaches no such service. So a host is told to make or take up a guest once the
row of its server says that it is done. A service that is away holds up nothing for good: after a while the host is told
all the same, and ports and volumes follow later.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import MISBOUND, MISPLACED, instances, migrations
from skep.database.constants import constants
from skep.domain.moves import SWITCHED

row = instances.c
move = migrations.c

NOTHING_WAITS = 2**62
"""As `unfollowed_before`: each step is old enough."""

_LATE = sa.bindparam("unfollowed_before", type_=sa.BigInteger)

VOLUMES_OF_BUILD = sa.or_(
    row.volumes_at.is_(None), row.volumes_at == sa.func.coalesce(row.host, ""), row.step_at < _LATE
)
"""Says of a build that its host may be told of it: its volumes are connected there, or it has waited since before the
parameter `unfollowed_before`. Its ports are waited for later, once its disks are made (`interfaces.unwired`)."""

OF_MOVE = sa.or_(
    move.step.not_in(constants(SWITCHED)),
    move.step_at < _LATE,
    ~sa.exists(sa.select(row.uuid).where(row.uuid == move.instance, sa.or_(MISBOUND, MISPLACED))),
)
"""Says likewise of a move: the host that has the server since its switch may be told of the step."""
