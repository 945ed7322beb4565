"""Application credentials and access rules: everybody makes his own; admins see and delete those of all."""

from __future__ import annotations

import secrets
import uuid
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import application_credentials, roles
from skep.database.api.application_credentials import ApplicationCredential, StoredRule
from skep.domain.clock import parse_iso
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, Unauthenticated
from skep.http.addresses import network_of
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.identity import answers, grants, views
from skep.standalone.identity.callers import address_of, allow, caller, unlimited
from skep.standalone.identity.grants import Grant
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.identity.turns import Place
from skep.standalone.texts import LINE, NAME, TEXT

MOST_OF_USER = 100
"""Credentials of one user; access rules likewise."""
MOST_RULES = 64
"""Access rules of one credential."""

Id = Annotated[str, Meta(max_length=64, pattern=LINE)]


class RoleReference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role by id or by name."""

    id: Id | None = None
    name: Annotated[str, Meta(max_length=255, pattern=LINE)] | None = None
    domain_id: None = None


class RuleFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An access rule of the user's by id, or one that may be new."""

    id: Id | None = None
    service: Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME)] | None = None
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    path: Annotated[str, Meta(min_length=1, max_length=128, pattern=rf"(?={NAME})^/")] | None = None


class CredentialFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of an application credential."""

    name: Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
    description: Annotated[str, Meta(max_length=4096, pattern=TEXT)] | None = None
    secret: Annotated[str, Meta(min_length=1, max_length=255, pattern=TEXT)] | None = None
    roles: Annotated[tuple[RoleReference, ...], Meta(max_length=100)] | None = None
    expires_at: Annotated[str, Meta(max_length=64)] | None = None
    unrestricted: bool | None = None
    access_rules: Annotated[tuple[RuleFields, ...], Meta(max_length=MOST_RULES)] | None = None
    """None or empty: no rules. (The `openstack` client sends an empty list where it is given none.)"""
    project_id: Id | None = None
    """What some clients repeat: the project of the token."""

    def __repr__(self) -> str:
        """Leaves the secret out."""
        return f"CredentialFields(name={self.name!r})"


class ApplicationCredentialBody(msgspec.Struct, frozen=True):
    """The body of create."""

    application_credential: CredentialFields


@operation(query=("name",))
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedCredentials]:
    """List the credentials of a user."""
    user_id = request.path_params["user_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    base, name = base_url(request), parameter(request, "name")

    def unit(connection: Connection) -> tuple[list[ApplicationCredential], dict[str, str]]:
        return application_credentials.of_user(connection, user_id, name=name), _role_names(connection)

    found, names = await identity.database.read(unit)
    shown = [views.application_credential(one, names, base) for one in found]
    path = f"users/{user_id}/application_credentials"
    return json_response({"application_credentials": shown, "links": views.list_links(base, path)})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneCredential]:
    """Show a credential, never its secret."""
    allow(await caller(identity, request), "admin", user_id=request.path_params["user_id"])

    def unit(connection: Connection) -> tuple[ApplicationCredential, dict[str, str]]:
        return _find(connection, request), _role_names(connection)

    found, names = await identity.database.read(unit)
    return json_response({"application_credential": views.application_credential(found, names, base_url(request))})


@takes(ApplicationCredentialBody, status=201)
async def create(
    identity: StandaloneIdentity, request: Request, read: Read[ApplicationCredentialBody]
) -> JsonResponse[answers.OneCredential]:
    """Make a credential for the project of the token, with all of its roles or some; the secret is told this once."""
    grant = unlimited(await caller(identity, request))
    if grant.user.id != request.path_params["user_id"]:
        raise Forbidden("Application credentials are made by their own user alone.")
    fields = (await read()).application_credential
    if grant.project is None:
        raise BadRequest("application_credential.project_id: expected a token for a project")
    if fields.project_id not in (None, grant.project.id):
        raise BadRequest("application_credential.project_id: expected the project of the token")
    role_ids, expires_at = _roles(fields, grant), _expires(fields, identity.clock.now())
    secret = fields.secret or secrets.token_urlsafe(64)
    await identity.database.read(lambda connection: _check_free(connection, grant, fields.name))
    place = Place(network_of(address_of(request)), grant.user.id)
    secret_hash = await identity.passwords.hash(secret, place)
    now, project_id = identity.clock.now(), grant.project.id

    def unit(connection: Connection) -> ApplicationCredential:
        fresh = grants.load(connection, grant.payload)
        if fresh is None or not role_ids <= {role.id for role in fresh.roles}:
            raise Unauthenticated("The token is no longer valid.")
        _check_free(connection, grant, fields.name)
        credential = ApplicationCredential(
            id=uuid.uuid4().hex,
            user_id=grant.user.id,
            project_id=project_id,
            name=fields.name,
            description=fields.description or "",
            secret_hash=secret_hash,
            expires_at=expires_at,
            unrestricted=bool(fields.unrestricted),
            role_ids=role_ids,
            access_rules=None if not fields.access_rules else _rules(connection, grant.user.id, fields.access_rules),
            created_at=now,
        )
        application_credentials.insert(connection, credential)
        return credential

    credential = await identity.change(unit)
    names = {role.id: role.name for role in grant.roles}
    shown = views.application_credential(credential, names, base_url(request), secret)
    return json_response({"application_credential": shown}, 201)


def _check_free(connection: Connection, grant: Grant, name: str) -> None:
    """See that a user may have one more, of this name. Raises Forbidden, Conflict."""
    there = application_credentials.of_user(connection, grant.user.id)
    if len(there) >= MOST_OF_USER:
        raise Forbidden(f"A user has at most {MOST_OF_USER} application credentials.")
    if any(one.name == name for one in there):
        raise Conflict(f"an application credential named {name!r} exists already")


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a credential; its tokens end at once."""
    unlimited(allow(await caller(identity, request), "admin", user_id=request.path_params["user_id"]))
    await identity.change(lambda connection: application_credentials.delete(connection, _find(connection, request).id))
    return Response(status_code=204)


