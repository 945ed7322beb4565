"""Roles, and who has them where."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import projects, roles, users
from skep.database.api.roles import RoleAssignment, UserRole
from skep.domain.errors import Forbidden, NotFound
from skep.http.answers import json_response
from skep.http.bodies import read_json
from skep.http.urls import base_url
from skep.standalone.identity import views
from skep.standalone.identity.callers import admin, allow, caller
from skep.standalone.identity.filters import flag
from skep.standalone.identity.handlers.projects import find as find_project
from skep.standalone.identity.handlers.users import find as find_user
from skep.standalone.identity.roles import DEFAULT_ROLES, with_implied
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME


class RoleFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a role."""

    name: Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
    description: None = None
    domain_id: None = None
    options: Annotated[dict[str, Any], Meta(max_length=0)] = {}


class RoleBody(msgspec.Struct, frozen=True):
    """The body of create."""

    role: RoleFields


async def list_(identity: StandaloneIdentity, request: Request) -> Response:
    """List roles."""
    allow(await caller(identity, request), "admin", "manager")
    base = base_url(request)
    name = request.query_params.get("name")
    found = await identity.database.read(lambda connection: roles.select(connection, name=name))
    return json_response(views.listed("roles", [views.role(item, base) for item in found], base, "roles"))


async def show(identity: StandaloneIdentity, request: Request) -> Response:
    """Show a role."""
    allow(await caller(identity, request), "admin", "manager")
    role = await identity.database.read(lambda connection: _find(connection, request.path_params["role_id"]))
    return json_response({"role": views.role(role, base_url(request))})


async def create(identity: StandaloneIdentity, request: Request) -> Response:
    """Make a role, for policy rules of the operator's own."""
    await admin(identity, request)
    fields = (await read_json(request, RoleBody)).role
    role = UserRole(id=uuid.uuid4().hex, name=fields.name)
    await identity.change(lambda connection: roles.insert(connection, role))
    return json_response({"role": views.role(role, base_url(request))}, 201)


async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a role that is not one of the default ones."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        role = _find(connection, request.path_params["role_id"])
        if role.name in DEFAULT_ROLES:
            raise Forbidden(f"The role {role.name} belongs to every cloud and cannot be deleted.")
        roles.delete(connection, role.id)

    await identity.change(unit)
    return Response(status_code=204)


async def assign(identity: StandaloneIdentity, request: Request) -> Response:
    """Give a role to a user in a project or in the system."""
    await admin(identity, request)
    await identity.change(lambda connection: roles.assign(connection, _assignment(connection, request)))
    return Response(status_code=204)


async def check(identity: StandaloneIdentity, request: Request) -> Response:
    """Tell whether a role was given."""
    await admin(identity, request)
    given = await identity.database.read(
        lambda connection: roles.is_assigned(connection, _assignment(connection, request))
    )
    if not given:
        raise NotFound("Could not find role assignment.")
    return Response(status_code=204)


async def unassign(identity: StandaloneIdentity, request: Request) -> Response:
    """Take a role away; tokens lose it at once."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        if not roles.unassign(connection, _assignment(connection, request)):
            raise NotFound("Could not find role assignment.")

    await identity.change(unit)
    return Response(status_code=204)


async def list_assigned(identity: StandaloneIdentity, request: Request) -> Response:
    """List the roles that were given to a user in a project or in the system."""
    await admin(identity, request)
    base = base_url(request)
    user_id, project_id = request.path_params["user_id"], request.path_params.get("project_id")

    def unit(connection: Connection) -> list[UserRole]:
        find_user(connection, user_id)
        if project_id is None:
            return roles.in_system(connection, user_id)
        find_project(connection, project_id)
        return roles.in_project(connection, user_id, project_id)

    found = await identity.database.read(unit)
    path = request.url.path.removeprefix("/v3/")
    return json_response(views.listed("roles", [views.role(item, base) for item in found], base, path))


async def list_assignments(identity: StandaloneIdentity, request: Request) -> Response:
    """List who has which role where; `effective` adds what roles imply."""
    await admin(identity, request)
    base = base_url(request)
    found = await identity.database.read(lambda connection: _assignments(connection, request))
    return json_response(views.listed("role_assignments", found, base, "role_assignments"))


def _assignments(connection: Connection, request: Request) -> list[dict[str, Any]]:
    query = request.query_params
    if "group.id" in query or "scope.domain.id" in query or "scope.OS-INHERIT:inherited_to" in query:
        return []
    user_names = {user.id: user.name for user in users.select(connection)}
    project_names = {project.id: project.name for project in projects.select(connection)}
    role_names = {role.id: role.name for role in roles.select(connection)}
    given = roles.assignments(connection)
    if flag(request, "effective"):
        given = _effective(given, role_names)
    wanted = {
        "user_id": query.get("user.id"),
        "project_id": query.get("scope.project.id"),
        "role_id": query.get("role.id"),
    }
    shown = []
    for item in given:
        if any(value is not None and getattr(item, name) != value for name, value in wanted.items()):
            continue
        if "scope.system" in query and item.project_id is not None:
            continue
        shown.append(_shown(item, user_names, project_names, role_names, names=bool(flag(request, "include_names"))))
    return shown


def _effective(given: list[RoleAssignment], role_names: dict[str, str]) -> list[RoleAssignment]:
    role_ids = {name: role_id for role_id, name in role_names.items()}
    found = {
        (item.user_id, item.project_id, role_ids[name])
        for item in given
        for name in with_implied([role_names[item.role_id]])
        if name in role_ids
    }
    ordered = sorted(found, key=lambda key: (key[1] is None, key[1] or "", key[0], key[2]))
    return [RoleAssignment(user_id=user, project_id=project, role_id=role) for user, project, role in ordered]


def _shown(
    item: RoleAssignment,
    user_names: dict[str, str],
    project_names: dict[str, str],
    role_names: dict[str, str],
    *,
    names: bool,
) -> dict[str, Any]:
    user: dict[str, Any] = {"id": item.user_id}
    role: dict[str, Any] = {"id": item.role_id}
    scope: dict[str, Any] = {"system": {"all": True}}
    if item.project_id is not None:
        scope = {"project": {"id": item.project_id}}
    if names:
        user |= {"name": user_names[item.user_id], "domain": views.DOMAIN}
        role |= {"name": role_names[item.role_id]}
        if item.project_id is not None:
            scope["project"] |= {"name": project_names[item.project_id], "domain": views.DOMAIN}
    return {"user": user, "role": role, "scope": scope, "links": {}}


def _assignment(connection: Connection, request: Request) -> RoleAssignment:
    values = request.path_params
    project_id = values.get("project_id")
    if project_id is not None:
        find_project(connection, project_id)
    user = find_user(connection, values["user_id"])
    return RoleAssignment(user_id=user.id, project_id=project_id, role_id=_find(connection, values["role_id"]).id)


def _find(connection: Connection, role_id: str) -> UserRole:
    role = roles.get(connection, role_id)
    if role is None:
        raise NotFound(f"Could not find role: {role_id}.")
    return role
