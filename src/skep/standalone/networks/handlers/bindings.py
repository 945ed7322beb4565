"""The bindings of ports to hosts (Neutron's extension `binding-extended`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from skep.domain.networking import Port
from skep.http.answers import JsonResponse, json_response
from skep.http.operations import Read, operation, takes
from skep.standalone.networks import bindings
from skep.standalone.networks.bodies import ChangedBindingBody, NewBindingBody
from skep.standalone.networks.callers import NetworksApi, NetworkWork, reader, writer
from skep.standalone.networks.resources import T, look, run
from skep.standalone.networks.views import ShownBinding


class OneBinding(TypedDict):
    """One binding of a port."""

    binding: ShownBinding


class ManyBindings(TypedDict):
    """The bindings of a port."""

    bindings: list[ShownBinding]


@operation()
async def list_(api: NetworksApi, request: Request) -> JsonResponse[ManyBindings]:
    """List the bindings of a port."""
    unit = _of_port(request, "get_port_binding", lambda _work, port: bindings.shown(port))
    return json_response({"bindings": await look(api, await reader(api, request), unit)})


@operation()
async def show(api: NetworksApi, request: Request) -> JsonResponse[OneBinding]:
    """Show the binding of a port to a host."""
    unit = _of_port(request, "get_port_binding", lambda _work, port: bindings.show(port, _host(request)))
    return json_response({"binding": await look(api, await reader(api, request), unit)})


@takes(NewBindingBody, status=201)
async def create(api: NetworksApi, request: Request, read: Read[NewBindingBody]) -> JsonResponse[OneBinding]:
    """Bind a port to one more host, which does not get it yet."""
    caller, said = await writer(api, request), (await read()).binding
    unit = _of_port(request, "create_port_binding", lambda work, port: bindings.create(work, port, said))
    return json_response({"binding": await run(api, caller, unit)}, status=201)


@takes(ChangedBindingBody)
async def update(api: NetworksApi, request: Request, read: Read[ChangedBindingBody]) -> JsonResponse[OneBinding]:
    """Change a binding of a port."""
    caller, said = await writer(api, request), (await read()).binding
    unit = _of_port(
        request, "update_port_binding", lambda work, port: bindings.update(work, port, _host(request), said)
    )
    return json_response({"binding": await run(api, caller, unit)})


@operation(status=204)
async def delete(api: NetworksApi, request: Request) -> Response:
    """Take a binding from a port."""
    unit = _of_port(request, "delete_port_binding", lambda work, port: bindings.delete(work, port, _host(request)))
    await run(api, await writer(api, request), unit)
    return Response(status_code=204)


@operation()
async def activate(api: NetworksApi, request: Request) -> JsonResponse[OneBinding]:
    """Give a port to a host to which it is bound."""
    unit = _of_port(request, "activate", lambda work, port: bindings.activate(work, port, _host(request)))
    return json_response({"binding": await run(api, await writer(api, request), unit)})


def _of_port(request: Request, name: str, unit: Callable[[NetworkWork, Port], T]) -> Callable[[NetworkWork], T]:
    return lambda work: unit(work, bindings.port_of(work, request.path_params["id"], name))


def _host(request: Request) -> str:
    return str(request.path_params["host"])
