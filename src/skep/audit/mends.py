"""The writes that mend differences. Each changes only what is wrong at that very moment, and says whether it was."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.api import aggregates, quotas
from skep.database.api.tables import (
    build_requests,
    cells,
    host_mappings,
    instance_mappings,
    quota_charges,
    quota_sums,
    request_specs,
    server_group_members,
)
from skep.database.cell.tables import agents, instances
from skep.database.upsert import insert
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from skep.domain.quotas import COUNTED, charge_of
from skep.domain.states import BUILD_OVER, stored

mapping = instance_mappings.c

_UNLIMITED = dict.fromkeys(COUNTED, quotas.UNLIMITED)


def add_up(connection: sa.Connection, project: str) -> bool:
    """Set a project's sums to what its charges add up to."""
    sums = [sa.func.coalesce(sa.func.sum(quota_charges.c[name]), 0).label(name) for name in COUNTED]
    found = connection.execute(sa.select(*sums).where(quota_charges.c.project_id == project)).one()
    values = {name: int(found._mapping[name]) for name in COUNTED}
    statement = insert(connection, quota_sums).values(project_id=project, **values)
    differs = sa.or_(*(quota_sums.c[name] != amount for name, amount in values.items()))
    return (
        connection.execute(
            statement.on_conflict_do_update(index_elements=["project_id"], set_=values, where=differs)
        ).rowcount
        > 0
    )


def credit(connection: sa.Connection, instance: str) -> bool:
    """Take back the charge of a server that does not live."""
    return not _lives(connection, instance) and quotas.credit(connection, [InstanceUuid(instance)]) > 0


def charge(connection: sa.Connection, server: Instance) -> bool:
    """Charge a living server that is charged to nobody, whatever the limits are: it is there."""
    charged = connection.execute(
        sa.select(quota_charges.c.instance).where(quota_charges.c.instance == server.uuid)
    ).first()
    if charged is not None or not _lives(connection, server.uuid):
        return False
    charges = {server.uuid: charge_of(server.flavor)}
    return quotas.charge(connection, server.project_id, server.user_id, charges, _UNLIMITED) is None


def drop_request(connection: sa.Connection, instance: str) -> bool:
    """Remove a build request of a server that has a cell, or does not live."""
    waits = sa.exists().where(mapping.instance == instance, mapping.cell.is_(None), mapping.deleted_at.is_(None))
    return _removed(connection, build_requests, instance, waits)


def drop_spec(connection: sa.Connection, instance: str) -> bool:
    """Remove what was asked for of a server that does not live."""
    return _removed(connection, request_specs, instance, _living(instance))


def drop_member(connection: sa.Connection, instance: str) -> bool:
    """Remove a server that does not live from its group."""
    return _removed(connection, server_group_members, instance, _living(instance))


def tell_again(connection: sa.Connection, instance: str) -> bool:
    """Have the level above told of a deleted row once more: it then gives up mapping and quota, as for any delete."""
    row = instances.c
    deleted = sa.and_(row.uuid == instance, row.deleted_at.is_not(None), row.state == State.DELETED.value)
    return connection.execute(instances.update().where(deleted, row.forgotten).values(forgotten=False)).rowcount > 0


def erase_secrets(connection: sa.Connection, instance: str) -> bool:
    """Erase the secrets of a server whose build is over."""
    row = instances.c
    mine = sa.and_(row.uuid == instance, row.state.in_(stored(BUILD_OVER)), row.secrets.is_not(None))
    return connection.execute(instances.update().where(mine).values(secrets=None)).rowcount > 0


def unmark_mapped(connection: sa.Connection, node: str) -> bool:
    """Note that an agent is not mapped: the level above maps it then."""
    mine = sa.and_(agents.c.node == node, agents.c.mapped)
    return connection.execute(agents.update().where(mine).values(mapped=False)).rowcount > 0


def drop_host(connection: sa.Connection, host: str) -> bool:
    """Forget a host of a cell that is not there; where its agent registers in another cell, it is mapped there."""
    there = sa.exists().where(cells.c.uuid == host_mappings.c.cell)
    gone = connection.execute(host_mappings.delete().where(host_mappings.c.host == host, ~there)).rowcount > 0
    if gone:
        aggregates.forget_host(connection, host)
    return gone


def _lives(connection: sa.Connection, instance: str) -> bool:
    return bool(connection.execute(sa.select(_living(instance))).scalar())


def _living(instance: str) -> sa.Exists:
    return sa.exists().where(mapping.instance == instance, mapping.deleted_at.is_(None))


def _removed(connection: sa.Connection, table: sa.Table, instance: str, unless: sa.Exists) -> bool:
    statement: Any = table.delete().where(table.c.instance == instance, ~unless)
    return bool(connection.execute(statement).rowcount)
