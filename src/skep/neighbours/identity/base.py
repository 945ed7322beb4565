"""The port towards identity: whose token this is, and whether a project exists."""

from __future__ import annotations

from typing import Protocol

import msgspec

from skep.domain.context import RequestContext
from skep.domain.ids import ProjectId, RequestId, UserId
from skep.neighbours.identity.access_rules import Use

MAX_TOKEN_LENGTH = 8192
"""Longer tokens are refused unseen; Keystone's Fernet tokens have about 200 characters."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a valid token speaks for. The project's fields are None where the token is not scoped to one."""

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
    expires_at: int
    """Microseconds since the epoch, UTC."""

    @property
    def is_admin(self) -> bool:
        """Whether the role `admin` is among the roles."""
        return "admin" in self.roles

    def context(self, request_id: RequestId) -> RequestContext:
        """Return what rows and messages may say of the caller; it holds no secret."""
        return RequestContext(
            request_id=request_id,
            project_id=self.project_id or ProjectId(""),
            user_id=self.user_id,
            roles=self.roles,
            project_domain_id=self.project_domain_id or "",
            user_domain_id=self.user_domain_id,
            system_scope=self.system_scope,
        )


class IdentityService(Protocol):
    """Answers for users and projects."""

    async def validate(self, token: str, use: Use | None = None) -> Identity | None:
        """Return whom the token speaks for, or None when it is not (or no longer) valid, or not for this use.

        Without a use a token that is bound to certain requests counts as not valid. Raises Unavailable when the service
        cannot tell now.
        """
        ...

    async def project_exists(self, project_id: str) -> bool | None:
        """Tell whether there is such a project; None when the service does not say.

        Raises Unavailable when nobody can tell now.
        """
        ...


def well_formed(token: str) -> bool:
    """Tell whether a token can be one at all: printable ASCII without spaces, not over-long."""
    return 0 < len(token) <= MAX_TOKEN_LENGTH and token.isascii() and token.isprintable() and " " not in token