@operation(query=("service", "method", "path"))
async def list_rules(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedRulesOfUser]:
    """List the access rules of a user."""
    user_id = request.path_params["user_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    base = base_url(request)
    found = await identity.database.read(lambda connection: application_credentials.rules_of(connection, user_id))
    wanted = {key: value for key in ("service", "method", "path") if (value := parameter(request, key))}
    shown = [
        views.access_rule(rule, user_id, base)
        for rule in found
        if all(getattr(rule, key) == value for key, value in wanted.items())
    ]
    return json_response({"access_rules": shown, "links": views.list_links(base, f"users/{user_id}/access_rules")})


@operation()
async def show_rule(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneRuleOfUser]:
    """Show an access rule."""
    user_id, rule_id = request.path_params["user_id"], request.path_params["rule_id"]
    allow(await caller(identity, request), "admin", user_id=user_id)
    found = await identity.database.read(lambda connection: application_credentials.rules_of(connection, user_id))
    for rule in found:
        if rule.id == rule_id:
            return json_response({"access_rule": views.access_rule(rule, user_id, base_url(request))})
    raise NotFound(f"Could not find access rule: {rule_id}.")


@operation(status=204)
async def delete_rule(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove an access rule that no credential has."""
    user_id, rule_id = request.path_params["user_id"], request.path_params["rule_id"]
    unlimited(allow(await caller(identity, request), "admin", user_id=user_id))

    def unit(connection: Connection) -> None:
        if rule_id not in {rule.id for rule in application_credentials.rules_of(connection, user_id)}:
            raise NotFound(f"Could not find access rule: {rule_id}.")
        application_credentials.delete_rule(connection, user_id, rule_id)

    await identity.change(unit)
    return Response(status_code=204)


def _find(connection: Connection, request: Request) -> ApplicationCredential:
    """Return the credential of the path, if it is that user's. Raises NotFound."""
    credential_id = request.path_params["credential_id"]
    found = application_credentials.get(connection, credential_id)
    if found is None or found.user_id != request.path_params["user_id"]:
        raise NotFound(f"Could not find Application Credential: {credential_id}.")
    return found


def _role_names(connection: Connection) -> dict[str, str]:
    return {role.id: role.name for role in roles.select(connection)}


def _roles(fields: CredentialFields, grant: Grant) -> frozenset[str]:
    """Return the ids of the roles that the credential gets: some of the token's. Raises BadRequest."""
    if not fields.roles:
        return frozenset(role.id for role in grant.roles)
    chosen = set()
    for position, wanted in enumerate(fields.roles):
        found = [
            role.id for role in grant.roles if wanted.id == role.id or (not wanted.id and wanted.name == role.name)
        ]
        if not found:
            raise BadRequest(f"application_credential.roles[{position}]: expected a role of the token")
        chosen.update(found)
    return frozenset(chosen)


def _expires(fields: CredentialFields, now: int) -> int | None:
    if fields.expires_at is None:
        return None
    try:
        at = parse_iso(fields.expires_at)
    except (ValueError, OverflowError) as error:
        raise BadRequest("application_credential.expires_at: expected a time as 2026-01-31T12:00:00") from error
    if at <= now:
        raise BadRequest("application_credential.expires_at: expected a time to come")
    return at


def _rules(connection: Connection, user_id: str, wanted: tuple[RuleFields, ...]) -> tuple[StoredRule, ...]:
    """Return the rules that are meant, once each; new ones are stored. Raises BadRequest, Forbidden."""
    known = application_credentials.rules_of(connection, user_id)
    by_id = {rule.id: rule for rule in known}
    by_text: dict[Any, StoredRule] = {(rule.service, rule.method, rule.path): rule for rule in known}
    chosen: dict[str, StoredRule] = {}
    for position, one in enumerate(wanted):
        rule = by_id.get(one.id or "") or by_text.get((one.service, one.method, one.path))
        if rule is None:
            if one.id is not None or one.service is None or one.method is None or one.path is None:
                raise BadRequest(
                    f"application_credential.access_rules[{position}]: expected service, method and path, "
                    "or the id of a rule of the user"
                )
            if len(by_text) >= MOST_OF_USER:
                raise Forbidden(f"A user has at most {MOST_OF_USER} access rules.")
            rule = StoredRule(id=uuid.uuid4().hex, service=one.service, method=one.method, path=one.path)
            application_credentials.insert_rule(connection, user_id, rule)
            by_text[rule.service, rule.method, rule.path] = rule
        chosen[rule.id] = rule
    return tuple(chosen.values())
