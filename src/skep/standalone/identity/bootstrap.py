"""The first users, projects and roles of a new cloud."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping

import msgspec

from skep.database import Connection
from skep.database.api import projects, role_assignments, roles, users
from skep.database.api.projects import Project
from skep.database.api.role_assignments import RoleAssignment
from skep.database.api.roles import UserRole
from skep.database.api.users import User
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.standalone.identity.passwords import Passwords
from skep.standalone.identity.roles import DEFAULT_ROLES

FIRST_PROJECTS = {"admin": "Administration", "demo": "A first project", "service": "The cloud's own services"}

FIRST_USERS = {"admin": ("admin", "admin"), "demo": ("demo", "member")}
"""User -> (project, role there)."""


class Bootstrapped(msgspec.Struct, frozen=True, kw_only=True):
    """What was made. Passwords are told this once: only their hashes are kept."""

    passwords: dict[str, str] = {}
    """Of the users that were made now; empty when all were there."""
    project_ids: dict[str, str] = {}
    """Project name -> id, made now or before."""

    def __repr__(self) -> str:
        """Leaves the passwords out."""
        return f"Bootstrapped(users={sorted(self.passwords)})"


async def ensure_bootstrap(
    database: Database, passwords: Passwords, clock: Clock, *, chosen: Mapping[str, str] | None = None
) -> Bootstrapped:
    """Make the roles, and in a cloud without any user the first projects and users (`admin` and `demo`).

    It may be repeated: what an operator deleted afterwards stays deleted. `chosen` gives passwords (by user name)
    instead of random ones: who has written them to a file beforehand does not lose them when power fails here.
    """
    hashes: dict[str, str] = {}
    fresh: dict[str, str] = {}
    if not await database.read(users.any_exists):
        fresh = {name: (chosen or {}).get(name) or secrets.token_urlsafe(18) for name in FIRST_USERS}
        hashes = {name: await passwords.hash(password) for name, password in fresh.items()}
    return await database.write(lambda connection: _ensure(connection, clock.now(), fresh, hashes))


def _ensure(connection: Connection, now: int, fresh: dict[str, str], hashes: dict[str, str]) -> Bootstrapped:
    role_ids = {name: _role(connection, name) for name in DEFAULT_ROLES}
    if users.any_exists(connection):
        known = {project.name: project.id for project in projects.select(connection)}
        return Bootstrapped(project_ids={name: known[name] for name in FIRST_PROJECTS if name in known})
    project_ids = {name: _project(connection, name, text, now) for name, text in FIRST_PROJECTS.items()}
    for name, password_hash in hashes.items():
        project_name, role = FIRST_USERS[name]
        user = User(
            id=uuid.uuid4().hex,
            name=name,
            password_hash=password_hash,
            default_project_id=project_ids[project_name],
            created_at=now,
        )
        users.insert(connection, user)
        _assign(connection, user.id, project_ids[project_name], role_ids[role])
        if role == "admin":
            _assign(connection, user.id, None, role_ids[role])
    return Bootstrapped(passwords=fresh, project_ids=project_ids)


def _role(connection: Connection, name: str) -> str:
    role = roles.by_name(connection, name)
    if role is None:
        role = UserRole(id=uuid.uuid4().hex, name=name)
        roles.insert(connection, role)
    return role.id


def _project(connection: Connection, name: str, description: str, now: int) -> str:
    project = projects.by_name(connection, name)
    if project is None:
        project = Project(id=uuid.uuid4().hex, name=name, description=description, created_at=now)
        projects.insert(connection, project)
    return project.id


def _assign(connection: Connection, user_id: str, project_id: str | None, role_id: str) -> None:
    role_assignments.assign(connection, RoleAssignment(user_id=user_id, project_id=project_id, role_id=role_id))
