"""Groups and their members: for admins; everybody may see those that he is in."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import groups, users
from skep.database.api.groups import UserGroup
from skep.domain.errors import BadRequest, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin, allow, caller
from skep.standalone.identity.filters import OF_NAMES, check_same_id, flag, with_names
from skep.standalone.identity.handlers import domains
from skep.standalone.identity.handlers.users import find as find_user
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME, TEXT


class GroupFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a group."""

    id: str | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=4096, pattern=TEXT)] | UnsetType | None = UNSET
    domain_id: str | UnsetType | None = UNSET


class GroupBody(msgspec.Struct, frozen=True):
    """The body of create and update."""

    group: GroupFields


@operation(
    query=(
        *OF_NAMES,
        "name",
        "domain_id",
    ),
)
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedGroups]:
    """List groups."""
    await admin(identity, request)
    base = base_url(request)
    name, domain_id = parameter(request, "name"), parameter(request, "domain_id")
    found = await identity.database.read(lambda connection: groups.select(connection, name=name, domain_id=domain_id))
    shown = [views.group(item, base) for item in with_names(request, found)]
    return json_response({"groups": shown, "links": views.list_links(base, "groups")})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneGroup]:
    """Show a group."""
    await admin(identity, request)
    group = await identity.database.read(lambda connection: find(connection, request.path_params["group_id"]))
    return json_response({"group": views.group(group, base_url(request))})


@takes(GroupBody, status=201)
async def create(
    identity: StandaloneIdentity, request: Request, read: Read[GroupBody]
) -> JsonResponse[answers.OneGroup]:
    """Make a group, in the domain of the caller's token unless the body names another."""
    grant = await admin(identity, request)
    fields = (await read()).group
    check_same_id(fields.id, None, "group.id")
    if fields.name is UNSET:
        raise BadRequest("group.name: expected a value")
    now = identity.clock.now()
    base = UserGroup(
        id=uuid.uuid4().hex, name=fields.name, domain_id=fields.domain_id or grant.own_domain, created_at=now
    )
    group = _changed(base, fields)

    def unit(connection: Connection) -> None:
        domains.chosen(connection, group.domain_id, "group.domain_id")
        groups.insert(connection, group)

    await identity.change(unit)
    return json_response({"group": views.group(group, base_url(request))}, 201)


@takes(GroupBody)
async def update(
    identity: StandaloneIdentity, request: Request, read: Read[GroupBody]
) -> JsonResponse[answers.OneGroup]:
    """Change a group."""
    await admin(identity, request)
    group_id = request.path_params["group_id"]
    fields = (await read()).group
    check_same_id(fields.id, group_id, "group.id")

    def unit(connection: Connection) -> UserGroup:
        before = find(connection, group_id)
        check_same_id(fields.domain_id or UNSET, before.domain_id, "group.domain_id")
        group = _changed(before, fields)
        groups.update(connection, group)
        return group

    group = await identity.change(unit)
    return json_response({"group": views.group(group, base_url(request))})


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a group with its roles; its members lose them at once."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        groups.delete(connection, find(connection, request.path_params["group_id"]).id)

    await identity.change(unit)
    return Response(status_code=204)


@operation(query={"name": STRING, "enabled": BOOLEAN})
async def list_members(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedUsers]:
    """List the users of a group."""
    await admin(identity, request)
    base, group_id = base_url(request), request.path_params["group_id"]
    name, enabled = parameter(request, "name"), flag(request, "enabled")

    def unit(connection: Connection) -> list[users.User]:
        return users.select(connection, group_id=find(connection, group_id).id, name=name, enabled=enabled)

    found = await identity.database.read(unit)
    shown = [views.user(item, base) for item in found]
    return json_response({"users": shown, "links": views.list_links(base, f"groups/{group_id}/users")})


@operation(status=204)
async def check_member(identity: StandaloneIdentity, request: Request) -> Response:
    """Tell whether a user is in a group."""
    await admin(identity, request)

    def unit(connection: Connection) -> bool:
        return groups.is_member(connection, *_membership(connection, request))

    if not await identity.database.read(unit):
        raise NotFound("User is not in the group.")
    return Response(status_code=204)


@operation(status=204)
async def add_member(identity: StandaloneIdentity, request: Request) -> Response:
    """Put a user into a group: he has its roles at once."""
    await admin(identity, request)
    await identity.change(lambda connection: groups.add_member(connection, *_membership(connection, request)))
    return Response(status_code=204)


@operation(status=204)
async def remove_member(identity: StandaloneIdentity, request: Request) -> Response:
    """Take a user out of a group: he loses its roles at once."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        if not groups.remove_member(connection, *_membership(connection, request)):
            raise NotFound("User is not in the group.")

    await identity.change(unit)
    return Response(status_code=204)


@operation(query=("name",))
async def list_of_user(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedGroups]:
    """List the groups that a user is in."""
    user_id = request.path_params["user_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    base = base_url(request)
    name = parameter(request, "name")

    def unit(connection: Connection) -> list[UserGroup]:
        return groups.select(connection, member=find_user(connection, user_id).id, name=name)

    found = await identity.database.read(unit)
    shown = [views.group(item, base) for item in found]
    return json_response({"groups": shown, "links": views.list_links(base, f"users/{user_id}/groups")})


def find(connection: Connection, group_id: str) -> UserGroup:
    """Return a group.

    Raises NotFound.
    """
    group = groups.get(connection, group_id)
    if group is None:
        raise NotFound(f"Could not find group: {group_id}.")
    return group


def _membership(connection: Connection, request: Request) -> tuple[str, str]:
    values = request.path_params
    return find(connection, values["group_id"]).id, find_user(connection, values["user_id"]).id


def _changed(group: UserGroup, fields: GroupFields) -> UserGroup:
    values: dict[str, Any] = {} if fields.name is UNSET else {"name": fields.name}
    if fields.description is not UNSET:
        values["description"] = fields.description or ""
    return msgspec.structs.replace(group, **values)
