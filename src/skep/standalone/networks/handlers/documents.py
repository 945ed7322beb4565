"""What the service says of itself: versions, resources, extensions."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request

from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation
from skep.http.urls import base_url
from skep.standalone.networks.callers import NetworksApi, reader
from skep.standalone.networks.refusals import Missing

EXTENSIONS = {
    "allowed-address-pairs": "Allowed Address Pairs",
    "auto-allocated-topology": "Auto Allocated Topology Services",
    "binding": "Port Binding",
    "binding-extended": "Port Bindings Extended",
    "ext-gw-mode": "Neutron L3 Configurable external gateway mode",
    "external-net": "Neutron external network",
    "extraroute": "Neutron Extra Route",
    "extraroute-atomic": "Atomically add/remove extra routes",
    "fip-port-details": "Add port_details attribute to Floating IP resource",
    "filter-validation": "Filter parameters validation",
    "ip-substring-filtering": "IP address substring filtering",
    "net-mtu": "Network MTU",
    "net-mtu-writable": "Network MTU (writable)",
    "pagination": "Pagination support",
    "port-security": "Port Security",
    "project-id": "project_id field enabled",
    "quota_details": "Quota details management support",
    "quotas": "Quota management support",
    "revision-if-match": "If-Match constraints based on revision_number",
    "router": "Neutron L3 Router",
    "security-group": "security-group",
    "service-type": "Neutron Service Type Management",
    "sorting": "Sorting support",
    "standard-attr-description": "standard-attr-description",
    "standard-attr-revisions": "Resource revision numbers",
    "standard-attr-tag": "Tag support for resources with standard attribute",
    "standard-attr-timestamp": "Resource timestamps",
    "stateful-security-group": "Stateful security group",
}
"""Alias -> name, of Neutron's extensions that are here."""

RESOURCES = (
    "networks",
    "subnets",
    "ports",
    "security-groups",
    "security-group-rules",
    "routers",
    "floatingips",
    "service-providers",
    "quotas",
    "extensions",
)


class ShownLink(TypedDict):
    """Where something is."""

    rel: str
    href: str


class ShownApi(TypedDict):
    """A version of the API."""

    id: str
    status: str
    links: list[ShownLink]


class ListedApis(TypedDict):
    """The versions of the API."""

    versions: list[ShownApi]


class ShownCollection(TypedDict):
    """A kind of resource, and where it is."""

    name: str
    collection: str
    links: list[ShownLink]


class ListedCollections(TypedDict):
    """What is at a version of the API."""

    resources: list[ShownCollection]


class ShownExtension(TypedDict):
    """An extension of Neutron's API."""

    alias: str
    name: str
    description: str
    updated: str
    links: list[ShownLink]


class ListedExtensions(TypedDict):
    """The extensions that are here."""

    extensions: list[ShownExtension]


class OneExtension(TypedDict):
    """One of them."""

    extension: ShownExtension


class ShownProvider(TypedDict):
    """What provides a service of Neutron beyond networks."""

    service_type: str
    name: str
    default: bool


class ListedProviders(TypedDict):
    """The providers that are here."""

    service_providers: list[ShownProvider]


@operation(open_=True)
async def versions(_api: NetworksApi, request: Request) -> JsonResponse[ListedApis]:
    """List the versions of the API."""
    links: list[ShownLink] = [{"rel": "self", "href": f"{base_url(request)}/v2.0/"}]
    return json_response({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})


@operation(open_=True)
async def resources(_api: NetworksApi, request: Request) -> JsonResponse[ListedCollections]:
    """List what is at this version."""
    base = base_url(request)
    shown: list[ShownCollection] = [
        {
            "name": name.rstrip("s").replace("-", "_"),
            "collection": name.replace("-", "_"),
            "links": [{"rel": "self", "href": f"{base}/v2.0/{name}"}],
        }
        for name in RESOURCES
    ]
    return json_response({"resources": shown})


@operation()
async def extensions(api: NetworksApi, request: Request) -> JsonResponse[ListedExtensions]:
    """List the extensions of Neutron that are here."""
    await reader(api, request)
    return json_response({"extensions": [_extension(alias) for alias in EXTENSIONS]})


@operation()
async def extension(api: NetworksApi, request: Request) -> JsonResponse[OneExtension]:
    """Show an extension."""
    await reader(api, request)
    alias = request.path_params["alias"]
    if alias not in EXTENSIONS:
        raise Missing("Extension", alias)
    return json_response({"extension": _extension(alias)})


@operation(query=("service_type", "name", "default", "fields"))
async def providers(api: NetworksApi, request: Request) -> JsonResponse[ListedProviders]:
    """List the providers of further services (VPN and others): there is none. Clients ask before they use such."""
    await reader(api, request)
    return json_response({"service_providers": []})


def _extension(alias: str) -> ShownExtension:
    name = EXTENSIONS[alias]
    return {"alias": alias, "name": name, "description": name, "updated": "2026-11-28T00:00:00-00:00", "links": []}
