"""Interfaces that a server gets or loses after its build: Nova's API reference, "Port interfaces"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from skep.api.cells import write_cell
from skep.api.handlers import interface_plugs
from skep.api.handlers.server_actions import carry_out, check_without_task
from skep.api.handlers.server_addresses import shown_interface
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.handlers.volume_plugs import once_calm, plugs
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import interfaces
from skep.domain.actions import ACTIONS
from skep.domain.capabilities import Capability
from skep.domain.errors import BadRequest, Conflict, NotFound, OutcomeUnknown, SkepError
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.networks.base import WantedInterface

log = structlog.get_logger("skep.api.servers")

ATTACH, DETACH = ACTIONS["attach_interface"], ACTIONS["detach_interface"]


async def attach(request: ApiRequest) -> Answer:
    """Give a server one more interface: its port is made first, then its row has it.

    A host that gives interfaces to guests which are there does so then. A row that does not take it any more leaves no
    port.
    """
    wanted = _wanted(request.body["interfaceAttachment"])
    found = await once_calm(request)
    server = found.instance
    check_without_task(request, server, ATTACH)
    asked = WantedInterface(
        instance=server.uuid,
        project_id=server.project_id,
        host=server.host or "",
        zone=server.availability_zone or "",
        network=wanted,
    )
    networks = request.services.networks
    vif = await networks.attach(asked, request.context, request.token)
    try:
        if await plugs(request, found, Capability.ATTACH_INTERFACE):
            await interface_plugs.plug(request, found, vif)
        elif not await carry_out(request, found, ATTACH, {"vif": vif}):
            raise Conflict(f"Instance {server.uuid} is not ready")
    except OutcomeUnknown:
        # The row may have it: a look finds out.
        raise
    except SkepError:
        await _undo(request, server.uuid, vif.id)
        raise
    return Answer({"interfaceAttachment": shown_interface(vif)})


async def _undo(request: ApiRequest, instance: InstanceUuid, port_id: str) -> None:
    """Take a port back that the row did not take. Where that fails, too, the server has it and its row is told so."""
    try:
        await request.services.networks.detach(instance, port_id, request.context, request.token)
    except SkepError as error:
        log.warning(
            "port not taken back",
            request=request.context.request_id,
            instance=instance,
            port=port_id,
            error=str(error),
        )


async def detach(request: ApiRequest) -> Answer:
    """Take an interface from a server: its row decides it, then the port goes.

    A row that does not lose it keeps its port. Where the port does not go, the server has it as before. A host that
    takes interfaces from guests which are there does so first; then a super conductor has the port released.
    """
    found = await once_calm(request)
    server, port_id = found.instance, request.params["port_id"]
    check_without_task(request, server, DETACH)
    place, vif = next(((at, one) for at, one in enumerate(server.vifs) if one.id == port_id), (0, None))
    if vif is None:
        raise NotFound(f"Port id {port_id[:80]} could not be found.")
    if await plugs(request, found, Capability.ATTACH_INTERFACE):
        await interface_plugs.unplug(request, found, vif)
        return Answer(status=202)
    if not await carry_out(request, found, DETACH, {"port_id": port_id}):
        raise Conflict(f"Instance {server.uuid} is not ready")
    try:
        await request.services.networks.detach(server.uuid, port_id, request.context, request.token)
    except NotFound:
        # It has gone by another way.
        pass
    except SkepError:
        await _corrected(request, found, partial(interfaces.regain, uuid=server.uuid, vif=vif, place=place))
        raise
    await _corrected(request, found, partial(interfaces.lose, uuid=server.uuid, port_id=port_id))
    return Answer(status=202)


async def _corrected(request: ApiRequest, found: LocatedServer, unit: Callable[..., None]) -> None:
    """Have the row say what became of a port. Where that fails, it is told later, by what the network service has."""
    services = request.services
    assert found.cell is not None
    try:
        await write_cell(services, found.cell, partial(unit, now=services.clock.now()))
    except SkepError as error:
        log.warning("row told later of its interfaces", request=request.context.request_id, error=str(error))


def _wanted(asked: dict[str, Any]) -> RequestedNetwork:
    """Read the body. Raises BadRequest for what does not go together (Nova's texts)."""
    network_id, port_id = asked.get("net_id"), asked.get("port_id")
    addresses = asked.get("fixed_ips") or ()
    if network_id is not None and port_id is not None:
        raise BadRequest("Must not input both network_id and port_id")
    if addresses and network_id is None:
        raise BadRequest("Must input network_id when request IP address")
    return RequestedNetwork(
        network_id=network_id,
        port_id=port_id,
        fixed_ip=addresses[0]["ip_address"] if addresses else None,
        tag=asked.get("tag"),
    )
