"""Writes that mend differences and concern several nouns. Each changes only what is wrong at that very moment, and says
whether it was.
"""

from __future__ import annotations

from skep.database import Connection
from skep.database.api import aggregates, host_mappings, quotas
from skep.database.api import instance_mappings as mappings
from skep.database.cell import deletes
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance


def credit(connection: Connection, instance: str) -> bool:
    """Take back the charge of a server that does not live."""
    return not mappings.is_living(connection, instance) and quotas.credit(connection, [InstanceUuid(instance)]) > 0


def charge(connection: Connection, server: Instance) -> bool:
    """Charge a living server that is charged to nobody, whatever the limits are: it is there."""
    return mappings.is_living(connection, server.uuid) and quotas.charge_existing(connection, server)


def tell_again(connection: Connection, instance: str) -> bool:
    """Have the level above told of a deleted row once more: it then gives up mapping and quota, as for any delete."""
    return deletes.tell_again(connection, [instance]) > 0


def drop_host(connection: Connection, host: str) -> bool:
    """Forget a host of a cell that is not there; where its agent registers in another cell, it is mapped there."""
    gone = host_mappings.remove_without_cell(connection, host)
    if gone:
        aggregates.forget_host(connection, host)
    return gone
