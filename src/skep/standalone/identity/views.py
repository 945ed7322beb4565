"""How Keystone's API shows things."""

from __future__ import annotations

import uuid

from skep.database.api.application_credentials import ApplicationCredential, StoredRule
from skep.database.api.domains import Domain
from skep.database.api.groups import UserGroup
from skep.database.api.projects import Project
from skep.database.api.roles import UserRole
from skep.database.api.users import User
from skep.domain.clock import isoformat_micro
from skep.standalone.identity.answers import (
    CredentialOfToken,
    Interface,
    ListLinks,
    NamedById,
    ServiceOfToken,
    ShownCredential,
    ShownDomain,
    ShownEndpoint,
    ShownGroup,
    ShownProject,
    ShownRole,
    ShownRule,
    ShownRuleOfUser,
    ShownService,
    ShownToken,
    ShownUser,
)
from skep.standalone.identity.grants import Grant
from skep.standalone.identity.settings import IdentitySettings, ServiceEntry

INTERFACES: tuple[Interface, ...] = ("public", "internal", "admin")


def user(value: User, base: str) -> ShownUser:
    """Show a user; never the password's hash."""
    shown: ShownUser = {
        "id": value.id,
        "name": value.name,
        "domain_id": value.domain_id,
        "enabled": value.enabled,
        "description": value.description,
        "password_expires_at": _ends(value),
        "options": {},
        "links": {"self": f"{base}/v3/users/{value.id}"},
    }
    if value.email is not None:
        shown["email"] = value.email
    if value.default_project_id is not None:
        shown["default_project_id"] = shown["project_id"] = value.default_project_id
    return shown


def project(value: Project, base: str) -> ShownProject:
    """Show a project."""
    return {
        "id": value.id,
        "name": value.name,
        "domain_id": value.domain_id,
        "parent_id": value.domain_id,
        "is_domain": False,
        "description": value.description,
        "enabled": value.enabled,
        "tags": [],
        "options": {},
        "links": {"self": f"{base}/v3/projects/{value.id}"},
    }


def role(value: UserRole, base: str) -> ShownRole:
    """Show a role."""
    return {
        "id": value.id,
        "name": value.name,
        "domain_id": None,
        "description": value.description or None,
        "options": {},
        "links": {"self": f"{base}/v3/roles/{value.id}"},
    }


def domain(value: Domain, base: str) -> ShownDomain:
    """Show a domain."""
    return {
        "id": value.id,
        "name": value.name,
        "description": value.description,
        "enabled": value.enabled,
        "tags": [],
        "options": {},
        "links": {"self": f"{base}/v3/domains/{value.id}"},
    }


def group(value: UserGroup, base: str) -> ShownGroup:
    """Show a group."""
    return {
        "id": value.id,
        "name": value.name,
        "domain_id": value.domain_id,
        "description": value.description,
        "links": {"self": f"{base}/v3/groups/{value.id}"},
    }


def list_links(base: str, path: str) -> ListLinks:
    """Show where a list is."""
    return {"self": f"{base}/v3/{path}", "previous": None, "next": None}


def token(grant: Grant, settings: IdentitySettings, *, with_catalogue: bool) -> ShownToken:
    """Show what a token is good for."""
    payload = grant.payload
    shown: ShownToken = {
        "methods": list(payload.methods),
        "user": {
            "id": grant.user.id,
            "name": grant.user.name,
            "domain": _domain(grant.user_domain),
            "password_expires_at": _ends(grant.user),
        },
        "audit_ids": list(payload.audit_ids),
        "issued_at": f"{isoformat_micro(payload.issued_at)}Z",
        "expires_at": f"{isoformat_micro(payload.expires_at)}Z",
    }
    if grant.project is not None and grant.domain is not None:
        shown["project"] = {"id": grant.project.id, "name": grant.project.name, "domain": _domain(grant.domain)}
        shown["is_domain"] = False
    elif grant.domain is not None:
        shown["domain"] = _domain(grant.domain)
    if grant.credential is not None:
        shown["application_credential"] = _of_token(grant.credential)
    if payload.system:
        shown["system"] = {"all": True}
    if grant.roles:
        shown["roles"] = [{"id": item.id, "name": item.name} for item in grant.roles]
        if with_catalogue:
            shown["catalog"] = catalogue(settings)
    return shown


