"""Since when servers are soft-deleted: their time of reclaim is counted from it, whatever was tried with them since."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell.tables import action_events, instances
from skep.domain.actions import ACTIONS
from skep.domain.instances import State

row = instances.c
event = action_events.c

COUNTED = frozenset({"soft_delete", "restore"})
"""Actions whose end would begin the time anew: a restore that failed, a guest that ran although it was deleted."""

_well = sa.and_(event.instance == row.uuid, event.result == "Success")
_restored = sa.select(sa.func.max(event.finished_at)).where(_well, event.event == ACTIONS["restore"].event)
_since = sa.select(sa.func.min(event.finished_at)).where(
    _well,
    event.event == ACTIONS["soft_delete"].event,
    event.finished_at > sa.func.coalesce(_restored.correlate(instances).scalar_subquery(), 0),
)
_KEEP = (
    instances.update()
    .where(row.uuid == sa.bindparam("of"), row.state == State.SOFT_DELETED.value, row.task.is_(None))
    .values(step_at=sa.func.coalesce(_since.correlate(instances).scalar_subquery(), row.step_at))
)


def keep(connection: sa.Connection, uuid: str) -> None:
    """Write when a server was deleted whose restore has come to nothing; any other stays as it is."""
    connection.execute(_KEEP, {"of": uuid})
