"""Who asks the admin API: a user with a token of the identity service, or a program with a credential.

A credential is bound to one cell or one namespace. What lies outside of that does not exist for it (404); what it may
not do at all is forbidden (403).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import structlog
from starlette.requests import Request

from skep.admin.services import AdminServices
from skep.database.api import credentials, enrolments
from skep.domain.context import RequestContext
from skep.domain.credentials import Scope, Token, parse
from skep.domain.errors import Forbidden, Unauthenticated
from skep.domain.ids import RequestId, UserId
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import well_formed

SCHEME = "bearer"
SERVICE_TYPE = "compute"
"""The service that access rules of application credentials name: this API stands beside the compute API."""

log = structlog.get_logger("skep.admin")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what his credential is bound to."""

    context: RequestContext
    scope: Scope | None = None
    """None: a user."""
    token: Token | None = None
    """Of who enrols a host: the token, which is known here; its handler judges whether it has a use left."""


async def authenticate(services: AdminServices, request: Request) -> Caller:
    """Return who asks; a request without a valid token or credential counts for its address.

    Raises Unauthenticated for one, TooManyRequests for an address that made up too many.
    """
    token = request.headers.get("x-auth-token")
    if "authorization" in request.headers or (token is not None and not services.identity.remembers(token)):
        # An address that made up so many has no further one looked up.
        services.limits.check_address(request.scope)
    try:
        return await _known(services, request)
    except Unauthenticated:
        services.limits.count_address(request.scope)
        raise


async def new_host(services: AdminServices, request: Request) -> Caller:
    """Return who asks with an enrolment token, whose uses its handler judges; a made-up one counts for its address.

    Raises Unauthenticated where it shows none, Forbidden for one that is not known here, TooManyRequests for an address
    that made up too many.
    """
    services.limits.check_address(request.scope)
    try:
        return await _enrolling(services, request)
    except (Unauthenticated, Forbidden):
        services.limits.count_address(request.scope)
        raise


async def _known(services: AdminServices, request: Request) -> Caller:
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


async def _enrolling(services: AdminServices, request: Request) -> Caller:
    token = _bearer(request.headers.get("authorization", ""))
    if token is None:
        raise Unauthenticated("Authorization: expected an enrolment token (`Bearer skep_...`).")
    if not await services.database.read(partial(enrolments.knows, token=token)):
        log.warning("enrolment denied", token=token.id, reason=enrolments.UNKNOWN.reason)
        raise Forbidden(enrolments.UNKNOWN.reason)
    nobody = RequestContext(request_id=RequestId(request.state.request_id), user_id=UserId(""))
    return Caller(nobody, token=token)


def _bearer(authorization: str) -> Token | None:
    """Return the token of Skep that a header holds."""
    scheme, _, text = authorization.partition(" ")
    return parse(text.strip()) if scheme.lower() == SCHEME else None


async def _program(services: AdminServices, authorization: str, request_id: RequestId) -> Caller:
    token = _bearer(authorization)
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
