"""Who calls the network service, and what he may do there."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.requests import Request

from skep.database import Connection
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import Unauthenticated
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import IdentityService
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.networks.refusals import NotPermitted
from skep.standalone.networks.settings import NetworksSettings

READERS = frozenset({"reader", "member", "manager", "admin", "service"})
WRITERS = frozenset({"member", "manager", "admin"})
SERVICE_TYPE = "network"
"""Our name in the catalogue and in access rules of application credentials."""


class NetworksApi(msgspec.Struct, frozen=True):
    """What the handlers need."""

    database: Database
    clock: Clock
    identity: IdentityService
    settings: NetworksSettings


class NetworkCaller(msgspec.Struct, frozen=True, kw_only=True):
    """For whom something is looked up or done."""

    project_id: str
    """Empty: the token is of no project."""
    is_admin: bool = False
    """Sees and changes what any project owns."""

    def owns(self, project_id: str) -> bool:
        """Tell whether what this project owns is the caller's to change."""
        return self.is_admin or (project_id != "" and project_id == self.project_id)


class NetworkWork(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of work: for whom, when, and over which connection."""

    connection: Connection
    caller: NetworkCaller
    settings: NetworksSettings
    now: int
    """Microseconds since the epoch."""


async def reader(api: NetworksApi, request: Request) -> NetworkCaller:
    """Return the caller, who may look.

    Raises Unauthenticated or Forbidden.
    """
    return await _caller(api, request, READERS)


async def writer(api: NetworksApi, request: Request) -> NetworkCaller:
    """Return the caller, who may make and change things of his project.

    Raises Unauthenticated or Forbidden.
    """
    return await _caller(api, request, WRITERS)


async def _caller(api: NetworksApi, request: Request, roles: Collection[str]) -> NetworkCaller:
    use = Use(SERVICE_TYPE, request.method, request.scope["path"])
    identity = await api.identity.validate(request.headers.get("x-auth-token", ""), use)
    if identity is None:
        raise Unauthenticated(UNAUTHENTICATED)
    if not set(roles) & set(identity.roles) or (not identity.project_id and not identity.is_admin):
        raise NotPermitted(f"{request.method} {request.scope['path']}")
    return NetworkCaller(project_id=identity.project_id or "", is_admin=identity.is_admin)
