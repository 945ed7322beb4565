"""Namespaces of other services, as they registered them."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api import credentials
from skep.database.api.service_tables import namespaces
from skep.database.stored import dump, load
from skep.domain.credentials import Scope
from skep.domain.errors import Conflict
from skep.domain.namespaces import MAX_NAMESPACES, Namespace, Schema, breaking_change
from skep.messages.to_scheduler_namespaces import PublishNamespaces

row = namespaces.c


def every(connection: sa.Connection) -> tuple[Namespace, ...]:
    """Return all namespaces by name."""
    found = connection.execute(sa.select(namespaces).order_by(row.name))
    return tuple(Namespace(name=one.name, schema=load(one.body, Schema)) for one in found)


def get(connection: sa.Connection, name: str) -> Namespace | None:
    """Return one namespace."""
    found = connection.execute(sa.select(namespaces).where(row.name == name)).first()
    return None if found is None else Namespace(name=found.name, schema=load(found.body, Schema))


def put(connection: sa.Connection, wanted: Namespace, now: int) -> bool:
    """Register a namespace or change its schema; tell whether it is new.

    Raises Conflict naming the field when states that are stored might break the new schema, or when there are too many.
    """
    known = get(connection, wanted.name)
    if known is None:
        count = connection.execute(sa.select(sa.func.count()).select_from(namespaces)).scalar_one()
        if count >= MAX_NAMESPACES:
            raise Conflict(f"There are {count} namespaces already; delete one first.")
        connection.execute(sa.insert(namespaces).values(name=wanted.name, body=dump(wanted.schema), created_at=now))
        return True
    if (change := breaking_change(known.schema, wanted.schema)) is not None:
        raise Conflict(f"{change}. Delete the namespace with its states first, or use another field.")
    if known != wanted:
        changed = sa.update(namespaces).where(row.name == wanted.name)
        connection.execute(changed.values(body=dump(wanted.schema), updated_at=now))
    return False


def remove(connection: sa.Connection, name: str) -> bool:
    """Forget a namespace and its credentials; tell whether there was one."""
    credentials.remove_of(connection, Scope("namespace", name))
    return connection.execute(sa.delete(namespaces).where(row.name == name)).rowcount > 0


def published(connection: sa.Connection) -> PublishNamespaces:
    """Read all of them in the form in which schedulers are told."""
    return PublishNamespaces(namespaces=every(connection))
