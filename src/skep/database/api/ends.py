"""The end of servers above the cells: the mapping is closed, the charge taken back, the place in a group given up."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.api import instance_mappings, quotas, server_groups
from skep.domain.ids import InstanceUuid


def end(connection: sa.Connection, instances: Sequence[InstanceUuid], now: int) -> None:
    """Note that servers are gone from their cell, with all that hangs on them. Repeating it changes nothing."""
    instance_mappings.close(connection, instances, now)
    _let_go(connection, instances)


def end_unplaced(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Delete a server that has no cell, with all that hangs on it; False, and nothing done, when it has one."""
    ended = instance_mappings.delete_unplaced(connection, instance, now)
    if ended:
        _let_go(connection, [instance])
    return ended


def _let_go(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> None:
    quotas.credit(connection, instances)
    server_groups.remove_members(connection, instances)
