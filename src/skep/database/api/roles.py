"""Roles of the embedded identity service. Who has them where is in `role_assignments`."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.identity_tables import roles
from skep.domain.errors import Conflict


class UserRole(msgspec.Struct, frozen=True, kw_only=True):
    """A name that policy rules ask for."""

    id: str
    name: str
    description: str = ""


def insert(connection: sa.Connection, role: UserRole) -> None:
    """Store a new role.

    Raises Conflict when the name is taken.
    """
    _refuse_taken_name(connection, role)
    connection.execute(roles.insert().values(msgspec.structs.asdict(role)))


def update(connection: sa.Connection, role: UserRole) -> None:
    """Store what changed of a role.

    Raises Conflict when the name is taken by another.
    """
    _refuse_taken_name(connection, role)
    connection.execute(roles.update().where(roles.c.id == role.id).values(msgspec.structs.asdict(role)))


def delete(connection: sa.Connection, role_id: str) -> bool:
    """Remove a role from everybody who has it; false when there is none."""
    return connection.execute(roles.delete().where(roles.c.id == role_id)).rowcount > 0


def get(connection: sa.Connection, role_id: str) -> UserRole | None:
    """Return one role by its id."""
    row = connection.execute(roles.select().where(roles.c.id == role_id)).first()
    return None if row is None else UserRole(**row._mapping)


def by_name(connection: sa.Connection, name: str) -> UserRole | None:
    """Return one role by its name."""
    row = connection.execute(roles.select().where(roles.c.name == name)).first()
    return None if row is None else UserRole(**row._mapping)


def select(connection: sa.Connection, *, name: str | None = None, ids: set[str] | None = None) -> list[UserRole]:
    """Return roles by name; every argument that is given narrows the list."""
    query = _ALL
    if name is not None:
        query = query.where(roles.c.name == name)
    if ids is not None:
        query = query.where(roles.c.id.in_(ids))
    return [UserRole(**row._mapping) for row in connection.execute(query)]


_ALL = roles.select().order_by(roles.c.name)
"""Made once: it is asked of each token again and again."""


def _refuse_taken_name(connection: sa.Connection, role: UserRole) -> None:
    other = by_name(connection, role.name)
    if other is not None and other.id != role.id:
        raise Conflict(f"a role named {role.name!r} exists already")
