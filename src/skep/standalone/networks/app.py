"""The routes of the network service."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp

from skep.domain.errors import NotFound
from skep.http.application import application, paths
from skep.standalone.networks import floating_ips, networks, ports, routers, security_groups, subnets
from skep.standalone.networks.callers import NetworksApi
from skep.standalone.networks.handlers import bindings, documents, quotas, topologies
from skep.standalone.networks.handlers import routers as of_routers
from skep.standalone.networks.refusals import form
from skep.standalone.networks.resources import Route, operations

RESOURCES = (
    networks.RESOURCE,
    subnets.RESOURCE,
    ports.RESOURCE,
    security_groups.GROUPS,
    security_groups.RULES,
    routers.RESOURCE,
    floating_ips.RESOURCE,
)

ROUTES: tuple[Route, ...] = (
    ("GET", "/", documents.versions),
    ("GET", "/v2.0", documents.resources),
    ("GET", "/v2.0/extensions", documents.extensions),
    ("GET", "/v2.0/extensions/{alias}", documents.extension),
    ("GET", "/v2.0/service-providers", documents.providers),
    *(route for resource in RESOURCES for route in operations(resource)),
    ("PUT", "/v2.0/routers/{id}/add_router_interface", of_routers.add_interface),
    ("PUT", "/v2.0/routers/{id}/remove_router_interface", of_routers.remove_interface),
    ("PUT", "/v2.0/routers/{id}/add_extraroutes", of_routers.add_routes),
    ("PUT", "/v2.0/routers/{id}/remove_extraroutes", of_routers.remove_routes),
    ("GET", "/v2.0/ports/{id}/bindings", bindings.list_),
    ("POST", "/v2.0/ports/{id}/bindings", bindings.create),
    ("GET", "/v2.0/ports/{id}/bindings/{host}", bindings.show),
    ("PUT", "/v2.0/ports/{id}/bindings/{host}", bindings.update),
    ("DELETE", "/v2.0/ports/{id}/bindings/{host}", bindings.delete),
    ("PUT", "/v2.0/ports/{id}/bindings/{host}/activate", bindings.activate),
    ("GET", "/v2.0/quotas", quotas.list_),
    ("GET", "/v2.0/quotas/{project_id}", quotas.show),
    ("PUT", "/v2.0/quotas/{project_id}", quotas.update),
    ("DELETE", "/v2.0/quotas/{project_id}", quotas.delete),
    ("GET", "/v2.0/quotas/{project_id}/default", quotas.defaults),
    ("GET", "/v2.0/quotas/{project_id}/details", quotas.details),
    ("GET", "/v2.0/quotas/{project_id}/details.json", quotas.details),
    ("GET", "/v2.0/auto-allocated-topology/{project_id}", topologies.show),
    ("DELETE", "/v2.0/auto-allocated-topology/{project_id}", topologies.delete),
)
"""Method, path, what answers. HEAD goes where GET goes."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


async def _absent(known: Sequence[StarletteRoute], request: Request) -> Response:
    """Name what other network services have at a path; a path that is known has no such method."""
    allowed = {
        method for route in known if route.matches(request.scope)[0] is Match.PARTIAL for method in route.methods or ()
    }
    if allowed:
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
    name = request.path_params["path"].partition("/")[0]
    raise NotFound(f"This network service has no '{name[:80]}'.")


def networks_app(api: NetworksApi) -> ASGIApp:
    """Return the service as an ASGI application."""
    known = paths(ROUTES, api)
    absent = StarletteRoute("/v2.0/{path:path}", partial(_absent, known), methods=METHODS)
    return application([*known, absent], structlog.get_logger("skep.networks"), form(api.settings.identity_url))