def application_credential(
    value: ApplicationCredential, role_names: dict[str, str], base: str, secret: str | None = None
) -> ShownCredential:
    """Show an application credential; the secret is told once, when it is made."""
    shown: ShownCredential = {
        "id": value.id,
        "name": value.name,
        "description": value.description,
        "user_id": value.user_id,
        "project_id": value.project_id,
        "roles": [
            {"id": role_id, "name": role_names[role_id], "domain_id": None}
            for role_id in sorted(value.role_ids, key=lambda one: role_names.get(one, ""))
            if role_id in role_names
        ],
        "expires_at": None if value.expires_at is None else isoformat_micro(value.expires_at),
        "unrestricted": value.unrestricted,
        "links": {"self": f"{base}/v3/users/{value.user_id}/application_credentials/{value.id}"},
    }
    if value.access_rules is not None:
        shown["access_rules"] = [_rule(rule) for rule in value.access_rules]
    if secret is not None:
        shown["secret"] = secret
    return shown


def access_rule(value: StoredRule, user_id: str, base: str) -> ShownRuleOfUser:
    """Show an access rule."""
    return {**_rule(value), "links": {"self": f"{base}/v3/users/{user_id}/access_rules/{value.id}"}}


def _rule(value: StoredRule) -> ShownRule:
    return {"id": value.id, "service": value.service, "method": value.method, "path": value.path}


def _of_token(value: ApplicationCredential) -> CredentialOfToken:
    shown: CredentialOfToken = {"id": value.id, "name": value.name, "restricted": not value.unrestricted}
    if value.access_rules is not None:
        shown["access_rules"] = [_rule(rule) for rule in value.access_rules]
    return shown


def _ends(value: User) -> str | None:
    return None if value.password_expires_at is None else isoformat_micro(value.password_expires_at)


def _domain(value: Domain) -> NamedById:
    return {"id": value.id, "name": value.name}


def catalogue(settings: IdentitySettings) -> list[ServiceOfToken]:
    """Show the services and their endpoints as a token carries them."""
    return [
        {
            "id": service_id(entry),
            "type": entry.type,
            "name": entry.name,
            "endpoints": [
                {
                    "id": _endpoint_id(entry, interface),
                    "interface": interface,
                    "region": settings.region,
                    "region_id": settings.region,
                    "url": _url(entry, interface),
                }
                for interface in INTERFACES
            ],
        }
        for entry in settings.catalogue
    ]


def service(entry: ServiceEntry, base: str) -> ShownService:
    """Show a service of the catalogue."""
    identifier = service_id(entry)
    return {
        "id": identifier,
        "type": entry.type,
        "name": entry.name,
        "description": "",
        "enabled": True,
        "links": {"self": f"{base}/v3/services/{identifier}"},
    }


def endpoint(entry: ServiceEntry, interface: Interface, region: str, base: str) -> ShownEndpoint:
    """Show an endpoint of the catalogue."""
    identifier = _endpoint_id(entry, interface)
    return {
        "id": identifier,
        "service_id": service_id(entry),
        "interface": interface,
        "region": region,
        "region_id": region,
        "url": _url(entry, interface),
        "enabled": True,
        "links": {"self": f"{base}/v3/endpoints/{identifier}"},
    }


def service_id(entry: ServiceEntry) -> str:
    """Return the id of a service: the catalogue is configuration, so ids follow from what it says."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{entry.type}/{entry.name}").hex


def _endpoint_id(entry: ServiceEntry, interface: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{entry.type}/{entry.name}/{interface}").hex


def _url(entry: ServiceEntry, interface: str) -> str:
    return {"public": entry.public, "internal": entry.internal, "admin": entry.admin}[interface] or entry.public
