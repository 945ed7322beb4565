"""What the operator wants, whole, in the form in which schedulers are told."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api import aggregates, cells, host_mappings
from skep.messages.to_scheduler import AggregateWish, CellWish, HostWish, PublishOperatorState


def read(connection: sa.Connection) -> PublishOperatorState:
    """Read all wishes of hosts, aggregates and cells."""
    return PublishOperatorState(
        hosts=tuple(
            HostWish(
                node=one.node,
                host=one.host,
                cell=one.cell,
                disabled=one.disabled,
                disabled_reason=one.disabled_reason,
                forced_down=one.forced_down,
            )
            for one in host_mappings.every(connection)
        ),
        aggregates=tuple(
            AggregateWish(id=one.id, hosts=one.hosts, metadata=one.metadata) for one in aggregates.every(connection)
        ),
        cells=tuple(
            CellWish(uuid=one.uuid, name=one.name, disabled=one.disabled)
            for one in cells.every(connection)
            if not one.is_cell0
        ),
    )
