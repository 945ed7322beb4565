"""Users: for admins; everybody may see himself and change his own password."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import projects, role_assignments, users
from skep.database.api.users import User
from skep.domain.errors import BadRequest, NotFound, Unauthenticated
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import SIGN_IN_FAULTS, address_of, admin, allow, caller
from skep.standalone.identity.filters import OF_NAMES, check_same_id, flag, with_names
from skep.standalone.identity.handlers import domains
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME, TEXT

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
Text = Annotated[str, Meta(max_length=4096, pattern=TEXT)]
Secret = Annotated[str, Meta(min_length=1, max_length=4096, pattern=TEXT)]
NoOptions = Annotated[dict[str, Any], Meta(max_length=0)]


class UserFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a user."""

    id: str | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    password: Secret | UnsetType | None = UNSET
    email: Text | UnsetType | None = UNSET
    description: Text | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    default_project_id: Text | UnsetType | None = UNSET
    project_id: Text | UnsetType | None = UNSET
    """What older clients call `default_project_id`."""
    domain_id: str | UnsetType | None = UNSET
    options: NoOptions | UnsetType = UNSET

    def __repr__(self) -> str:
        """Leaves the password out."""
        return f"UserFields(name={self.name!r})"


class UserBody(msgspec.Struct, frozen=True):
    """The body of create and update."""

    user: UserFields


class PasswordFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of one's own password."""

    original_password: Secret
    password: Secret

    def __repr__(self) -> str:
        """Leaves the passwords out."""
        return "PasswordFields()"


class PasswordBody(msgspec.Struct, frozen=True):
    """The body of a change of password."""

    user: PasswordFields


