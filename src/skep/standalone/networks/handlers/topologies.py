"""The topology of a project: made when it is asked for."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from skep.domain.errors import BadRequest
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation, parameter
from skep.standalone.networks import topologies
from skep.standalone.networks.callers import NetworkCaller, NetworksApi, reader, writer
from skep.standalone.networks.refusals import NotPermitted
from skep.standalone.networks.resources import run

DRY_RUN = "dry-run"


class ShownTopology(TypedDict):
    """The network of a project's topology."""

    id: str
    tenant_id: str
    project_id: NotRequired[str]


class OneTopology(TypedDict):
    """The topology of one project."""

    auto_allocated_topology: ShownTopology


@operation(query=("fields",))
async def show(api: NetworksApi, request: Request) -> JsonResponse[OneTopology]:
    """Return the network of a project's topology; `fields=dry-run` asks only whether there may be one."""
    if parameter(request, "fields") == DRY_RUN:
        caller = await reader(api, request)
        project = _project(caller, request)
        return json_response({"auto_allocated_topology": {"id": "dry-run=pass", "tenant_id": project}})
    caller = await writer(api, request)
    project = _project(caller, request)
    network_id = await run(api, caller, lambda work: topologies.ensure(work, project))
    shown: ShownTopology = {"id": network_id, "tenant_id": project, "project_id": project}
    return json_response({"auto_allocated_topology": shown})


@operation(status=204)
async def delete(api: NetworksApi, request: Request) -> Response:
    """Remove a project's topology."""
    caller = await writer(api, request)
    project = _project(caller, request)
    await run(api, caller, lambda work: topologies.remove(work, project))
    return Response(status_code=204)


def _project(caller: NetworkCaller, request: Request) -> str:
    """Return the project that the path names; `null` and `None` mean the caller's."""
    named = request.path_params["project_id"]
    project = caller.project_id if named in ("null", "None") else str(named)
    if not project:
        raise BadRequest("project_id: expected a value, the token is of no project")
    if not caller.owns(project):
        raise NotPermitted("get_auto_allocated_topology")
    return project
