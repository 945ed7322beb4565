"""Addresses and interfaces of a server, as its row has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog

from skep.api.cells import write_cell
from skep.api.handlers.server_lookup import LocatedServer, find
from skep.api.requests import Answer, ApiRequest
from skep.api.views.security_groups import group_view
from skep.database.cell import interfaces as cell_interfaces
from skep.domain.errors import NotFound, Unavailable
from skep.domain.vifs import ShownAddress, Vif, Wiring, addresses_of
from skep.neighbours.networks.base import GroupChange

log = structlog.get_logger("skep.api.servers")

PORT_STATES: dict[Wiring, str] = {"none": "ACTIVE", "done": "ACTIVE", "awaited": "DOWN", "failed": "ERROR"}
"""Neutron's words for what is known of the wires of an interface."""


async def index(request: ApiRequest) -> Answer:
    """Return the addresses by network."""
    server = (await find(request)).instance
    return Answer({"addresses": {name: _shown(found) for name, found in addresses_of(server.vifs).items()}})


async def show(request: ApiRequest) -> Answer:
    """Return the addresses on one network."""
    server = (await find(request)).instance
    label = request.params["label"]
    found = addresses_of(server.vifs).get(label)
    if found is None:
        raise NotFound(f"Network {label[:80]} not found")
    return Answer({label: _shown(found)})


async def interfaces(request: ApiRequest) -> Answer:
    """Return the interfaces."""
    server = (await find(request)).instance
    return Answer({"interfaceAttachments": [shown_interface(vif) for vif in server.vifs]})


async def interface(request: ApiRequest) -> Answer:
    """Return the interface that a port is."""
    server = (await find(request)).instance
    port_id = request.params["port_id"]
    found = next((vif for vif in server.vifs if vif.id == port_id), None)
    if found is None:
        raise NotFound(f"Port {port_id[:80]} is not attached to instance {server.uuid}")
    return Answer({"interfaceAttachment": shown_interface(found)})


def _shown(found: list[ShownAddress]) -> list[dict[str, Any]]:
    return [{"version": one.version, "addr": one.address} for one in found]


def shown_interface(vif: Vif) -> dict[str, Any]:
    """Return an interface as users see it."""
    return {
        "net_id": vif.network_id,
        "port_id": vif.id,
        "mac_addr": vif.mac_address,
        "port_state": PORT_STATES[vif.wiring],
        "fixed_ips": [
            {"subnet_id": subnet.id, "ip_address": one.address} for subnet in vif.subnets for one in subnet.addresses
        ],
        "tag": vif.tag,
    }


async def security_groups(request: ApiRequest) -> Answer:
    """Return the security groups of the server's interfaces."""
    server = (await find(request)).instance
    ids = tuple(dict.fromkeys(group.id for vif in server.vifs for group in vif.groups))
    found = await request.services.networks.security_groups(ids, request.context, request.token) if ids else []
    return Answer({"security_groups": [group_view(one) for one in found]})


async def add_group(request: ApiRequest) -> Answer:
    """Give a security group to all interfaces."""
    return await _change_group(request, request.body["addSecurityGroup"]["name"], added=True)


async def remove_group(request: ApiRequest) -> Answer:
    """Take a security group from all interfaces."""
    return await _change_group(request, request.body["removeSecurityGroup"]["name"], added=False)


async def _change_group(request: ApiRequest, group: str, *, added: bool) -> Answer:
    """Change the ports, and tell the row."""
    found = await find(request)
    change = GroupChange(instance=found.instance.uuid, group=group, added=added)
    vifs = await request.services.networks.set_group(change, request.context, request.token)
    await tell_row(request, found, vifs)
    return Answer(status=202)


async def tell_row(request: ApiRequest, found: LocatedServer, vifs: Sequence[Vif]) -> None:
    """Have a row say what its server has now, so that whoever has changed it reads it.

    Where the cell does not answer, a super conductor tells the row later: the change was noted with its ports.
    """
    services = request.services
    if found.cell is None:
        return
    unit = partial(cell_interfaces.tell, vifs={found.instance.uuid: vifs}, now=services.clock.now())
    try:
        await write_cell(services, found.cell, unit)
    except Unavailable as error:
        log.warning("row told later of its interfaces", request=request.context.request_id, error=str(error))