@operation(query=OF_NAMES | {"name": STRING, "enabled": BOOLEAN, "domain_id": STRING})
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedUsers]:
    """List users."""
    await admin(identity, request)
    base = base_url(request)
    name, enabled = parameter(request, "name"), flag(request, "enabled")
    domain_id = parameter(request, "domain_id")
    found = await identity.database.read(
        lambda connection: users.select(connection, name=name, enabled=enabled, domain_id=domain_id)
    )
    shown = [views.user(item, base) for item in with_names(request, found)]
    return json_response({"users": shown, "links": views.list_links(base, "users")})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneUser]:
    """Show a user."""
    user_id = request.path_params["user_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    user = await identity.database.read(lambda connection: find(connection, user_id))
    return json_response({"user": views.user(user, base_url(request))})


@takes(UserBody, status=201)
async def create(identity: StandaloneIdentity, request: Request, read: Read[UserBody]) -> JsonResponse[answers.OneUser]:
    """Make a user, in the domain of the caller's token unless the body names another."""
    grant = await admin(identity, request)
    fields = (await read()).user
    check_same_id(fields.id, None, "user.id")
    if fields.name is UNSET:
        raise BadRequest("user.name: expected a value")
    now, domain_id = identity.clock.now(), fields.domain_id or grant.own_domain
    base = User(id=uuid.uuid4().hex, name=fields.name, created_at=now, domain_id=domain_id)
    user = await _with_fields(identity, base, fields)

    def unit(connection: Connection) -> None:
        domains.chosen(connection, user.domain_id, "user.domain_id")
        users.insert(connection, _checked(connection, user))

    await identity.change(unit)
    return json_response({"user": views.user(user, base_url(request))}, 201)


@takes(UserBody)
async def update(identity: StandaloneIdentity, request: Request, read: Read[UserBody]) -> JsonResponse[answers.OneUser]:
    """Change a user; a new password or disabling ends all his tokens."""
    await admin(identity, request)
    user_id = request.path_params["user_id"]
    fields = (await read()).user
    check_same_id(fields.id, user_id, "user.id")
    before = await identity.database.read(lambda connection: find(connection, user_id))
    check_same_id(fields.domain_id or UNSET, before.domain_id, "user.domain_id")
    password_hash = await _hash(identity, fields)

    def unit(connection: Connection) -> User:
        now, before = identity.clock.now(), find(connection, user_id)
        user = _checked(connection, _changed(before, fields, password_hash, now, identity.password_rules.ends(now)))
        if password_hash is not None:
            identity.password_rules.ended(connection, before, now)
        users.update(connection, user)
        return user

    user = await identity.change(unit)
    return json_response({"user": views.user(user, base_url(request))})


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a user with his roles and tokens."""
    await admin(identity, request)
    user_id = request.path_params["user_id"]

    def unit(connection: Connection) -> None:
        find(connection, user_id)
        users.delete(connection, user_id)

    await identity.change(unit)
    return Response(status_code=204)


@takes(PasswordBody, status=204, faults=SIGN_IN_FAULTS, open_=True)
async def change_password(identity: StandaloneIdentity, request: Request, read: Read[PasswordBody]) -> Response:
    """Change one's own password: the old one is the proof, no token is needed."""
    user_id = request.path_params["user_id"]
    fields = (await read()).user
    known = await identity.database.read(lambda connection: users.get(connection, user_id))
    user = await identity.proven(known, user_id, fields.original_password, address_of(request))
    proven, rules = user.password_hash, identity.password_rules
    rules.check(fields.password, "user.password")
    former = await identity.database.read(lambda connection: rules.former(connection, user))
    await rules.check_new(identity.passwords, fields.password, former)
    password_hash = await identity.passwords.hash(fields.password)

    def unit(connection: Connection) -> None:
        current = users.get(connection, user_id)
        if current is None or current.password_hash != proven:
            # Somebody changed it while we hashed: what was proven no longer holds.
            raise Unauthenticated(UNAUTHENTICATED)
        now = identity.clock.now()
        rules.ended(connection, current, now)
        changes = {"password_hash": password_hash, "tokens_invalid_before": now, "password_expires_at": rules.ends(now)}
        users.update(connection, msgspec.structs.replace(current, **changes))

    await identity.change(unit)
    return Response(status_code=204)


@operation()
async def list_projects(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedProjects]:
    """List the projects in which a user has a role."""
    user_id = request.path_params["user_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    base = base_url(request)

    def unit(connection: Connection) -> list[projects.Project]:
        find(connection, user_id)
        return projects.select(connection, ids=role_assignments.projects_of(connection, user_id))

    found = await identity.database.read(unit)
    shown = [views.project(item, base) for item in found]
    return json_response({"projects": shown, "links": views.list_links(base, f"users/{user_id}/projects")})


def find(connection: Connection, user_id: str) -> User:
    """Return a user.

    Raises NotFound.
    """
    user = users.get(connection, user_id)
    if user is None:
        raise NotFound(f"Could not find user: {user_id}.")
    return user


def _checked(connection: Connection, user: User) -> User:
    if user.default_project_id is not None and projects.get(connection, user.default_project_id) is None:
        raise BadRequest(f"user.default_project_id: there is no project {user.default_project_id}")
    return user


async def _with_fields(identity: StandaloneIdentity, user: User, fields: UserFields) -> User:
    ends = identity.password_rules.ends(identity.clock.now())
    changed = _changed(user, fields, await _hash(identity, fields), 0, ends)
    return msgspec.structs.replace(changed, tokens_invalid_before=0)


async def _hash(identity: StandaloneIdentity, fields: UserFields) -> str | None:
    if not isinstance(fields.password, str):
        return None
    identity.password_rules.check(fields.password, "user.password")
    return await identity.passwords.hash(fields.password)


def _changed(user: User, fields: UserFields, password_hash: str | None, now: int, ends: int | None) -> User:
    values: dict[str, Any] = {
        name: value for name in ("name", "email", "enabled") if (value := getattr(fields, name)) is not UNSET
    }
    project = _default_project(fields)
    if project is not UNSET:
        values["default_project_id"] = project
    if fields.description is not UNSET:
        values["description"] = fields.description or ""
    if fields.password is not UNSET:
        values["password_hash"] = password_hash
        values["password_expires_at"] = ends if password_hash is not None else None
    if fields.password is not UNSET or fields.enabled is False:
        values["tokens_invalid_before"] = now
    return msgspec.structs.replace(user, **values)


def _default_project(fields: UserFields) -> str | UnsetType | None:
    """Return the project under whichever of its two names it was given."""
    if fields.project_id is UNSET:
        return fields.default_project_id
    if fields.default_project_id not in (UNSET, fields.project_id):
        raise BadRequest("user.project_id: expected the value of user.default_project_id")
    return fields.project_id
