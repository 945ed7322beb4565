"""What the rows of a host's servers say of their guests, to be compared with what the host says."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.constants import constants
from skep.domain.guests import GuestKnown
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, State, Task
from skep.domain.states import SETTLED

row = instances.c


def known(connection: sa.Connection, host: str, uuids: Collection[InstanceUuid]) -> list[GuestKnown]:
    """Return what the rows say of those servers that were built on `host` and are there."""
    found = connection.execute(
        sa.select(row.uuid, row.attempt, row.state, row.power_state, row.task, row.in_doubt_at, row.acted_id).where(
            row.uuid.in_(uuids),
            row.host == host,
            row.state.in_(constants(SETTLED)),
            row.launched_at.is_not(None),
            row.deleted_at.is_(None),
        )
    )
    return [
        GuestKnown(
            instance=one.uuid,
            attempt=one.attempt,
            state=State(one.state),
            power_state=PowerState(one.power_state),
            task=Task(one.task) if one.task is not None else None,
            in_doubt=one.in_doubt_at is not None,
            acted_id=one.acted_id,
        )
        for one in found
    ]
