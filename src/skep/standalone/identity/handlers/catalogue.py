"""Services, endpoints and regions: read-only, for they are configuration."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from skep.domain.errors import NotFound
from skep.http.answers import json_response
from skep.http.operations import operation, parameter
from skep.http.urls import base_url
from skep.standalone.identity import views
from skep.standalone.identity.callers import admin, caller
from skep.standalone.identity.service import StandaloneIdentity

OF_SERVICES = ("type", "name")
OF_ENDPOINTS = ("interface", "service_id", "region_id", "region")
"""Parameters of lists."""


@operation(query=OF_SERVICES, shows="services")
async def list_services(identity: StandaloneIdentity, request: Request) -> Response:
    """List the services of the catalogue."""
    await admin(identity, request)
    base = base_url(request)
    shown = _filtered(_services(identity, base), request, OF_SERVICES)
    return json_response(views.listed("services", shown, base, "services"))


@operation(shows="service")
async def show_service(identity: StandaloneIdentity, request: Request) -> Response:
    """Show a service."""
    await admin(identity, request)
    return json_response({"service": _one(_services(identity, base_url(request)), request, "service")})


@operation(query=OF_ENDPOINTS, shows="endpoints")
async def list_endpoints(identity: StandaloneIdentity, request: Request) -> Response:
    """List the endpoints of the catalogue."""
    await admin(identity, request)
    base = base_url(request)
    shown = _filtered(_endpoints(identity, base), request, OF_ENDPOINTS)
    return json_response(views.listed("endpoints", shown, base, "endpoints"))


@operation(shows="endpoint")
async def show_endpoint(identity: StandaloneIdentity, request: Request) -> Response:
    """Show an endpoint."""
    await admin(identity, request)
    return json_response({"endpoint": _one(_endpoints(identity, base_url(request)), request, "endpoint")})


@operation(shows="regions")
async def list_regions(identity: StandaloneIdentity, request: Request) -> Response:
    """List the one region."""
    await caller(identity, request)
    base = base_url(request)
    return json_response(views.listed("regions", [_region(identity, base)], base, "regions"))


@operation(shows="region")
async def show_region(identity: StandaloneIdentity, request: Request) -> Response:
    """Show the one region."""
    await caller(identity, request)
    return json_response({"region": _one([_region(identity, base_url(request))], request, "region")})


def _services(identity: StandaloneIdentity, base: str) -> list[dict[str, Any]]:
    return [views.service(entry, base) for entry in identity.settings.catalogue]


def _endpoints(identity: StandaloneIdentity, base: str) -> list[dict[str, Any]]:
    region = identity.settings.region
    return [
        views.endpoint(entry, interface, region, base)
        for entry in identity.settings.catalogue
        for interface in views.INTERFACES
    ]


def _region(identity: StandaloneIdentity, base: str) -> dict[str, Any]:
    name = identity.settings.region
    return {
        "id": name,
        "description": "",
        "parent_region_id": None,
        "links": {"self": f"{base}/v3/regions/{name}"},
    }


def _filtered(items: list[dict[str, Any]], request: Request, names: tuple[str, ...]) -> list[dict[str, Any]]:
    wanted = {name: value for name in names if (value := parameter(request, name)) is not None}
    return [item for item in items if all(item[name] == value for name, value in wanted.items())]


def _one(items: list[dict[str, Any]], request: Request, noun: str) -> dict[str, Any]:
    identifier = request.path_params["id"]
    for item in items:
        if item["id"] == identifier:
            return item
    raise NotFound(f"Could not find {noun}: {identifier}.")
