"""Services, endpoints and regions: read-only, for they are configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from starlette.requests import Request

from skep.domain.errors import NotFound
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation, parameter
from skep.http.urls import base_url
from skep.standalone.identity import answers, views
from skep.standalone.identity.callers import admin, caller
from skep.standalone.identity.service import StandaloneIdentity

T = TypeVar("T", bound=Mapping[str, object])

OF_SERVICES = ("type", "name")
OF_ENDPOINTS = ("interface", "service_id", "region_id", "region")
"""Parameters of lists."""


@operation(query=OF_SERVICES)
async def list_services(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedServices]:
    """List the services of the catalogue."""
    await admin(identity, request)
    base = base_url(request)
    shown = _filtered(_services(identity, base), request, OF_SERVICES)
    return json_response({"services": shown, "links": views.list_links(base, "services")})


@operation()
async def show_service(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneService]:
    """Show a service."""
    await admin(identity, request)
    return json_response({"service": _one(_services(identity, base_url(request)), request, "service")})


@operation(query=OF_ENDPOINTS)
async def list_endpoints(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedEndpoints]:
    """List the endpoints of the catalogue."""
    await admin(identity, request)
    base = base_url(request)
    shown = _filtered(_endpoints(identity, base), request, OF_ENDPOINTS)
    return json_response({"endpoints": shown, "links": views.list_links(base, "endpoints")})


@operation()
async def show_endpoint(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneEndpoint]:
    """Show an endpoint."""
    await admin(identity, request)
    return json_response({"endpoint": _one(_endpoints(identity, base_url(request)), request, "endpoint")})


@operation()
async def list_regions(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedRegions]:
    """List the one region."""
    await caller(identity, request)
    base = base_url(request)
    return json_response({"regions": [_region(identity, base)], "links": views.list_links(base, "regions")})


@operation()
async def show_region(identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneRegion]:
    """Show the one region."""
    await caller(identity, request)
    return json_response({"region": _one([_region(identity, base_url(request))], request, "region")})


def _services(identity: StandaloneIdentity, base: str) -> list[answers.ShownService]:
    return [views.service(entry, base) for entry in identity.settings.catalogue]


def _endpoints(identity: StandaloneIdentity, base: str) -> list[answers.ShownEndpoint]:
    region = identity.settings.region
    return [
        views.endpoint(entry, interface, region, base)
        for entry in identity.settings.catalogue
        for interface in views.INTERFACES
    ]


def _region(identity: StandaloneIdentity, base: str) -> answers.ShownRegion:
    name = identity.settings.region
    return {
        "id": name,
        "description": "",
        "parent_region_id": None,
        "links": {"self": f"{base}/v3/regions/{name}"},
    }


def _filtered(items: list[T], request: Request, names: tuple[str, ...]) -> list[T]:
    wanted = {name: value for name in names if (value := parameter(request, name)) is not None}
    return [item for item in items if all(item[name] == value for name, value in wanted.items())]


def _one(items: list[T], request: Request, noun: str) -> T:
    identifier = request.path_params["id"]
    for item in items:
        if item["id"] == identifier:
            return item
    raise NotFound(f"Could not find {noun}: {identifier}.")
