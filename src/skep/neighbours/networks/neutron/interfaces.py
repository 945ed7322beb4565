"""What servers have of ports: few lists, however many servers are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif, VifAddress, VifGroup, VifSubnet, vif_subnet
from skep.neighbours.networks.neutron.calls import NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.forms import (
    FLOATING,
    GROUPS,
    NETWORKS,
    PORTS,
    SUBNETS,
    NeutronFloating,
    NeutronGroup,
    NeutronNetwork,
    NeutronPort,
    NeutronSubnet,
)

Floating = Mapping[tuple[str, str], tuple[str, ...]]
"""Floating addresses by port and fixed address."""


async def ports_of(skep: NeutronCalls, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, list[NeutronPort]]:
    """Return the ports that are interfaces of servers, in their order; every server has an entry."""
    found: dict[InstanceUuid, list[NeutronPort]] = {one: [] for one in servers}
    for port in await skep.listed(PORTS, name="device_id", values=servers):
        if port.label is not None and port.device_id in found:
            found[InstanceUuid(port.device_id)].append(port)
    return {server: sorted(ports, key=order) for server, ports in found.items()}


def order(port: NeutronPort) -> tuple[int, int, str, str]:
    """Return by what the ports of a server are in order; of one place first that of the latest attempt."""
    if port.label is None:
        return (0, 0, port.created_at, port.id)
    return (port.label.position, -port.label.attempt, port.created_at, port.id)


def doubles_among(ports: Sequence[NeutronPort]) -> list[NeutronPort]:
    """Return the ports of one server that its build made twice: a request was slow, and was not waited for.

    The first of the latest attempt stays at each place.
    """
    places: set[int] = set()
    found: list[NeutronPort] = []
    for port in sorted(ports, key=order):
        label = port.label
        if label is not None and label.made and label.attempt:
            if label.position in places:
                found.append(port)
            places.add(label.position)
    return found


async def of_servers(skep: NeutronCalls, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
    """Return the interfaces of servers; every server has an entry."""
    return await shown(skep, await ports_of(skep, servers))


async def shown(
    skep: NeutronCalls, found: Mapping[InstanceUuid, Sequence[NeutronPort]]
) -> dict[InstanceUuid, tuple[Vif, ...]]:
    """Return the ports of servers as their servers have them, without those that were made twice."""
    left: dict[InstanceUuid, list[NeutronPort]] = {}
    for server, ports in found.items():
        doubles = {port.id for port in doubles_among(ports)}
        left[server] = [port for port in ports if port.id not in doubles]
    vifs = await vifs_of(skep, [port for ports in left.values() for port in ports])
    return {server: tuple(vifs[port.id] for port in ports if port.id in vifs) for server, ports in left.items()}


async def of_new(
    skep: NeutronCalls, made: Mapping[InstanceUuid, Sequence[NeutronPort]]
) -> dict[InstanceUuid, tuple[Vif, ...]]:
    """Return the interfaces of servers whose ports were made just now."""
    vifs = await vifs_of(skep, [port for ports in made.values() for port in ports], new=True)
    return {server: tuple(vifs[port.id] for port in ports if port.id in vifs) for server, ports in made.items()}


async def vifs_of(skep: NeutronCalls, ports: Sequence[NeutronPort], *, new: bool = False) -> dict[str, Vif]:
    """Return ports as their servers have them, by id; one whose network is gone meanwhile is left out.

    `new`: they were made just now, so no floating address leads to one.
    """
    if not ports:
        return {}
    networks, subnets, groups, floating = await asyncio.gather(
        skep.listed(NETWORKS, values=[port.network_id for port in ports]),
        skep.listed(SUBNETS, values=[fixed.subnet_id for port in ports for fixed in port.fixed_ips]),
        skep.listed(GROUPS, values=[group for port in ports for group in port.security_groups]),
        _floating(skep, () if new else ports),
    )
    by_network = {one.id: one for one in networks}
    by_subnet = {one.id: one for one in subnets}
    by_group = {one.id: one for one in groups}
    return {
        port.id: _vif(port, by_network[port.network_id], by_subnet, by_group, floating)
        for port in ports
        if port.network_id in by_network
    }


async def _floating(skep: NeutronCalls, ports: Sequence[NeutronPort]) -> Floating:
    if not ports:
        return {}
    try:
        listed: list[NeutronFloating] = await skep.listed(FLOATING, name="port_id", values=[one.id for one in ports])
    except NeutronRefused as error:
        if error.status != 404:
            raise
        # There are no routers in this cloud.
        listed = []
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in listed:
        key = (one.port_id or "", one.fixed_ip_address or "")
        found[key] = (*found.get(key, ()), one.floating_ip_address)
    return found


def _vif(
    port: NeutronPort,
    network: NeutronNetwork,
    subnets: Mapping[str, NeutronSubnet],
    groups: Mapping[str, NeutronGroup],
    floating: Floating,
) -> Vif:
    label = port.label
    return Vif(
        id=port.id,
        mac_address=port.mac_address,
        network_id=network.id,
        network_name=network.name,
        mtu=network.mtu,
        type=port.vif_type,
        details=port.details,
        vnic_type=port.vnic_type,
        made=label is not None and label.made,
        tag=None if label is None else label.tag,
        subnets=_subnets(port, subnets, floating),
        groups=tuple(VifGroup(one, groups[one].name) for one in port.security_groups if one in groups),
        wiring=port.wiring,
    )


def _subnets(port: NeutronPort, subnets: Mapping[str, NeutronSubnet], floating: Floating) -> tuple[VifSubnet, ...]:
    """Return what a port has of each subnet, in the order of its addresses."""
    addresses: dict[str, list[VifAddress]] = {}
    for one in port.fixed_ips:
        address = VifAddress(one.ip_address, floating.get((port.id, one.ip_address), ()))
        addresses.setdefault(one.subnet_id, []).append(address)
    return tuple(vif_subnet(subnets[one], tuple(of_it)) for one, of_it in addresses.items() if one in subnets)
