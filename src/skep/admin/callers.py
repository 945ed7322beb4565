"""Who asks the admin API: a user with a token of the identity service, or a program with a credential.

A credential is bound to one cell or one namespace. What lies outside of that does not exist for it (404); what it may
not do at all is forbidden (403).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from skep.admin.services import AdminServices
from skep.database.api import credentials
from skep.domain.context import RequestContext
from skep.domain.credentials import Scope, Token, parse
from skep.domain.errors import Unauthenticated
from skep.domain.ids import RequestId, UserId
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import well_formed

SCHEME = "bearer"
SERVICE_TYPE = "compute"
"""The service that access rules of application credentials name: this API stands beside the compute API."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what his credential is bound to."""

    context: RequestContext
    scope: Scope | None = None
    """None: a user."""
    token: Token | None = None
    """Of who is not signed in and shows a token that the handler judges."""


async def authenticate(services: AdminServices, request: Request) -> Caller:
    """Return who asks. Raises Unauthenticated without a valid token or credential."""
    request_id = RequestId(request.state.request_id)
    authorization = request.headers.get("authorization")
    if authorization is not None:
        return await _program(services, authorization, request_id)
    token = request.headers.get("x-auth-token", "")
    use = Use(SERVICE_TYPE, request.method, request.scope["path"])
    identity = await services.identity.validate(token, use) if well_formed(token) else None
    if identity is None:
        raise Unauthenticated("X-Auth-Token: expected a valid token.")
    return Caller(identity.context(request_id))


async def authenticate_counted(services: AdminServices, request: Request) -> Caller:
    """Return who asks; a request without a valid token or credential counts for its address.

    Raises Unauthenticated as `authenticate`, TooManyRequests for an address that made up too many.
    """
    token = request.headers.get("x-auth-token")
    if "authorization" in request.headers or (token is not None and not services.identity.remembers(token)):
        # An address that made up so many has no further one looked up.
        services.limits.check_address(request.scope)
    try:
        return await authenticate(services, request)
    except Unauthenticated:
        services.limits.count_address(request.scope)
        raise


def bearer(request: Request) -> Caller:
    """Return who asks with a token that is no credential; its handler judges it."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    token = parse(text.strip()) if scheme.lower() == SCHEME else None
    nobody = RequestContext(request_id=RequestId(request.state.request_id), user_id=UserId(""))
    return Caller(nobody, token=token)


async def _program(services: AdminServices, authorization: str, request_id: RequestId) -> Caller:
    scheme, _, text = authorization.partition(" ")
    token = parse(text.strip()) if scheme.lower() == SCHEME else None
    if token is None:
        raise Unauthenticated(
            "The header Authorization holds no credential of Skep (`Bearer skep_...`). A token of a user goes into the "
            "header X-Auth-Token."
        )
    scope = await _scope(services, token)
    context = RequestContext(request_id=request_id, user_id=UserId(f"credential:{token.id}"))
    return Caller(context, scope)


async def _scope(services: AdminServices, token: Token) -> Scope:
    now = services.clock.now()
    found = await services.database.read(partial(credentials.find, token=token, now=now))
    if found is None:
        raise Unauthenticated("Authorization: the credential is unknown or has expired.")
    if credentials.needs_mark(found, now):
        await services.database.write(partial(credentials.mark_used, id_=found.id, now=now))
    return found.scope
