"""What is done to routers beside changing them: interfaces and single routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta
from starlette.requests import Request

from skep.database.api.network_rows import ROUTERS
from skep.domain.networking import HostRoute, Port, Subnet, VirtualRouter
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, takes
from skep.standalone.networks import routers
from skep.standalone.networks.bodies import Id
from skep.standalone.networks.callers import NetworksApi, NetworkWork, writer
from skep.standalone.networks.resources import check_owner, find, run, store
from skep.standalone.networks.views import ShownRouter


class InterfaceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What joins a network to a router."""

    subnet_id: Id | None = None
    port_id: Id | None = None


class ExtraRoutes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Routes that come or go."""

    routes: Annotated[tuple[HostRoute, ...], Meta(max_length=1000)]


class ExtraRoutesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `add_extraroutes` and `remove_extraroutes`."""

    router: ExtraRoutes


class ShownInterface(TypedDict):
    """What joins, or joined, a network to a router."""

    id: str
    project_id: str
    tenant_id: str
    port_id: str
    network_id: str
    subnet_id: str
    subnet_ids: list[str]


class RouterWithRoutes(TypedDict):
    """The router with its routes."""

    router: ShownRouter


@takes(InterfaceBody)
async def add_interface(api: NetworksApi, request: Request, read: Read[InterfaceBody]) -> JsonResponse[ShownInterface]:
    """Join a network to a router."""
    return await _interface(api, request, read, routers.add_interface)


@takes(InterfaceBody)
async def remove_interface(
    api: NetworksApi, request: Request, read: Read[InterfaceBody]
) -> JsonResponse[ShownInterface]:
    """Part a network from a router."""
    return await _interface(api, request, read, routers.remove_interface)


async def _interface(
    api: NetworksApi,
    request: Request,
    read: Read[InterfaceBody],
    act: Callable[[NetworkWork, VirtualRouter, str | None, str | None], tuple[Port, list[Subnet]]],
) -> JsonResponse[ShownInterface]:
    caller = await writer(api, request)
    said = await read()

    def unit(work: NetworkWork) -> ShownInterface:
        router = _own(work, request)
        port, subnets = act(work, router, said.subnet_id, said.port_id)
        return {
            "id": router.id,
            "project_id": router.project_id,
            "tenant_id": router.project_id,
            "port_id": port.id,
            "network_id": port.network_id,
            "subnet_id": subnets[0].id,
            "subnet_ids": [subnet.id for subnet in subnets],
        }

    return json_response(await run(api, caller, unit))


@takes(ExtraRoutesBody)
async def add_routes(api: NetworksApi, request: Request, read: Read[ExtraRoutesBody]) -> JsonResponse[RouterWithRoutes]:
    """Give a router more routes; one that it has stays."""
    return await _routes(api, request, read, lambda had, said: [*had, *(one for one in said if one not in had)])


@takes(ExtraRoutesBody)
async def remove_routes(
    api: NetworksApi, request: Request, read: Read[ExtraRoutesBody]
) -> JsonResponse[RouterWithRoutes]:
    """Take routes from a router; one that it does not have changes nothing."""
    return await _routes(api, request, read, lambda had, said: [one for one in had if one not in said])


async def _routes(
    api: NetworksApi,
    request: Request,
    read: Read[ExtraRoutesBody],
    change: Callable[[list[HostRoute], list[HostRoute]], list[HostRoute]],
) -> JsonResponse[RouterWithRoutes]:
    caller = await writer(api, request)
    said = list((await read()).router.routes)

    def unit(work: NetworkWork) -> ShownRouter:
        router = _own(work, request)
        after = store(work, ROUTERS, routers.with_routes(work, router, change(list(router.routes), said)))
        return routers.show(work.connection, [after], caller)[0]

    return json_response({"router": await run(api, caller, unit)})


def _own(work: NetworkWork, request: Request) -> VirtualRouter:
    router = find(work, "Router", ROUTERS, request.path_params["id"])
    check_owner(work, router, "update_router")
    return router
