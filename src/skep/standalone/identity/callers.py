"""Who calls the identity API, and what he may do there."""

from __future__ import annotations

from starlette.requests import Request

from skep.domain.errors import Forbidden, Unauthenticated
from skep.neighbours.identity.access_rules import Use
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.identity.grants import Grant
from skep.standalone.identity.service import StandaloneIdentity

SERVICE_TYPE = "identity"
"""Our name in the catalogue and in access rules of application credentials."""


SIGN_IN_FAULTS = (401, 403, 429, 503)
"""Statuses of what is refused where a password or a secret is the proof."""


async def caller(identity: StandaloneIdentity, request: Request) -> Grant:
    """Return whose token stands in X-Auth-Token.

    Raises Unauthenticated when there is none or it is not valid.
    """
    grant = await identity.grant(request.headers.get("x-auth-token", ""))
    if grant is None or not grant.is_for(Use(SERVICE_TYPE, request.method, request.scope["path"])):
        raise Unauthenticated(UNAUTHENTICATED)
    return grant


async def admin(identity: StandaloneIdentity, request: Request) -> Grant:
    """Return the caller, who must have the role `admin`.

    Raises Unauthenticated or Forbidden.
    """
    return allow(await caller(identity, request), "admin")


def allow(grant: Grant, *roles: str, user_id: str | None = None) -> Grant:
    """Let pass who has one of the roles, or is the user himself.

    Raises Forbidden.
    """
    if may(grant, *roles, user_id=user_id):
        return grant
    raise Forbidden("You are not authorized to perform the requested action.")


def may(grant: Grant, *roles: str, user_id: str | None = None) -> bool:
    """Tell whether the caller has one of the roles, or is the user himself."""
    return grant.user.id == user_id or not set(roles).isdisjoint(grant.identity.roles)


def unlimited(grant: Grant) -> Grant:
    """Let pass whoever may make and delete application credentials: by one of them only if it is unrestricted.

    Raises Forbidden.
    """
    if grant.credential is not None and not grant.credential.unrestricted:
        raise Forbidden("An application credential that is not unrestricted may not make or delete others.")
    return grant


def address_of(request: Request) -> str:
    """Return where a request comes from."""
    return request.client.host if request.client else ""
