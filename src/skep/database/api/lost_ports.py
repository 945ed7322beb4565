"""Ports that the API database has forgotten because it went back in time, made again as the rows of their servers say.

The guest of such a server uses the addresses of its port, so they must not be given to another.
"""

from __future__ import annotations

from ipaddress import ip_address

import sqlalchemy as sa

from skep.database.api import network_rows, port_addresses, port_groups
from skep.database.api.network_rows import NETWORKS, PORTS, SECURITY_GROUPS, SUBNETS
from skep.domain.instances import Instance
from skep.domain.networking import Port
from skep.domain.vifs import Vif


def remake(connection: sa.Connection, server: Instance, now: int) -> int:
    """Make the ports of a server that are not there, as its row says them; return how many.

    One whose network or subnet is not there, or whose addresses another port has by now, is left.
    """
    there = network_rows.by_id(connection, PORTS, [vif.id for vif in server.vifs])
    lost = [(place, vif) for place, vif in enumerate(server.vifs) if vif.id not in there]
    return sum(_made(connection, server, vif, place, now) for place, vif in lost)


def _made(connection: sa.Connection, server: Instance, vif: Vif, place: int, now: int) -> bool:
    subnets = network_rows.by_id(connection, SUBNETS, [subnet.id for subnet in vif.subnets])
    addresses = [(subnet.id, ip_address(one.address)) for subnet in vif.subnets for one in subnet.addresses]
    if network_rows.get(connection, NETWORKS, vif.network_id) is None or len(subnets) < len(vif.subnets):
        return False
    if any(port_addresses.holder(connection, subnet, address) is not None for subnet, address in addresses):
        return False
    if network_rows.count(connection, PORTS, network_id=vif.network_id, mac_address=vif.mac_address):
        return False
    port = Port(
        id=vif.id,
        project_id=server.project_id,
        created_at=now,
        updated_at=now,
        network_id=vif.network_id,
        mac_address=vif.mac_address,
        device_id=server.uuid,
        device_owner=f"compute:{server.availability_zone}",
        binding_host_id=server.host or "",
        binding_vnic_type=vif.vnic_type,
        port_security_enabled=bool(vif.groups),
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
    return True
