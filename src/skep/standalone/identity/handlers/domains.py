"""Domains: for admins; everybody may see his own."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import domains
from skep.database.api.domains import Domain
from skep.database.api.names_in_domains import FIRST_DOMAIN
from skep.domain.errors import BadRequest, Forbidden, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin, allow, caller
from skep.standalone.identity.filters import OF_NAMES, check_same_id, flag, with_names
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME, TEXT


class DomainFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a domain."""

    id: str | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=4096, pattern=TEXT)] | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    tags: Annotated[list[str], Meta(max_length=0)] | UnsetType = UNSET
    options: Annotated[dict[str, Any], Meta(max_length=0)] | UnsetType = UNSET


class DomainBody(msgspec.Struct, frozen=True):
    """The body of create and update."""

    domain: DomainFields


@operation(query=OF_NAMES | {"name": STRING, "enabled": BOOLEAN})
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedDomains]:
    """List domains."""
    await admin(identity, request)
    base = base_url(request)
    name, enabled = parameter(request, "name"), flag(request, "enabled")
    found = await identity.database.read(lambda connection: domains.select(connection, name=name, enabled=enabled))
    shown = [views.domain(item, base) for item in with_names(request, found)]
    return json_response({"domains": shown, "links": views.list_links(base, "domains")})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneDomain]:
    """Show a domain to admins, and to those who belong to it or have a token for it or for a project of it."""
    domain_id = request.path_params["domain_id"]
    grant = await caller(identity, request)
    if domain_id not in (grant.user_domain.id, grant.domain.id if grant.domain else None):
        allow(grant, "admin")
    domain = await identity.database.read(lambda connection: find(connection, domain_id))
    return json_response({"domain": views.domain(domain, base_url(request))})


@takes(DomainBody, status=201)
async def create(
    identity: StandaloneIdentity, request: Request, read: Read[DomainBody]
) -> JsonResponse[answers.OneDomain]:
    """Make a domain."""
    await admin(identity, request)
    fields = (await read()).domain
    check_same_id(fields.id, None, "domain.id")
    if fields.name is UNSET:
        raise BadRequest("domain.name: expected a value")
    domain = _changed(Domain(id=uuid.uuid4().hex, name=fields.name, created_at=identity.clock.now()), fields)
    await identity.change(lambda connection: domains.insert(connection, domain))
    return json_response({"domain": views.domain(domain, base_url(request))}, 201)


@takes(DomainBody)
async def update(
    identity: StandaloneIdentity, request: Request, read: Read[DomainBody]
) -> JsonResponse[answers.OneDomain]:
    """Change a domain; tokens of users of a disabled one, and for what is in it, are not valid."""
    await admin(identity, request)
    domain_id = request.path_params["domain_id"]
    fields = (await read()).domain
    check_same_id(fields.id, domain_id, "domain.id")
    if domain_id == FIRST_DOMAIN and fields.enabled is False:
        raise Forbidden("The first domain cannot be disabled: its admins could not sign in any more.")

    def unit(connection: Connection) -> Domain:
        domain = _changed(find(connection, domain_id), fields)
        domains.update(connection, domain)
        return domain

    domain = await identity.change(unit)
    return json_response({"domain": views.domain(domain, base_url(request))})


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a disabled domain with its users, groups and projects; servers and images are not touched."""
    await admin(identity, request)
    domain_id = request.path_params["domain_id"]

    def unit(connection: Connection) -> None:
        if domain_id == FIRST_DOMAIN:
            raise Forbidden("The first domain cannot be deleted.")
        if find(connection, domain_id).enabled:
            raise Forbidden("Cannot delete a domain that is enabled, please disable it first.")
        domains.delete(connection, domain_id)

    await identity.change(unit)
    return Response(status_code=204)


def find(connection: Connection, domain_id: str) -> Domain:
    """Return a domain.

    Raises NotFound.
    """
    domain = domains.get(connection, domain_id)
    if domain is None:
        raise NotFound(f"Could not find domain: {domain_id}.")
    return domain


def chosen(connection: Connection, domain_id: str, field: str) -> str:
    """Return the id of a domain that a body names for something new.

    Raises BadRequest.
    """
    if domains.get(connection, domain_id) is None:
        raise BadRequest(f"{field}: there is no domain {domain_id}")
    return domain_id


def _changed(domain: Domain, fields: DomainFields) -> Domain:
    values: dict[str, Any] = {
        name: value for name in ("name", "enabled") if (value := getattr(fields, name)) is not UNSET
    }
    if fields.description is not UNSET:
        values["description"] = fields.description or ""
    return msgspec.structs.replace(domain, **values)
