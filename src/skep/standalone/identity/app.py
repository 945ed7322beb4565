"""The routes of the identity service."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp

from skep.http.application import application, paths
from skep.http.operations import Served
from skep.standalone.faults import form
from skep.standalone.identity.handlers import (
    application_credentials,
    assignment_lists,
    assignments,
    catalogue,
    domains,
    groups,
    projects,
    roles,
    tokens,
    users,
    versions,
)
from skep.standalone.identity.service import StandaloneIdentity

_WITHIN = ("/v3/projects/{project_id}", "/v3/domains/{domain_id}")
_TO = ("/users/{user_id}/roles", "/groups/{group_id}/roles")
ROLES_OF = tuple(f"{place}{actor}" for place in (*_WITHIN, "/v3/system") for actor in _TO)
"""Paths of the roles of a user or a group in one place."""
INHERITED_ROLES_OF = tuple(
    f"{place.replace('/v3/', assignments.INHERITED)}{actor}" for place in _WITHIN for actor in _TO
)
"""The same, for the projects in that place."""
TO_PROJECTS = "/inherited_to_projects"
ASSIGNED: tuple[tuple[str, str], ...] = (
    *((path, f"{path}/{{role_id}}") for path in ROLES_OF),
    *((f"{path}{TO_PROJECTS}", f"{path}/{{role_id}}{TO_PROJECTS}") for path in INHERITED_ROLES_OF),
)
"""Paths of all roles of somebody somewhere, and of one of them."""

CREDENTIALS = "/v3/users/{user_id}/application_credentials"
ACCESS_RULES = "/v3/users/{user_id}/access_rules"

ROUTES: tuple[tuple[str, str, Served[StandaloneIdentity]], ...] = (
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
    ("PATCH", "/v3/roles/{role_id}", roles.update),
    ("GET", "/v3/role_inferences", roles.list_inferences),
    ("GET", "/v3/roles/{prior_role_id}/implies", roles.list_implied),
    ("GET", "/v3/roles/{prior_role_id}/implies/{implied_role_id}", roles.show_implied),
    ("PUT", "/v3/roles/{prior_role_id}/implies/{implied_role_id}", roles.change_implied),
    ("DELETE", "/v3/roles/{prior_role_id}/implies/{implied_role_id}", roles.change_implied),
    ("GET", "/v3/role_assignments", assignment_lists.list_),
    *(("GET", all_, assignments.list_) for all_, _ in ASSIGNED),
    *(("GET", one, assignments.check) for _, one in ASSIGNED),
    *(("PUT", one, assignments.assign) for _, one in ASSIGNED),
    *(("DELETE", one, assignments.unassign) for _, one in ASSIGNED),
    ("GET", "/v3/groups", groups.list_),
    ("POST", "/v3/groups", groups.create),
    ("GET", "/v3/groups/{group_id}", groups.show),
    ("PATCH", "/v3/groups/{group_id}", groups.update),
    ("DELETE", "/v3/groups/{group_id}", groups.delete),
    ("GET", "/v3/groups/{group_id}/users", groups.list_members),
    ("GET", "/v3/groups/{group_id}/users/{user_id}", groups.check_member),
    ("PUT", "/v3/groups/{group_id}/users/{user_id}", groups.add_member),
    ("DELETE", "/v3/groups/{group_id}/users/{user_id}", groups.remove_member),
    ("GET", "/v3/users/{user_id}/groups", groups.list_of_user),
    ("GET", CREDENTIALS, application_credentials.list_),
    ("POST", CREDENTIALS, application_credentials.create),
    ("GET", f"{CREDENTIALS}/{{credential_id}}", application_credentials.show),
    ("DELETE", f"{CREDENTIALS}/{{credential_id}}", application_credentials.delete),
    ("GET", ACCESS_RULES, application_credentials.list_rules),
    ("GET", f"{ACCESS_RULES}/{{rule_id}}", application_credentials.show_rule),
    ("DELETE", f"{ACCESS_RULES}/{{rule_id}}", application_credentials.delete_rule),
    ("GET", "/v3/domains", domains.list_),
    ("POST", "/v3/domains", domains.create),
    ("GET", "/v3/domains/{domain_id}", domains.show),
    ("PATCH", "/v3/domains/{domain_id}", domains.update),
    ("DELETE", "/v3/domains/{domain_id}", domains.delete),
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
