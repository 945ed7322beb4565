"""Three users of the admin API in tests: an admin, a member of the project that owns things, and a stranger."""

from __future__ import annotations

from skep.domain.ids import ProjectId, UserId
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity

PROJECT = ProjectId("a" * 32)
ROLES = {"admin": ("admin", "member"), "owner": ("member",), "stranger": ("member",)}


class Tokens:
    """An identity service for which the token is the user's name."""

    def remembers(self, _token: str) -> bool:
        return True

    async def validate(self, token: str, use: Use | None = None, *, chained: bool = False) -> Identity | None:  # noqa: ARG002
        if token not in ROLES:
            return None
        project = ProjectId("b" * 32) if token == "stranger" else PROJECT
        return Identity(
            user_id=UserId(token), user_name=token, project_id=project, roles=ROLES[token], expires_at=2**60
        )

    async def project_exists(self, project_id: str) -> bool | None: ...
