"""What the operator wants of cells, hosts and aggregates: the whole of it, as schedulers are told."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api import cells, host_mappings
from skep.database.api.tables import aggregate_hosts, aggregates
from skep.database.stored import load
from skep.messages.to_scheduler import AggregateWish, CellWish, HostWish, PublishOperatorState


def read(connection: sa.Connection) -> PublishOperatorState:
    """Read it from the rows. Equal rows give equal messages."""
    return PublishOperatorState(
        hosts=tuple(
            HostWish(
                node=mapping.node,
                host=mapping.host,
                cell=mapping.cell,
                disabled=mapping.disabled,
                disabled_reason=mapping.disabled_reason,
                forced_down=mapping.forced_down,
            )
            for mapping in host_mappings.list_all(connection)
        ),
        aggregates=_aggregates(connection),
        cells=tuple(
            CellWish(uuid=cell.uuid, name=cell.name, disabled=cell.disabled)
            for cell in cells.list_all(connection)
            if not cell.is_cell0
        ),
    )


def _aggregates(connection: sa.Connection) -> tuple[AggregateWish, ...]:
    hosts: dict[int, list[str]] = {}
    for member in connection.execute(sa.select(aggregate_hosts).order_by(aggregate_hosts.c.host)):
        hosts.setdefault(member.aggregate_id, []).append(member.host)
    return tuple(
        AggregateWish(
            id=found.id,
            hosts=tuple(hosts.get(found.id, ())),
            metadata=load(found.metadata, dict[str, str]),
        )
        for found in connection.execute(sa.select(aggregates).order_by(aggregates.c.id))
    )
