"""Ports that the API database has forgotten because it went back in time, made again as the rows of their servers say.

The guest of such a server uses the addresses of its port, so they must not be given to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import ip_address

import sqlalchemy as sa

from skep.database.api import network_rows, port_addresses, port_groups
from skep.database.api.network_rows import NETWORKS, PORTS, SECURITY_GROUPS, SUBNETS
from skep.domain.instances import Instance
from skep.domain.networking import Port, Subnet
from skep.domain.subnet_addresses import IpAddress
from skep.domain.vifs import LostPort, Vif


def remake(connection: sa.Connection, server: Instance, now: int) -> list[LostPort]:
    """Make the ports of a server that are not there, as its row says them.

    Return those that cannot be made: a network or subnet is not there, or another port has an address by now.
    """
    there = network_rows.by_id(connection, PORTS, [vif.id for vif in server.vifs])
    lost = [(place, vif) for place, vif in enumerate(server.vifs) if vif.id not in there]
    found = (_made(connection, server, vif, place, now) for place, vif in lost)
    return [one for one in found if one is not None]


def _made(connection: sa.Connection, server: Instance, vif: Vif, place: int, now: int) -> LostPort | None:
    """Make a port; return why not where that cannot be."""
    subnets = network_rows.by_id(connection, SUBNETS, [subnet.id for subnet in vif.subnets])
    addresses = [(subnet.id, ip_address(one.address)) for subnet in vif.subnets for one in subnet.addresses]
    lost = partial(LostPort, id=vif.id, addresses=tuple(str(address) for _, address in addresses))
    network = network_rows.get(connection, NETWORKS, vif.network_id)
    if network is None:
        return lost(why=f"its network {vif.network_id} is not there")
    obstacle = _obstacle(connection, vif, subnets, addresses)
    if obstacle is not None:
        why, holder = obstacle
        return lost(why=why, holder=holder)
    port = Port(
        id=vif.id,
        project_id=server.project_id,
        created_at=now,
        updated_at=now,
        network_id=vif.network_id,
        mac_address=vif.mac_address,
        device_id=server.uuid,
        device_owner=f"compute:{server.availability_zone or ''}",
        binding_host_id=server.host or "",
        binding_vnic_type=vif.vnic_type,
        # A row does not say whether a port without groups was closed or open. One closed by mistake its owner can open.
        port_security_enabled=bool(vif.groups) or network.port_security_enabled,
        server=server.uuid,
        server_position=place,
        made_for_server=vif.made,
        device_tag=vif.tag,
    )
    network_rows.insert(connection, PORTS, port)
    groups = network_rows.by_id(connection, SECURITY_GROUPS, [group.id for group in vif.groups])
    port_groups.set_groups(connection, port.id, list(groups))
    for position, (subnet, address) in enumerate(addresses):
        port_addresses.take(connection, subnets[subnet], address, port.id, position)
    return None


def _obstacle(
    connection: sa.Connection, vif: Vif, subnets: Mapping[str, Subnet], addresses: Sequence[tuple[str, IpAddress]]
) -> tuple[str, str] | None:
    """Return why a port cannot be made, and which port has what it needs; None where it can."""
    gone = [subnet.id for subnet in vif.subnets if subnet.id not in subnets]
    if gone:
        return f"its subnet {gone[0]} is not there", ""
    for subnet, address in addresses:
        holder = port_addresses.holder(connection, subnet, address)
        if holder is not None:
            return f"another port has {address}", _named(network_rows.get(connection, PORTS, holder))
    same = network_rows.where(connection, PORTS, network_id=vif.network_id, mac_address=vif.mac_address)
    if same:
        return f"another port has its MAC address {vif.mac_address}", _named(same[0])
    return None


def _named(port: Port | None) -> str:
    """Return what operators look for."""
    if port is None:
        return ""
    return f"port {port.id} of server {port.server}" if port.server else f"port {port.id}"
