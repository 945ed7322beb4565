"""The routes of the identity service."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp

from skep.http.application import Handler, application, paths
from skep.standalone.faults import form
from skep.standalone.identity.handlers import catalogue, projects, roles, tokens, users, versions
from skep.standalone.identity.service import StandaloneIdentity

PROJECT_ROLE = "/v3/projects/{project_id}/users/{user_id}/roles"
SYSTEM_ROLE = "/v3/system/users/{user_id}/roles"

ROUTES: tuple[tuple[str, str, Handler[StandaloneIdentity]], ...] = (
    ("GET", "/", versions.list_),
    ("GET", "/v3", versions.show),
    ("POST", "/v3/auth/tokens", tokens.create),
    ("GET", "/v3/auth/tokens", tokens.show),
    ("DELETE", "/v3/auth/tokens", tokens.delete),
    ("GET", "/v3/auth/projects", tokens.list_projects),
    ("GET", "/v3/auth/domains", tokens.list_domains),
    ("GET", "/v3/auth/system", tokens.list_system),
    ("GET", "/v3/auth/catalog", tokens.show_catalogue),
    ("GET", "/v3/users", users.list_),
    ("POST", "/v3/users", users.create),
    ("GET", "/v3/users/{user_id}", users.show),
    ("PATCH", "/v3/users/{user_id}", users.update),
    ("DELETE", "/v3/users/{user_id}", users.delete),
    ("POST", "/v3/users/{user_id}/password", users.change_password),
    ("GET", "/v3/users/{user_id}/projects", users.list_projects),
    ("GET", "/v3/projects", projects.list_),
    ("POST", "/v3/projects", projects.create),
    ("GET", "/v3/projects/{project_id}", projects.show),
    ("PATCH", "/v3/projects/{project_id}", projects.update),
    ("DELETE", "/v3/projects/{project_id}", projects.delete),
    ("GET", "/v3/roles", roles.list_),
    ("POST", "/v3/roles", roles.create),
    ("GET", "/v3/roles/{role_id}", roles.show),
    ("DELETE", "/v3/roles/{role_id}", roles.delete),
    ("GET", "/v3/role_assignments", roles.list_assignments),
    ("GET", PROJECT_ROLE, roles.list_assigned),
    ("GET", f"{PROJECT_ROLE}/{{role_id}}", roles.check),
    ("PUT", f"{PROJECT_ROLE}/{{role_id}}", roles.assign),
    ("DELETE", f"{PROJECT_ROLE}/{{role_id}}", roles.unassign),
    ("GET", SYSTEM_ROLE, roles.list_assigned),
    ("GET", f"{SYSTEM_ROLE}/{{role_id}}", roles.check),
    ("PUT", f"{SYSTEM_ROLE}/{{role_id}}", roles.assign),
    ("DELETE", f"{SYSTEM_ROLE}/{{role_id}}", roles.unassign),
    ("GET", "/v3/domains", catalogue.list_domains),
    ("GET", "/v3/domains/{id}", catalogue.show_domain),
    ("GET", "/v3/regions", catalogue.list_regions),
    ("GET", "/v3/regions/{id}", catalogue.show_region),
    ("GET", "/v3/services", catalogue.list_services),
    ("GET", "/v3/services/{id}", catalogue.show_service),
    ("GET", "/v3/endpoints", catalogue.list_endpoints),
    ("GET", "/v3/endpoints/{id}", catalogue.show_endpoint),
)
"""Method, path, what answers. HEAD goes where GET goes."""


def identity_app(identity: StandaloneIdentity) -> ASGIApp:
    """Return the service as an ASGI application."""
    return application(
        paths(ROUTES, identity), structlog.get_logger("skep.identity"), form(identity.settings.public_url)
    )
