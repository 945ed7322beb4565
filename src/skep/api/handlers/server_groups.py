"""Server groups."""

from __future__ import annotations

from typing import Any

from skep.api import telling
from skep.api.requests import Answer, ApiRequest
from skep.database.api import quotas, server_groups
from skep.database.api.server_groups import ServerGroup
from skep.domain.errors import BadRequest, NotFound, QuotaExceeded
from skep.domain.ids import GroupUuid, InstanceUuid, new_uuid


async def index(request: ApiRequest) -> Answer:
    """`GET /os-server-groups`; `all_projects` is for admins and ignored for others."""
    everything = "all_projects" in request.raw_query and request.allowed(
        "os_compute_api:os-server-groups:index:all_projects"
    )
    project = None if everything else request.context.project_id
    limit, offset = request.window()
    database = request.services.database
    groups = await database.read(lambda c: server_groups.page(c, project=project, limit=limit, offset=offset))
    members = await database.read(lambda c: server_groups.members(c, [group.uuid for group in groups]))
    return Answer({"server_groups": [view(group, members[group.uuid]) for group in groups]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-server-groups/{id}`."""
    group = await _mine(request)
    members = await request.services.database.read(lambda c: server_groups.members(c, [group.uuid]))
    return Answer({"server_group": view(group, members[group.uuid])})


async def create(request: ApiRequest) -> Answer:
    """`POST /os-server-groups`."""
    body = request.body["server_group"]
    policy = body["policy"] if request.version >= 64 else body["policies"][0]
    rules = body.get("rules", {})
    if rules and policy != "anti-affinity":
        raise BadRequest("Only anti-affinity policy supports rules.")
    context, services = request.context, request.services
    group = ServerGroup(
        uuid=GroupUuid(new_uuid()),
        name=body["name"],
        policy=policy,
        max_server_per_host=rules.get("max_server_per_host"),
        project_id=context.project_id,
        user_id=context.user_id,
        created_at=services.clock.now(),
    )
    defaults = await services.quotas_of(context.project_id)

    def unit(connection: Any) -> bool:
        limits = quotas.limits(connection, context.project_id, context.user_id, defaults=defaults)
        return server_groups.add(connection, group, most=limits["server_groups"])

    if not await services.database.write(unit):
        raise QuotaExceeded("Quota exceeded, too many server groups.")
    telling.server_group(request, "create", group, ())
    return Answer({"server_group": view(group, [])})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-server-groups/{id}`: the servers in it stay."""
    group = await _mine(request)
    if not await request.services.database.write(lambda c: server_groups.remove(c, group.uuid)):
        raise _not_found(group.uuid)
    telling.server_group(request, "delete", group, ())
    return Answer()


def view(group: ServerGroup, members: list[InstanceUuid]) -> dict[str, Any]:
    """Return all that the API says of a group."""
    rules = {} if group.max_server_per_host is None else {"max_server_per_host": group.max_server_per_host}
    return {
        "id": group.uuid,
        "name": group.name,
        "policies": [group.policy],
        "policy": group.policy,
        "rules": rules,
        "metadata": {},
        "members": members,
        "project_id": group.project_id,
        "user_id": group.user_id,
    }


async def _mine(request: ApiRequest) -> ServerGroup:
    """Return the group of the path if the caller may know of it and do what the route does."""
    uuid = request.params["group_id"]
    group = await request.services.database.read(lambda c: server_groups.get(c, uuid))
    if group is None:
        raise _not_found(uuid)
    request.authorize_seen(_not_found(uuid), project_id=group.project_id, user_id=group.user_id)
    return group


def _not_found(uuid: str) -> NotFound:
    return NotFound(f"Instance group {uuid} could not be found.")
