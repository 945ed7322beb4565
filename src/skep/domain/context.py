"""The origin of a request. It travels in rows and messages and never holds a token."""

from __future__ import annotations

import msgspec

from skep.domain.ids import ProjectId, RequestId, UserId


class RequestContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request id, project, user and roles of a request; no secret."""

    request_id: RequestId
    project_id: ProjectId = ProjectId("")
    user_id: UserId = UserId("")
    roles: tuple[str, ...] = ()
    project_domain_id: str = "default"
    user_domain_id: str = "default"
    system_scope: bool = False
    user_name: str = ""
    project_name: str = ""
    """Names at the time of the request, empty if unknown; rights depend on the ids."""
    traceparent: str = ""
    """Where the request stands in its trace, in the form of W3C's header; empty where nothing is traced."""

    @property
    def is_admin(self) -> bool:
        """Whether the caller has the role `admin`."""
        return "admin" in self.roles


class DomainContext(RequestContext, frozen=True, kw_only=True, omit_defaults=True):
    """A request with a token of a domain. No rule lets it change anything, so it never travels."""

    domain_id: str
