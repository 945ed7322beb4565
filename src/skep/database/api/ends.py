"""The end of servers above the cells.

The mapping is closed, the charge taken back, the place in a group given up, and ports and volumes are released.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.database.api import instance_mappings, port_holders, quotas, server_groups, server_ports, volume_holders
from skep.domain.ids import InstanceUuid


def end(connection: sa.Connection, instances: Sequence[InstanceUuid], now: int) -> None:
    """Note that servers are gone from their cell, with all that hangs on them. Repeating it changes nothing."""
    instance_mappings.close(connection, instances, now)
    _let_go(connection, instances, now)


def end_unplaced(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Delete a server that has no cell, with all that hangs on it; False, and nothing done, when it has one."""
    ended = instance_mappings.delete_unplaced(connection, instance, now)
    if ended:
        _let_go(connection, [instance], now)
    return ended


def _let_go(connection: sa.Connection, instances: Sequence[InstanceUuid], now: int) -> None:
    quotas.credit(connection, instances)
    server_groups.remove_members(connection, instances)
    server_ports.release(connection, instances, now)
    port_holders.end(connection, instances, now)
    volume_holders.end(connection, instances, now)
