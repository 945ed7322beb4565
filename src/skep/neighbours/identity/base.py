"""The port towards identity: the caller of a token, and whether a project exists."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import msgspec

from skep.domain.context import DomainContext, RequestContext
from skep.domain.ids import ProjectId, RequestId, UserId
from skep.neighbours.identity.access_rules import Use

MAX_TOKEN_LENGTH = 8192
"""Longer tokens are refused unseen; Keystone's Fernet tokens have about 200 characters."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a valid token. The project's fields are None for a token without a project."""

    user_id: UserId
    user_name: str
    user_domain_id: str = "default"
    user_domain_name: str = "Default"
    project_id: ProjectId | None = None
    project_name: str | None = None
    project_domain_id: str | None = None
    project_domain_name: str | None = None
    roles: tuple[str, ...] = ()
    """Names, those included that others imply."""
    system_scope: bool = False
    domain_id: str | None = None
    """Of a token that is for a domain."""
    expires_at: int
    """Microseconds since the epoch, UTC."""

    @property
    def is_admin(self) -> bool:
        """Whether the role `admin` is among the roles."""
        return "admin" in self.roles

    def context(self, request_id: RequestId) -> RequestContext:
        """Return the caller's facts for rows and messages; they contain no secret."""
        kind = RequestContext if self.domain_id is None else partial(DomainContext, domain_id=self.domain_id)
        return kind(
            request_id=request_id,
            project_id=self.project_id or ProjectId(""),
            user_id=self.user_id,
            roles=self.roles,
            project_domain_id=self.project_domain_id or "",
            user_domain_id=self.user_domain_id,
            system_scope=self.system_scope,
            user_name=self.user_name,
            project_name=self.project_name or "",
        )


EXPIRED_SECONDS = 172_800
"""So long after its end a token is good in the hands of a service (Keystone's `allow_expired_window`)."""


class IdentityService(Protocol):
    """Answers for users and projects."""

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:
        """Return the caller of the token, or None for a token that is invalid, expired or not for this use.

        `chained`: a service that has proven itself shows it for a user whose request it works on. Then the token may
        have expired within the time that the service allows, and access rules are not applied: they were, where the
        user asked. Without a use a token that is bound to certain requests counts as invalid.

        Raises Unavailable when the service does not answer.
        """
        ...

    def remembers(self, token: str) -> bool:
        """Tell whether `validate` may answer for this token without a request to another service."""
        ...

    async def project_exists(self, project_id: str) -> bool | None:
        """Return whether the project exists; None if the service does not reveal it. Raises Unavailable when the
        service does not answer."""
        ...


def well_formed(token: str) -> bool:
    """Return whether a text can be a token: printable ASCII without spaces, of limited length."""
    return 0 < len(token) <= MAX_TOKEN_LENGTH and token.isascii() and token.isprintable() and " " not in token
