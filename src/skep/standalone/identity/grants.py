"""What a token is good for now: read in one go from the database, for issuing and for validating alike."""

from __future__ import annotations

import msgspec

from skep.database import Connection
from skep.database.api import application_credentials, domains, projects, revoked_tokens, role_assignments, roles, users
from skep.database.api.application_credentials import ApplicationCredential
from skep.database.api.domains import Domain
from skep.database.api.projects import Project
from skep.database.api.role_assignments import RoleScope
from skep.database.api.roles import UserRole
from skep.database.api.users import User
from skep.domain.ids import ProjectId, UserId
from skep.neighbours.identity.access_rules import AccessRule, Use, permits
from skep.neighbours.identity.base import Identity
from skep.standalone.identity.roles import with_implied
from skep.standalone.identity.tokens import TokenPayload


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A payload and what the database says to it."""

    payload: TokenPayload
    user: User
    user_domain: Domain
    project: Project | None
    domain: Domain | None
    """The domain of the project, or the one that the token is for."""
    roles: tuple[UserRole, ...]
    """Those included that others imply."""
    credential: ApplicationCredential | None = None
    """The application credential that the token was made for."""
    identity: Identity

    def is_for(self, use: Use | None) -> bool:
        """Tell whether the token may be shown with a request; without one: whether it is good for all."""
        rules = self.credential.access_rules if self.credential is not None else None
        if rules is None:
            return True
        return use is not None and permits((AccessRule(rule.service, rule.method, rule.path) for rule in rules), use)

    @property
    def own_domain(self) -> str:
        """Id of the domain in which something new is made that names none: the token's, or else the user's."""
        return self.domain.id if self.domain else self.user_domain.id


def load(connection: Connection, payload: TokenPayload) -> Grant | None:
    """Return what a payload is good for; None when it was revoked, or user, scope or roles are gone or disabled."""
    user = users.get(connection, payload.user)
    if user is None or not user.enabled or payload.issued_at <= user.tokens_invalid_before:
        return None
    if revoked_tokens.exists(connection, payload.audit_ids[0]):
        return None
    project: Project | None = None
    domain_id = payload.domain_id
    if payload.project_id is not None:
        project = projects.get(connection, payload.project_id)
        if project is None or not project.enabled:
            return None
        domain_id = project.domain_id
    found = domains.enabled_among(connection, {user.domain_id} | _ids(domain_id))
    user_domain = found.get(user.domain_id)
    if user_domain is None or (domain_id is not None and domain_id not in found):
        return None
    credential: ApplicationCredential | None = None
    if payload.credential_id:
        credential = application_credentials.get(connection, payload.credential_id)
        if credential is None:
            return None
    held = effective_roles(connection, user.id, payload.scope, credential)
    if not held and payload.scope is not None:
        return None
    domain = found.get(domain_id or "")
    return Grant(
        payload=payload,
        user=user,
        user_domain=user_domain,
        project=project,
        domain=domain,
        roles=held,
        credential=credential,
        identity=_identity(payload, user, user_domain, project, domain, held),
    )


def effective_roles(
    connection: Connection, user_id: str, scope: RoleScope | None, credential: ApplicationCredential | None = None
) -> tuple[UserRole, ...]:
    """Return the roles of a user in a scope, with those they imply, as far as a credential has them."""
    given = role_assignments.held(connection, user_id, scope) if scope is not None else set()
    if not given:
        return ()
    known = roles.select(connection)
    names = set(with_implied(role.name for role in known if role.id in given))
    if credential is not None:
        names &= set(with_implied(role.name for role in known if role.id in credential.role_ids))
    return tuple(role for role in known if role.name in names)


def _ids(domain_id: str | None) -> set[str]:
    return set() if domain_id is None else {domain_id}


def _identity(
    payload: TokenPayload,
    user: User,
    user_domain: Domain,
    project: Project | None,
    domain: Domain | None,
    held: tuple[UserRole, ...],
) -> Identity:
    of_project = project is not None and domain is not None
    return Identity(
        user_id=UserId(user.id),
        user_name=user.name,
        user_domain_id=user_domain.id,
        user_domain_name=user_domain.name,
        project_id=ProjectId(project.id) if project else None,
        project_name=project.name if project else None,
        project_domain_id=domain.id if domain and of_project else None,
        project_domain_name=domain.name if domain and of_project else None,
        domain_id=payload.domain_id,
        roles=tuple(role.name for role in held),
        system_scope=payload.system,
        expires_at=payload.expires_at,
    )
