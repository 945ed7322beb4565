"""Roles, and which of them others imply."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import roles
from skep.database.api.roles import UserRole
from skep.domain.errors import BadRequest, Forbidden, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin, allow, caller
from skep.standalone.identity.filters import OF_NAMES, check_same_id, with_names
from skep.standalone.identity.roles import DEFAULT_ROLES, IMPLIED
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME, TEXT

FIXED = "Which roles imply others is the same in every cloud here: admin, manager, member, reader, each the next."


class RoleFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a role. There are no roles of a domain alone."""

    id: str | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=4096, pattern=TEXT)] | UnsetType | None = UNSET
    domain_id: None = None
    options: Annotated[dict[str, Any], Meta(max_length=0)] = {}


class RoleBody(msgspec.Struct, frozen=True):
    """The body of create and update."""

    role: RoleFields


@operation(query=("name", "domain_id", *OF_NAMES))
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedRoles]:
    """List roles."""
    allow(await caller(identity, request), "admin", "manager")
    base = base_url(request)
    name, of_domain = parameter(request, "name"), parameter(request, "domain_id") is not None
    found = [] if of_domain else await identity.database.read(lambda connection: roles.select(connection, name=name))
    shown = [views.role(item, base) for item in with_names(request, found)]
    return json_response({"roles": shown, "links": views.list_links(base, "roles")})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneRole]:
    """Show a role."""
    allow(await caller(identity, request), "admin", "manager")
    role = await identity.database.read(lambda connection: find(connection, request.path_params["role_id"]))
    return json_response({"role": views.role(role, base_url(request))})


@takes(RoleBody, status=201)
async def create(identity: StandaloneIdentity, request: Request, read: Read[RoleBody]) -> JsonResponse[answers.OneRole]:
    """Make a role, for policy rules of the operator's own."""
    await admin(identity, request)
    fields = (await read()).role
    check_same_id(fields.id, None, "role.id")
    if fields.name is UNSET:
        raise BadRequest("role.name: expected a value")
    role = _changed(UserRole(id=uuid.uuid4().hex, name=fields.name), fields)
    await identity.change(lambda connection: roles.insert(connection, role))
    return json_response({"role": views.role(role, base_url(request))}, 201)


@takes(RoleBody)
async def update(identity: StandaloneIdentity, request: Request, read: Read[RoleBody]) -> JsonResponse[answers.OneRole]:
    """Change a role; the default ones keep their names."""
    await admin(identity, request)
    role_id = request.path_params["role_id"]
    fields = (await read()).role
    check_same_id(fields.id, role_id, "role.id")

    def unit(connection: Connection) -> UserRole:
        before = find(connection, role_id)
        role = _changed(before, fields)
        if role.name != before.name and before.name in DEFAULT_ROLES:
            raise Forbidden(f"The role {before.name} belongs to every cloud and keeps its name.")
        roles.update(connection, role)
        return role

    role = await identity.change(unit)
    return json_response({"role": views.role(role, base_url(request))})


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a role that is not one of the default ones."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        role = find(connection, request.path_params["role_id"])
        if role.name in DEFAULT_ROLES:
            raise Forbidden(f"The role {role.name} belongs to every cloud and cannot be deleted.")
        roles.delete(connection, role.id)

    await identity.change(unit)
    return Response(status_code=204)


@operation()
async def list_inferences(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedInferences]:
    """List which roles imply others."""
    await admin(identity, request)
    base = base_url(request)
    known = {role.name: role for role in await identity.database.read(roles.select)}
    shown: list[answers.ShownInferences] = [
        {"prior_role": _brief(known[prior], base), "implies": [_brief(known[implied], base)]}
        for prior, implied in IMPLIED.items()
        if prior in known and implied in known
    ]
    return json_response({"role_inferences": shown, "links": views.list_links(base, "role_inferences")})


@operation()
async def list_implied(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneInferences]:
    """List the roles that a role implies by itself."""
    await admin(identity, request)
    base = base_url(request)

    def unit(connection: Connection) -> tuple[UserRole, UserRole | None]:
        prior = find(connection, request.path_params["prior_role_id"])
        return prior, roles.by_name(connection, IMPLIED.get(prior.name, ""))

    prior, implied = await identity.database.read(unit)
    implies = [_brief(implied, base)] if implied else []
    shown: answers.ShownInferences = {"prior_role": _brief(prior, base), "implies": implies}
    return json_response({"role_inference": shown, "links": {"self": f"{base}/v3/roles/{prior.id}/implies"}})


@operation()
async def show_implied(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneInference]:
    """Tell that a role implies another."""
    await admin(identity, request)
    base = base_url(request)
    prior, implied = await identity.database.read(lambda connection: _pair(connection, request))
    if IMPLIED.get(prior.name) != implied.name:
        raise NotFound(f"{prior.id} does not imply {implied.id}")
    return json_response({"role_inference": {"prior_role": _brief(prior, base), "implies": _brief(implied, base)}})


@operation(status=())
async def change_implied(identity: StandaloneIdentity, request: Request) -> Response:
    """Refuse to change which roles imply others."""
    await admin(identity, request)
    await identity.database.read(lambda connection: _pair(connection, request))
    raise Forbidden(FIXED)


def find(connection: Connection, role_id: str) -> UserRole:
    """Return a role.

    Raises NotFound.
    """
    role = roles.get(connection, role_id)
    if role is None:
        raise NotFound(f"Could not find role: {role_id}.")
    return role


def _pair(connection: Connection, request: Request) -> tuple[UserRole, UserRole]:
    values = request.path_params
    return find(connection, values["prior_role_id"]), find(connection, values["implied_role_id"])


def _changed(role: UserRole, fields: RoleFields) -> UserRole:
    values: dict[str, Any] = {} if fields.name is UNSET else {"name": fields.name}
    if fields.description is not UNSET:
        values["description"] = fields.description or ""
    return msgspec.structs.replace(role, **values)


def _brief(role: UserRole, base: str) -> answers.RoleInBrief:
    return {"id": role.id, "name": role.name, "links": {"self": f"{base}/v3/roles/{role.id}"}}
