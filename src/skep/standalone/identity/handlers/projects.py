"""Projects: for admins; everybody may see those in which he has a role."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from skep.database import Connection
from skep.database.api import projects, role_assignments
from skep.database.api.projects import Project
from skep.domain.errors import BadRequest, NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, Read, operation, parameter, takes
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin, allow, caller
from skep.standalone.identity.filters import OF_NAMES, check_same_id, flag, with_names
from skep.standalone.identity.handlers import domains
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.texts import NAME, TEXT

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME)]
Text = Annotated[str, Meta(max_length=4096, pattern=TEXT)]


class ProjectFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may say of a project. There are no trees of projects, tags or options."""

    id: str | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    description: Text | UnsetType | None = UNSET
    enabled: bool | UnsetType = UNSET
    domain_id: str | UnsetType | None = UNSET
    parent_id: str | UnsetType | None = UNSET
    is_domain: bool | UnsetType = UNSET
    tags: Annotated[list[str], Meta(max_length=0)] | UnsetType = UNSET
    options: Annotated[dict[str, Any], Meta(max_length=0)] | UnsetType = UNSET


class ProjectBody(msgspec.Struct, frozen=True):
    """The body of create and update."""

    project: ProjectFields


@operation(
    query=OF_NAMES
    | {"name": STRING, "enabled": BOOLEAN, "is_domain": BOOLEAN, "domain_id": STRING, "parent_id": STRING},
)
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedProjects]:
    """List projects."""
    await admin(identity, request)
    base = base_url(request)
    name, enabled = parameter(request, "name"), flag(request, "enabled")
    wanted = {value for key in ("domain_id", "parent_id") if (value := parameter(request, key)) is not None}
    if len(wanted) > 1 or flag(request, "is_domain"):
        return json_response({"projects": [], "links": views.list_links(base, "projects")})
    found = await identity.database.read(
        lambda connection: projects.select(connection, name=name, enabled=enabled, domain_id=next(iter(wanted), None))
    )
    shown = [views.project(item, base) for item in with_names(request, found)]
    return json_response({"projects": shown, "links": views.list_links(base, "projects")})


@operation()
async def show(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneProject]:
    """Show a project to admins, services and whoever has a role in it."""
    project_id = request.path_params["project_id"]
    grant = await caller(identity, request)
    own = await identity.database.read(lambda connection: role_assignments.projects_of(connection, grant.user.id))
    if project_id not in own:
        allow(grant, "admin", "service")
    project = await identity.database.read(lambda connection: find(connection, project_id))
    return json_response({"project": views.project(project, base_url(request))})


@takes(ProjectBody, status=201)
async def create(
    identity: StandaloneIdentity, request: Request, read: Read[ProjectBody]
) -> JsonResponse[answers.OneProject]:
    """Make a project."""
    grant = await admin(identity, request)
    fields = (await read()).project
    named = "project.domain_id" if fields.domain_id or not fields.parent_id else "project.parent_id"
    domain_id = fields.domain_id or fields.parent_id or grant.own_domain
    _check(fields, None, domain_id)
    if fields.name is UNSET:
        raise BadRequest("project.name: expected a value")
    now = identity.clock.now()
    project = _changed(Project(id=uuid.uuid4().hex, name=fields.name, domain_id=domain_id, created_at=now), fields)

    def unit(connection: Connection) -> None:
        domains.chosen(connection, domain_id, named)
        projects.insert(connection, project)

    await identity.change(unit)
    return json_response({"project": views.project(project, base_url(request))}, 201)


@takes(ProjectBody)
async def update(
    identity: StandaloneIdentity, request: Request, read: Read[ProjectBody]
) -> JsonResponse[answers.OneProject]:
    """Change a project; tokens for a disabled one are not valid."""
    await admin(identity, request)
    project_id = request.path_params["project_id"]
    fields = (await read()).project

    def unit(connection: Connection) -> Project:
        before = find(connection, project_id)
        _check(fields, project_id, before.domain_id)
        project = _changed(before, fields)
        projects.update(connection, project)
        return project

    project = await identity.change(unit)
    return json_response({"project": views.project(project, base_url(request))})


@operation(status=204)
async def delete(identity: StandaloneIdentity, request: Request) -> Response:
    """Remove a project with the roles in it. Its servers and images are not touched, as with Keystone."""
    await admin(identity, request)
    project_id = request.path_params["project_id"]

    def unit(connection: Connection) -> None:
        find(connection, project_id)
        projects.delete(connection, project_id)

    await identity.change(unit)
    return Response(status_code=204)


def find(connection: Connection, project_id: str) -> Project:
    """Return a project.

    Raises NotFound.
    """
    project = projects.get(connection, project_id)
    if project is None:
        raise NotFound(f"Could not find project: {project_id}.")
    return project


def _check(fields: ProjectFields, known_id: str | None, domain_id: str) -> None:
    check_same_id(fields.id, known_id, "project.id")
    if fields.domain_id not in (UNSET, None, domain_id):
        raise BadRequest("project.domain_id: cannot be changed")
    if fields.parent_id not in (UNSET, None, domain_id):
        raise BadRequest("project.parent_id: expected the project's domain, there are no trees of projects")
    if fields.is_domain is True:
        raise BadRequest("project.is_domain: expected false, domains are made at /v3/domains")


def _changed(project: Project, fields: ProjectFields) -> Project:
    values: dict[str, Any] = {
        name: value for name in ("name", "enabled") if (value := getattr(fields, name)) is not UNSET
    }
    if fields.description is not UNSET:
        values["description"] = fields.description or ""
    return msgspec.structs.replace(project, **values)
