"""Roles given to one user or one group, in one project, one domain or the system."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import role_assignments, roles
from skep.database.api.role_assignments import RoleAssignment
from skep.database.api.roles import UserRole
from skep.domain.errors import NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin
from skep.standalone.identity.handlers.domains import find as find_domain
from skep.standalone.identity.handlers.groups import find as find_group
from skep.standalone.identity.handlers.projects import find as find_project
from skep.standalone.identity.handlers.roles import find as find_role
from skep.standalone.identity.handlers.users import find as find_user
from skep.standalone.identity.service import StandaloneIdentity

INHERITED = "/v3/OS-INHERIT/"
"""Begins paths of what is given in a domain, or in a project, for the projects in it."""


@operation(status=204)
async def assign(identity: StandaloneIdentity, request: Request) -> Response:
    """Give a role."""
    await admin(identity, request)
    await identity.change(lambda connection: role_assignments.assign(connection, _assignment(connection, request)))
    return Response(status_code=204)


@operation(status=204)
async def check(identity: StandaloneIdentity, request: Request) -> Response:
    """Tell whether a role was given."""
    await admin(identity, request)
    given = await identity.database.read(
        lambda connection: role_assignments.is_assigned(connection, _assignment(connection, request))
    )
    if not given:
        raise NotFound("Could not find role assignment.")
    return Response(status_code=204)


@operation(status=204)
async def unassign(identity: StandaloneIdentity, request: Request) -> Response:
    """Take a role away; tokens lose it at once."""
    await admin(identity, request)

    def unit(connection: Connection) -> None:
        if not role_assignments.unassign(connection, _assignment(connection, request)):
            raise NotFound("Could not find role assignment.")

    await identity.change(unit)
    return Response(status_code=204)


@operation()
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedRoles]:
    """List the roles that were given to a user or a group in one place."""
    await admin(identity, request)
    base = base_url(request)

    def unit(connection: Connection) -> list[UserRole]:
        return roles.select(connection, ids=role_assignments.given(connection, _place(connection, request)))

    found = await identity.database.read(unit)
    path = request.url.path.removeprefix("/v3/")
    return json_response({"roles": [views.role(item, base) for item in found], "links": views.list_links(base, path)})


def _assignment(connection: Connection, request: Request) -> RoleAssignment:
    return _place(connection, request, find_role(connection, request.path_params["role_id"]).id)


def _place(connection: Connection, request: Request, role_id: str = "") -> RoleAssignment:
    """Return the assignment of a role where the path says. Raises NotFound for what is not there."""
    values = request.path_params
    project, domain = values.get("project_id"), values.get("domain_id")
    user, group = values.get("user_id"), values.get("group_id")
    return RoleAssignment(
        project_id=None if project is None else find_project(connection, project).id,
        domain_id=None if domain is None else find_domain(connection, domain).id,
        user_id=None if user is None else find_user(connection, user).id,
        group_id=None if group is None else find_group(connection, group).id,
        role_id=role_id,
        inherited=request.url.path.startswith(INHERITED),
    )
