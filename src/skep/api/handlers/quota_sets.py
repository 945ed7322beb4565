"""Quota sets: the limits of a project, or of one user of it."""

from __future__ import annotations

from typing import Any

from skep.api.projects import check_project
from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import quotas, server_groups
from skep.domain.errors import BadRequest
from skep.domain.ids import ProjectId, UserId
from skep.domain.quotas import UNLIMITED, FixedLimits

SHOW = "os_compute_api:os-quota-sets:show"

_OPTIONS = ("force", "tenant_id")
"""Keys of an update that are no resources."""


async def show(request: ApiRequest) -> Answer:
    """`GET /os-quota-sets/{project}`."""
    project, user = await _whose(request)
    limits = await _limits(request, project, user)
    return Answer({"quota_set": {"id": project, **limits}})


async def detail(request: ApiRequest) -> Answer:
    """`GET /os-quota-sets/{project}/detail`: limits and use."""
    project, user = await _whose(request)
    limits = await _limits(request, project, user)
    used = await request.services.database.read(lambda c: _used(c, project, user))
    shown: dict[str, Any] = {
        name: {"limit": limit, "in_use": used.get(name, 0), "reserved": 0} for name, limit in limits.items()
    }
    return Answer({"quota_set": {"id": project, **shown}})


async def defaults(request: ApiRequest) -> Answer:
    """`GET /os-quota-sets/{project}/defaults`: alike for all, so they tell no stranger which projects there are."""
    project = request.params["project"]
    if request.allowed(SHOW, project_id=project):
        await check_project(request, project)
    configured = await request.services.quotas_of(None)
    limits = await request.services.database.read(lambda c: quotas.default_limits(c, defaults=configured))
    return Answer({"quota_set": {"id": project, **limits}})


async def update(request: ApiRequest) -> Answer:
    """`PUT /os-quota-sets/{project}`. Without `force` no limit may be below what is used.

    Limits that Keystone decides are not changed here, as in Nova.
    """
    project, user = await _whose(request)
    body = request.body["quota_set"]
    wanted = {name: limit for name, limit in body.items() if name not in _OPTIONS}
    forced = body.get("force", False)
    configured = await request.services.quotas_of(project)
    if isinstance(configured, FixedLimits):
        return Answer({"quota_set": configured})

    def unit(connection: Connection) -> dict[str, int]:
        if not forced:
            _check_used(wanted, _used(connection, project, user))
        if user is not None:
            _check_project_limits(wanted, quotas.limits(connection, project, defaults=configured))
        quotas.set_limits(connection, project, wanted, user)
        return quotas.limits(connection, project, user, defaults=configured)

    return Answer({"quota_set": await request.services.database.write(unit)})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-quota-sets/{project}`: back to the defaults."""
    project, user = await _whose(request, must_exist=False)
    if request.services.unified_quotas is None:
        await request.services.database.write(lambda c: quotas.remove_limits(c, project, user))
    return Answer()


async def _whose(request: ApiRequest, *, must_exist: bool = True) -> tuple[ProjectId, UserId | None]:
    """Return the project and user that are meant, once the caller is allowed to."""
    project, user = ProjectId(request.params["project"]), request.first("user_id")
    request.authorize(project_id=project)
    if must_exist:
        await check_project(request, project)
    return project, UserId(user) if user else None


async def _limits(request: ApiRequest, project: ProjectId, user: UserId | None) -> dict[str, int]:
    configured = await request.services.quotas_of(project)
    return await request.services.database.read(lambda c: quotas.limits(c, project, user, defaults=configured))


def _used(connection: Connection, project: ProjectId, user: UserId | None) -> dict[str, int]:
    used = quotas.used(connection, project, user)
    return {**used, "server_groups": server_groups.count(connection, project)}


def _check_used(wanted: dict[str, int], used: dict[str, int]) -> None:
    for name, limit in wanted.items():
        if limit != UNLIMITED and limit < used.get(name, 0):
            raise BadRequest(
                f"Quota limit {limit} for {name} must be greater than or equal to already used and "
                f"reserved {used[name]}."
            )


def _check_project_limits(wanted: dict[str, int], project: dict[str, int]) -> None:
    for name, limit in wanted.items():
        most = project[name]
        if most != UNLIMITED and (limit == UNLIMITED or limit > most):
            raise BadRequest(f"Quota limit {limit} for {name} must be less than or equal to {most}.")
