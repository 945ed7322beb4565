"""Roles and who has them where."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.identity_tables import role_assignments, roles, system_role_assignments
from skep.domain.errors import Conflict


class UserRole(msgspec.Struct, frozen=True, kw_only=True):
    """A name that policy rules ask for."""

    id: str
    name: str


class RoleAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """One role of one user in one project, or in the whole system where `project_id` is None."""

    user_id: str
    project_id: str | None
    role_id: str


def insert(connection: sa.Connection, role: UserRole) -> None:
    """Store a new role.

    Raises Conflict when the name is taken.
    """
    if by_name(connection, role.name) is not None:
        raise Conflict(f"a role named {role.name!r} exists already")
    connection.execute(roles.insert().values(id=role.id, name=role.name))


def delete(connection: sa.Connection, role_id: str) -> bool:
    """Remove a role from everybody who has it; false when there is none."""
    return connection.execute(roles.delete().where(roles.c.id == role_id)).rowcount > 0


def get(connection: sa.Connection, role_id: str) -> UserRole | None:
    """Return one role by its id."""
    row = connection.execute(roles.select().where(roles.c.id == role_id)).first()
    return None if row is None else UserRole(id=row.id, name=row.name)


def by_name(connection: sa.Connection, name: str) -> UserRole | None:
    """Return one role by its name."""
    row = connection.execute(roles.select().where(roles.c.name == name)).first()
    return None if row is None else UserRole(id=row.id, name=row.name)


def select(connection: sa.Connection, *, name: str | None = None) -> list[UserRole]:
    """Return all roles by name, or the one called `name`."""
    query = roles.select().order_by(roles.c.name)
    if name is not None:
        query = query.where(roles.c.name == name)
    return [UserRole(id=row.id, name=row.name) for row in connection.execute(query)]


def assign(connection: sa.Connection, assignment: RoleAssignment) -> None:
    """Give a role; giving it again changes nothing."""
    if not is_assigned(connection, assignment):
        connection.execute(_table(assignment).insert().values(_values(assignment)))


def unassign(connection: sa.Connection, assignment: RoleAssignment) -> bool:
    """Take a role away; false when it was not given."""
    return connection.execute(_table(assignment).delete().where(_is(assignment))).rowcount > 0


def is_assigned(connection: sa.Connection, assignment: RoleAssignment) -> bool:
    """Tell whether exactly this was given (roles that others imply do not count)."""
    table = _table(assignment)
    return connection.execute(sa.select(table.c.role_id).where(_is(assignment))).first() is not None


def in_project(connection: sa.Connection, user_id: str, project_id: str) -> list[UserRole]:
    """Return the roles that were given to a user in a project."""
    query = (
        sa.select(roles)
        .join(role_assignments, role_assignments.c.role_id == roles.c.id)
        .where(role_assignments.c.user_id == user_id, role_assignments.c.project_id == project_id)
    )
    return [UserRole(id=row.id, name=row.name) for row in connection.execute(query)]


def in_system(connection: sa.Connection, user_id: str) -> list[UserRole]:
    """Return the roles that were given to a user in the whole system."""
    query = (
        sa.select(roles)
        .join(system_role_assignments, system_role_assignments.c.role_id == roles.c.id)
        .where(system_role_assignments.c.user_id == user_id)
    )
    return [UserRole(id=row.id, name=row.name) for row in connection.execute(query)]


def projects_of(connection: sa.Connection, user_id: str) -> set[str]:
    """Return the ids of the projects in which a user has any role."""
    query = sa.select(role_assignments.c.project_id).where(role_assignments.c.user_id == user_id).distinct()
    return set(connection.execute(query).scalars())


def assignments(connection: sa.Connection) -> list[RoleAssignment]:
    """Return every assignment, of projects first and then of the system."""
    given = [
        RoleAssignment(user_id=row.user_id, project_id=row.project_id, role_id=row.role_id)
        for row in connection.execute(role_assignments.select())
    ]
    given += [
        RoleAssignment(user_id=row.user_id, project_id=None, role_id=row.role_id)
        for row in connection.execute(system_role_assignments.select())
    ]
    return given


def _table(assignment: RoleAssignment) -> sa.Table:
    return system_role_assignments if assignment.project_id is None else role_assignments


def _values(assignment: RoleAssignment) -> dict[str, str]:
    values = {"user_id": assignment.user_id, "role_id": assignment.role_id}
    if assignment.project_id is not None:
        values["project_id"] = assignment.project_id
    return values


def _is(assignment: RoleAssignment) -> sa.ColumnElement[bool]:
    table = _table(assignment)
    return sa.and_(*(table.c[name] == value for name, value in _values(assignment).items()))
