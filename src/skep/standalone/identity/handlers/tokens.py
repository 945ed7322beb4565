"""Tokens: sign in, validate, take back; and what a token's owner may ask of himself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import domains, projects, role_assignments
from skep.database.api.domains import Domain
from skep.database.api.role_assignments import RoleScope
from skep.domain.errors import Forbidden, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.neighbours.identity.base import EXPIRED_SECONDS
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import SIGN_IN_FAULTS, address_of, caller, may
from skep.standalone.identity.credentials import AuthBody
from skep.standalone.identity.filters import flag
from skep.standalone.identity.grants import Grant
from skep.standalone.identity.service import StandaloneIdentity

ACCESS_RULES = "OpenStack-Identity-Access-Rules"
"""The header by which a service says that it keeps access rules."""
SUBJECT = "X-Subject-Token"
"""The header with the token that is asked about."""
OF_SUBJECT = {"allow_expired": BOOLEAN}


@takes(AuthBody, query=("nocatalog",), status=201, faults=SIGN_IN_FAULTS, open_=True)
async def create(
    identity: StandaloneIdentity, request: Request, read: Read[AuthBody]
) -> JsonResponse[answers.OneToken]:
    """Sign in."""
    body = await read()
    token, grant = await identity.sign_in(body.auth, address_of(request))
    shown = views.token(grant, identity.settings, with_catalogue=parameter(request, "nocatalog") is None)
    return json_response({"token": shown}, 201, {SUBJECT: token, "Vary": "X-Auth-Token"})


@operation(query={"nocatalog": STRING, **OF_SUBJECT}, headers=(SUBJECT,), faults=(404,))
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneToken]:
    """Validate: for services and admins any token, for others their own."""
    token, grant = await _subject(identity, request, "service", "admin")
    shown = views.token(grant, identity.settings, with_catalogue=parameter(request, "nocatalog") is None)
    return json_response({"token": shown}, 200, {SUBJECT: token, "Vary": "X-Auth-Token"})


@operation(query=OF_SUBJECT, headers=(SUBJECT,), status=204, faults=(404,))
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Take a token back."""
    _, grant = await _subject(identity, request, "admin")
    await identity.revoke(grant)
    return Response(status_code=204)


@operation()
async def list_projects(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedProjects]:
    """List the projects the caller can have a token for."""
    grant = await caller(identity, request)
    base = base_url(request)
    found = await identity.database.read(
        lambda connection: projects.select(
            connection, ids=role_assignments.projects_of(connection, grant.user.id), enabled=True
        )
    )
    return json_response(
        {"projects": [views.project(item, base) for item in found], "links": views.list_links(base, "auth/projects")}
    )


@operation()
async def list_system(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedSystem]:
    """Tell whether the caller can have a token for the whole system."""
    grant = await caller(identity, request)
    base = base_url(request)
    held = await identity.database.read(
        lambda connection: role_assignments.held(connection, grant.user.id, RoleScope())
    )
    system: list[answers.WholeSystem] = [{"all": True}] if held else []
    return json_response({"system": system, "links": views.list_links(base, "auth/system")})


@operation()
async def list_domains(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedDomains]:
    """List the domains the caller can have a token for."""
    grant = await caller(identity, request)
    base = base_url(request)

    def unit(connection: Connection) -> list[Domain]:
        return domains.select(connection, ids=role_assignments.domains_of(connection, grant.user.id), enabled=True)

    found = await identity.database.read(unit)
    return json_response(
        {"domains": [views.domain(item, base) for item in found], "links": views.list_links(base, "auth/domains")}
    )


@operation()
async def show_catalogue(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneCatalogue]:
    """Show the catalogue to whoever has a scope."""
    grant = await caller(identity, request)
    if not grant.roles:
        raise Forbidden("The token has no scope, so it has no catalogue.")
    base = base_url(request)
    return json_response({"catalog": views.catalogue(identity.settings), "links": {"self": f"{base}/v3/auth/catalog"}})


async def _subject(identity: StandaloneIdentity, request: Request, *roles_allowed: str) -> tuple[str, Grant]:
    who = await caller(identity, request)
    token = request.headers.get(SUBJECT, "")
    expired = EXPIRED_SECONDS if flag(request, "allow_expired") and may(who, "service", "admin") else 0
    grant = await identity.grant(token, expired_seconds=expired)
    keeps_rules = ACCESS_RULES in request.headers
    if grant is not None and not grant.is_for(None) and not keeps_rules:
        # Whoever does not promise to keep the rules of a token must not take it.
        grant = None
    if grant is None or not may(who, *roles_allowed, user_id=grant.user.id):
        # That theirs has ended is told to all. Whether another's is valid is for those who may know whose it is.
        raise NotFound("This is not a valid token.")
    return token, grant
