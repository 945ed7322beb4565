"""Who has which role where: users and groups, in projects, in domains and in the whole system.

What is *inherited* is given in a domain for its projects, and not for the domain itself. (In a project it is for the
projects below, of which there are none.)
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api import groups
from skep.database.api.identity_tables import (
    projects,
    role_assignments,
    system_role_assignments,
    wider_role_assignments,
)


class RoleScope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a role is given: in a project, in a domain, or in the whole system where both are None."""

    project_id: str | None = None
    domain_id: str | None = None
    """Of a scope that is a project this is None, too."""


class RoleAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """One role of one user or one group."""

    role_id: str
    user_id: str | None = None
    group_id: str | None = None
    project_id: str | None = None
    domain_id: str | None = None
    inherited: bool = False

    @property
    def scope(self) -> RoleScope:
        """Where it is given."""
        return RoleScope(project_id=self.project_id, domain_id=self.domain_id)


_FIELDS = ("user_id", "group_id", "project_id", "domain_id", "role_id")


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


def assignments(connection: sa.Connection) -> list[RoleAssignment]:
    """Return every assignment: of users in projects first, then in the system, then all others."""
    given = [
        RoleAssignment(user_id=row.user_id, project_id=row.project_id, role_id=row.role_id)
        for row in connection.execute(role_assignments.select())
    ]
    given += [
        RoleAssignment(user_id=row.user_id, role_id=row.role_id)
        for row in connection.execute(system_role_assignments.select())
    ]
    given += [
        RoleAssignment(**{name: getattr(row, name) for name in _FIELDS}, inherited=row.inherited)
        for row in connection.execute(wider_role_assignments.select().order_by(wider_role_assignments.c.id))
    ]
    return given


def given(connection: sa.Connection, place: RoleAssignment) -> set[str]:
    """Return the ids of the roles that were given exactly so; the role of `place` says nothing."""
    table = _table(place)
    fields = _FIELDS[:-1] if table is wider_role_assignments else tuple(set(_FIELDS[:-1]) & set(table.c.keys()))
    conditions = [table.c[name] == getattr(place, name) for name in fields]
    if table is wider_role_assignments:
        conditions.append(table.c.inherited == place.inherited)
    return set(connection.execute(sa.select(table.c.role_id).where(*conditions)).scalars())


def held(connection: sa.Connection, user_id: str, scope: RoleScope) -> set[str]:
    """Return the ids of the roles that a user has in a scope, by himself, by a group, or inherited."""
    if scope.project_id is not None:
        found = connection.execute(_held_in_project(), {"user": user_id, "place": scope.project_id})
    elif scope.domain_id is not None:
        found = connection.execute(_held_in_domain(), {"user": user_id, "place": scope.domain_id})
    else:
        found = connection.execute(_held_in_system(), {"user": user_id})
    return set(found.scalars())


@cache
def _held_in_project() -> sa.CompoundSelect[Any]:
    """Return the statement of `held` for a project; made once, as the others, for it is asked of each token."""
    wide, user, place = wider_role_assignments.c, _parameter("user"), _parameter("place")
    own = sa.select(role_assignments.c.role_id).where(
        role_assignments.c.user_id == user, role_assignments.c.project_id == place
    )
    domain = sa.select(projects.c.domain_id).where(projects.c.id == place).scalar_subquery()
    here = sa.and_(wide.project_id == place, sa.not_(wide.inherited))
    above = sa.and_(wide.domain_id == domain, wide.inherited)
    return own.union(sa.select(wide.role_id).where(_actor(user), sa.or_(here, above)))


@cache
def _held_in_domain() -> sa.Select[Any]:
    wide = wider_role_assignments.c
    here = sa.and_(wide.domain_id == _parameter("place"), sa.not_(wide.inherited))
    return sa.select(wide.role_id).where(_actor(_parameter("user")), here)


@cache
def _held_in_system() -> sa.CompoundSelect[Any]:
    wide, user = wider_role_assignments.c, _parameter("user")
    own = sa.select(system_role_assignments.c.role_id).where(system_role_assignments.c.user_id == user)
    everywhere = sa.and_(wide.project_id.is_(None), wide.domain_id.is_(None))
    return own.union(sa.select(wide.role_id).where(_actor(user), everywhere))


def _parameter(name: str) -> sa.BindParameter[str]:
    return sa.bindparam(name, type_=sa.String)


def projects_of(connection: sa.Connection, user_id: str) -> set[str]:
    """Return the ids of the projects in which a user has any role, by himself, by a group, or inherited."""
    wide = wider_role_assignments.c
    query = (
        sa.select(role_assignments.c.project_id)
        .where(role_assignments.c.user_id == user_id)
        .union(
            sa.select(wide.project_id).where(_actor(user_id), wide.project_id.is_not(None), sa.not_(wide.inherited)),
            sa.select(projects.c.id)
            .join(wider_role_assignments, wide.domain_id == projects.c.domain_id)
            .where(_actor(user_id), wide.inherited),
        )
    )
    return set(connection.execute(query).scalars())


def domains_of(connection: sa.Connection, user_id: str) -> set[str]:
    """Return the ids of the domains in which a user has any role, by himself or by a group."""
    wide = wider_role_assignments.c
    query = sa.select(wide.domain_id).where(_actor(user_id), wide.domain_id.is_not(None), sa.not_(wide.inherited))
    return {str(found) for found in connection.execute(query.distinct()).scalars()}


def _actor(user_id: str | sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    wide = wider_role_assignments.c
    return sa.or_(wide.user_id == user_id, wide.group_id.in_(groups.of_member(user_id)))


def _table(assignment: RoleAssignment) -> sa.Table:
    if assignment.group_id is not None or assignment.domain_id is not None or assignment.inherited:
        return wider_role_assignments
    return system_role_assignments if assignment.project_id is None else role_assignments


def _values(assignment: RoleAssignment) -> dict[str, Any]:
    said = {name: value for name in _FIELDS if (value := getattr(assignment, name)) is not None}
    if _table(assignment) is not wider_role_assignments:
        return said
    return {**said, "id": _id(assignment), "inherited": assignment.inherited}


def _is(assignment: RoleAssignment) -> sa.ColumnElement[bool]:
    table = _table(assignment)
    if table is wider_role_assignments:
        return table.c.id == _id(assignment)
    return sa.and_(*(table.c[name] == value for name, value in _values(assignment).items()))


def _id(assignment: RoleAssignment) -> str:
    said = [f"{name}={value}" for name in _FIELDS if (value := getattr(assignment, name)) is not None]
    return " ".join([*said, "inherited"] if assignment.inherited else said)
