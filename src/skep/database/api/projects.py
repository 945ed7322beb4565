"""Projects of the embedded identity service."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import names_in_domains
from skep.database.api.identity_tables import projects
from skep.database.api.names_in_domains import FIRST_DOMAIN
from skep.domain.errors import Conflict


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """What owns servers and images and has a quota."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    created_at: int = 0
    domain_id: str = FIRST_DOMAIN


def insert(connection: sa.Connection, project: Project) -> None:
    """Store a new project.

    Raises Conflict when the name is taken in its domain.
    """
    _refuse_taken_name(connection, project)
    connection.execute(projects.insert().values(_columns(project)))


def update(connection: sa.Connection, project: Project) -> None:
    """Store what changed of a project.

    Raises Conflict when the name is taken by another of its domain.
    """
    _refuse_taken_name(connection, project)
    connection.execute(projects.update().where(projects.c.id == project.id).values(_columns(project)))


def delete(connection: sa.Connection, project_id: str) -> bool:
    """Remove a project and the roles in it; false when there is none."""
    return connection.execute(projects.delete().where(projects.c.id == project_id)).rowcount > 0


def get(connection: sa.Connection, project_id: str) -> Project | None:
    """Return one project by its id."""
    row = connection.execute(_ONE, {"of": project_id}).first()
    return None if row is None else _project(row)


_ONE = projects.select().where(projects.c.id == sa.bindparam("of"))
"""Made once: each process asks for the projects of tokens again and again."""


def by_name(connection: sa.Connection, name: str, domain_id: str = FIRST_DOMAIN) -> Project | None:
    """Return one project by its name and domain."""
    return _first(connection, projects.c.name == names_in_domains.stored(name, domain_id))


def select(
    connection: sa.Connection,
    *,
    name: str | None = None,
    enabled: bool | None = None,
    ids: set[str] | None = None,
    domain_id: str | None = None,
) -> list[Project]:
    """Return projects by name; every argument that is given narrows the list."""
    query = projects.select().order_by(projects.c.name)
    if name is not None:
        query = query.where(names_in_domains.is_named(projects.c.name, name))
    if enabled is not None:
        query = query.where(projects.c.enabled == enabled)
    if ids is not None:
        query = query.where(projects.c.id.in_(ids))
    if domain_id is not None:
        query = query.where(projects.c.domain_id == domain_id)
    return [_project(row) for row in connection.execute(query)]


def _refuse_taken_name(connection: sa.Connection, project: Project) -> None:
    other = by_name(connection, project.name, project.domain_id)
    if other is not None and other.id != project.id:
        raise Conflict(f"a project named {project.name!r} exists already")


def _columns(project: Project) -> dict[str, object]:
    return {**msgspec.structs.asdict(project), "name": names_in_domains.stored(project.name, project.domain_id)}


def _first(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> Project | None:
    row = connection.execute(projects.select().where(condition)).first()
    return None if row is None else _project(row)


def _project(row: sa.Row[tuple[object, ...]]) -> Project:
    return Project(**{**row._mapping, "name": names_in_domains.shown(row.name)})
