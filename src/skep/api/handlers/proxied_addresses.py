"""Addresses of servers as old clients ask the compute API for them: floating ones, and more fixed ones."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from skep.api.handlers.server_addresses import tell_row
from skep.api.handlers.server_lookup import find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest
from skep.neighbours.networks.base import FloatingOfServer


async def pools(request: ApiRequest) -> Answer:
    """`GET /os-floating-ip-pools`."""
    names = await request.services.networks.floating_pools(request.context, request.token)
    return Answer({"floating_ip_pools": [{"name": name} for name in names]})


async def index(request: ApiRequest) -> Answer:
    """`GET /os-floating-ips`."""
    found = await request.services.networks.floating_ips(request.context, request.token)
    return Answer({"floating_ips": [_view(one) for one in found]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-floating-ips/{floating_id}`."""
    floating = request.params["floating_id"]
    found = await request.services.networks.floating_ip(floating, request.context, request.token)
    return Answer({"floating_ip": _view(found)})


async def take(request: ApiRequest) -> Answer:
    """`POST /os-floating-ips`."""
    pool = request.body.get("pool") or None
    made = await request.services.networks.take_floating_ip(pool, request.context, request.token)
    return Answer({"floating_ip": _view(made)})


async def give_back(request: ApiRequest) -> Answer:
    """`DELETE /os-floating-ips/{floating_id}`."""
    floating = request.params["floating_id"]
    await request.services.networks.give_floating_ip_back(floating, request.context, request.token)
    return Answer()


async def add_floating(request: ApiRequest) -> Answer:
    """Lead a floating address to a server, and tell its row."""
    found = await find(request)
    said = request.body["addFloatingIp"]
    fixed = _address(said["fixed_address"]) if "fixed_address" in said else None
    networks = request.services.networks
    vifs = await networks.lead_floating_ip(
        found.instance.uuid, _address(said["address"]), fixed, request.context, request.token
    )
    await tell_row(request, found, vifs)
    return Answer(status=202)


async def remove_floating(request: ApiRequest) -> Answer:
    """Lead a floating address of a server nowhere, and tell its row."""
    found = await find(request)
    address = _address(request.body["removeFloatingIp"]["address"])
    vifs = await request.services.networks.loosen_floating_ip(
        found.instance.uuid, address, request.context, request.token
    )
    await tell_row(request, found, vifs)
    return Answer(status=202)


async def add_fixed(request: ApiRequest) -> Answer:
    """Give a server one more address on a network, and tell its row."""
    found = await find(request)
    refuse_if_locked(request, found.instance)
    network = request.body["addFixedIp"]["networkId"].lower()
    vifs = await request.services.networks.add_fixed_ip(found.instance.uuid, network, request.context, request.token)
    await tell_row(request, found, vifs)
    return Answer(status=202)


async def remove_fixed(request: ApiRequest) -> Answer:
    """Take an address from a server, and tell its row."""
    found = await find(request)
    refuse_if_locked(request, found.instance)
    address = _address(request.body["removeFixedIp"]["address"])
    vifs = await request.services.networks.remove_fixed_ip(found.instance.uuid, address, request.context, request.token)
    await tell_row(request, found, vifs)
    return Answer(status=202)


def _address(said: str) -> str:
    """Return an address as it is kept; its schema has checked it."""
    return str(ip_address(said))


def _view(floating: FloatingOfServer) -> dict[str, Any]:
    return {
        "id": floating.id,
        "ip": floating.address,
        "pool": floating.pool,
        "fixed_ip": floating.fixed_address,
        "instance_id": floating.instance,
    }
