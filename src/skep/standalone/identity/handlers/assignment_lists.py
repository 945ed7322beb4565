"""The list of who has which role where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from starlette.requests import Request

from skep.database import Connection
from skep.database.api import domains, groups, projects, role_assignments, roles, users
from skep.database.api.projects import Project
from skep.database.api.role_assignments import RoleAssignment
from skep.domain.errors import BadRequest
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import BOOLEAN, STRING, operation, parameter
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin
from skep.standalone.identity.filters import flag
from skep.standalone.identity.roles import with_implied
from skep.standalone.identity.service import StandaloneIdentity

FILTERS = {
    "user.id": "user_id",
    "group.id": "group_id",
    "role.id": "role_id",
    "scope.project.id": "project_id",
    "scope.domain.id": "domain_id",
}
"""Parameter -> what of an assignment must have its value."""
INHERITED_TO = "scope.OS-INHERIT:inherited_to"
QUERY = {
    **dict.fromkeys((*FILTERS, "scope.system"), STRING),
    INHERITED_TO: {"enum": ["projects"]},
    "effective": BOOLEAN,
    "include_names": BOOLEAN,
}


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """All that assignments name."""

    users: dict[str, users.User]
    groups: dict[str, groups.UserGroup]
    projects: dict[str, Project]
    domains: dict[str, domains.Domain]
    roles: dict[str, str]
    """Id -> name."""


@operation(query=QUERY)
async def list_(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedAssignments]:
    """List assignments as they were given; `effective` tells instead what each user has by them."""
    await admin(identity, request)
    base = base_url(request)
    found = await identity.database.read(lambda connection: _listed(connection, request, base))
    return json_response({"role_assignments": found, "links": views.list_links(base, "role_assignments")})


def _listed(connection: Connection, request: Request, base: str) -> list[answers.ShownAssignment]:
    effective, names = bool(flag(request, "effective")), bool(flag(request, "include_names"))
    inherited_to = parameter(request, INHERITED_TO)
    if effective and (parameter(request, "group.id") is not None or inherited_to is not None):
        raise BadRequest("effective: expected without group.id and scope.OS-INHERIT:inherited_to")
    if inherited_to not in (None, "projects"):
        raise BadRequest(f"{INHERITED_TO}: expected `projects`")
    known = _Known(
        users={one.id: one for one in users.select(connection)},
        groups={one.id: one for one in groups.select(connection)},
        projects={one.id: one for one in projects.select(connection)},
        domains={one.id: one for one in domains.select(connection)},
        roles={one.id: one.name for one in roles.select(connection)},
    )
    given: Iterable[RoleAssignment] = role_assignments.assignments(connection)
    if effective:
        given = _effective(given, groups.members(connection), known)
    wanted = {field: value for name, field in FILTERS.items() if (value := parameter(request, name)) is not None}
    of_system = parameter(request, "scope.system") is not None
    return [
        _shown(item, known, base, names=names)
        for item in given
        if all(getattr(item, field) == value for field, value in wanted.items())
        and (inherited_to is None or item.inherited)
        and (not of_system or (item.project_id is None and item.domain_id is None))
    ]


def _effective(given: Iterable[RoleAssignment], members: dict[str, set[str]], known: _Known) -> list[RoleAssignment]:
    """Return what users have: by their groups, inherited, and implied, each once."""
    role_ids = {name: role_id for role_id, name in known.roles.items()}
    of_domain: dict[str, list[str]] = {}
    for project in known.projects.values():
        of_domain.setdefault(project.domain_id, []).append(project.id)
    found: dict[RoleAssignment, None] = {}
    for item in given:
        for place in _places(item, of_domain):
            for user_id in [item.user_id] if item.user_id is not None else sorted(members.get(item.group_id or "", ())):
                for name in with_implied([known.roles[item.role_id]]):
                    if name in role_ids:
                        one = msgspec.structs.replace(place, user_id=user_id, group_id=None, role_id=role_ids[name])
                        found[one] = None
    return list(found)


def _places(item: RoleAssignment, of_domain: dict[str, list[str]]) -> Iterator[RoleAssignment]:
    """Yield an assignment where it counts. What is inherited from a project is for those below: there are none."""
    if not item.inherited:
        yield item
    elif item.domain_id is not None:
        for project_id in of_domain.get(item.domain_id, ()):
            yield msgspec.structs.replace(item, project_id=project_id, domain_id=None, inherited=False)


def _shown(item: RoleAssignment, known: _Known, base: str, *, names: bool) -> answers.ShownAssignment:
    role: answers.NamedOrNot = {"id": item.role_id}
    if names:
        role["name"] = known.roles[item.role_id]
    scope: answers.ScopeOfAssignment = {}
    shown: answers.ShownAssignment = {
        "role": role,
        "scope": scope,
        "links": {"assignment": f"{base}{_path(item)}"},
    }
    if item.user_id is not None:
        shown["user"] = _named(known.users[item.user_id], known, names=names)
    if item.group_id is not None:
        shown["group"] = _named(known.groups[item.group_id], known, names=names)
    if item.project_id is not None:
        scope["project"] = _named(known.projects[item.project_id], known, names=names)
    elif item.domain_id is not None:
        scope["domain"] = {"id": item.domain_id}
        if names:
            scope["domain"]["name"] = known.domains[item.domain_id].name
    else:
        scope["system"] = {"all": True}
    if item.inherited:
        scope["OS-INHERIT:inherited_to"] = "projects"
    return shown


def _named(one: users.User | groups.UserGroup | Project, known: _Known, *, names: bool) -> answers.NamedOrNotInDomain:
    if not names:
        return {"id": one.id}
    domain = known.domains[one.domain_id]
    return {"id": one.id, "name": one.name, "domain": {"id": domain.id, "name": domain.name}}


def _path(item: RoleAssignment) -> str:
    place = f"projects/{item.project_id}" if item.project_id is not None else "system"
    if item.domain_id is not None:
        place = f"domains/{item.domain_id}"
    actor = f"users/{item.user_id}" if item.user_id is not None else f"groups/{item.group_id}"
    if item.inherited:
        return f"/v3/OS-INHERIT/{place}/{actor}/roles/{item.role_id}/inherited_to_projects"
    return f"/v3/{place}/{actor}/roles/{item.role_id}"
