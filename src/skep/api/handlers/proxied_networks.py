"""Networks as old clients ask the compute API for them: little more than their names is left of nova-network's."""

from __future__ import annotations

from typing import Any

from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.network_proxies import NULLS, NULLS_OF_ADMINS
from skep.neighbours.networks.base import NamedNetwork

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-networks`."""
    return Answer({"networks": [_view(request, one) for one in await _all(request)]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-networks/{network_id}`."""
    return Answer({"network": _view(request, await _one(request))})


async def index_of_project(request: ApiRequest) -> Answer:
    """`GET /os-tenant-networks`."""
    return Answer({"networks": [_view_of_project(one) for one in await _all(request)]})


async def show_of_project(request: ApiRequest) -> Answer:
    """`GET /os-tenant-networks/{network_id}`."""
    return Answer({"network": _view_of_project(await _one(request))})


async def _all(request: ApiRequest) -> list[NamedNetwork]:
    return await request.services.networks.list_networks(request.context, request.token)


async def _one(request: ApiRequest) -> NamedNetwork:
    return await request.services.networks.network(request.params["network_id"], request.context, request.token)


def _view(request: ApiRequest, network: NamedNetwork) -> Json:
    nulls = (*NULLS, *NULLS_OF_ADMINS) if request.context.is_admin else NULLS
    return {"id": network.id, "label": network.name, **dict.fromkeys(nulls)}


def _view_of_project(network: NamedNetwork) -> Json:
    """Show a network; no subnet is told, and Nova says so by this word."""
    return {"id": network.id, "label": network.name, "cidr": "None"}
