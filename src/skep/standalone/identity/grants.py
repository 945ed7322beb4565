"""What a token is good for now: read in one go from the database, for issuing and for validating alike."""

from __future__ import annotations

import msgspec

from skep.database import Connection
from skep.database.api import projects, revoked_tokens, roles, users
from skep.database.api.projects import Project
from skep.database.api.roles import UserRole
from skep.database.api.users import User
from skep.domain.ids import ProjectId, UserId
from skep.neighbours.identity.base import Identity
from skep.standalone.identity.roles import with_implied
from skep.standalone.identity.tokens import TokenPayload


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A payload and what the database says to it."""

    payload: TokenPayload
    user: User
    project: Project | None
    roles: tuple[UserRole, ...]
    """Those included that others imply."""
    identity: Identity


def load(connection: Connection, payload: TokenPayload) -> Grant | None:
    """Return what a payload is good for; None when it was revoked, or user, project or roles are gone."""
    user = users.get(connection, payload.user_id)
    if user is None or not user.enabled or payload.issued_at <= user.tokens_invalid_before:
        return None
    if revoked_tokens.exists(connection, payload.audit_ids[0]):
        return None
    project: Project | None = None
    if payload.project_id is not None:
        project = projects.get(connection, payload.project_id)
        if project is None or not project.enabled:
            return None
    held = effective_roles(connection, user.id, payload.project_id, system=payload.system)
    if not held and (payload.system or project is not None):
        return None
    return Grant(
        payload=payload, user=user, project=project, roles=held, identity=_identity(payload, user, project, held)
    )


def effective_roles(
    connection: Connection, user_id: str, project_id: str | None, *, system: bool
) -> tuple[UserRole, ...]:
    """Return the roles of a user in a project or in the system, with those they imply."""
    if system:
        given = roles.in_system(connection, user_id)
    elif project_id is not None:
        given = roles.in_project(connection, user_id, project_id)
    else:
        return ()
    names = set(with_implied(role.name for role in given))
    return tuple(role for role in roles.select(connection) if role.name in names)


def _identity(payload: TokenPayload, user: User, project: Project | None, held: tuple[UserRole, ...]) -> Identity:
    return Identity(
        user_id=UserId(user.id),
        user_name=user.name,
        project_id=ProjectId(project.id) if project else None,
        project_name=project.name if project else None,
        project_domain_id="default" if project else None,
        project_domain_name="Default" if project else None,
        roles=tuple(role.name for role in held),
        system_scope=payload.system,
        expires_at=payload.expires_at,
    )
