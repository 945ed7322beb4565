"""Ports of servers in the embedded network service: what servers have of them, and what becomes of them.

A port that was made for a server goes with it; one that a user brought is given back. Whatever changes of a server's
interfaces is noted in the same transaction (`changed_interfaces`), until the server's row was told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api import network_changes, network_rows, port_addresses, port_groups
from skep.database.api.living import lives
from skep.database.api.network_rows import (
    FLOATING_IPS,
    NETWORKS,
    PORTS,
    SECURITY_GROUPS,
    SUBNETS,
    Condition,
    portions,
)
from skep.database.api.network_tables import changed_interfaces, floating_ips, port_holders, ports
from skep.database.api.tables import instance_mappings
from skep.database.upsert import insert
from skep.domain.host_networks import subject_of_host
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.networking import FixedIp, Network, Port, PortBinding, Subnet
from skep.domain.vifs import Vif, VifAddress, VifGroup, VifSubnet, vif_subnet

NO_SERVER: dict[str, Any] = {
    "server": None,
    "server_position": 0,
    "made_for_server": False,
    "device_tag": None,
    "other_bindings": (),
}
"""Of a port that is no interface of a server any more."""


class ChangedServer(msgspec.Struct, frozen=True):
    """A server whose row has to be told of its interfaces."""

    instance: InstanceUuid
    changed_at: int
    changes: int


def ports_of(connection: sa.Connection, instances: Sequence[str]) -> list[Port]:
    """Return the ports of servers, those of one server in their order."""
    found = [port for some in portions(list(instances)) for port in network_rows.where(connection, PORTS, server=some)]
    return sorted(found, key=lambda port: (port.server or "", port.server_position))


def vifs_of(connection: sa.Connection, instances: Sequence[str]) -> dict[InstanceUuid, tuple[Vif, ...]]:
    """Return the interfaces of servers; every server has an entry."""
    found: dict[InstanceUuid, list[Vif]] = {InstanceUuid(one): [] for one in instances}
    of_servers = ports_of(connection, instances)
    if not of_servers:
        return dict.fromkeys(found, ())
    ids = [port.id for port in of_servers]
    networks = network_rows.by_id(connection, NETWORKS, sorted({port.network_id for port in of_servers}))
    addresses = port_addresses.of_ports(connection, ids)
    subnets = network_rows.by_id(connection, SUBNETS, sorted({a.subnet_id for one in addresses.values() for a in one}))
    groups = port_groups.of_ports(connection, ids)
    named = network_rows.by_id(connection, SECURITY_GROUPS, sorted({one for ids_ in groups.values() for one in ids_}))
    floating = _floating(connection, ids)
    for port in of_servers:
        of_subnets = _subnets(addresses[port.id], subnets, floating.get(port.id, {}))
        of_groups = tuple(VifGroup(group, named[group].name) for group in groups[port.id])
        found[InstanceUuid(port.server or "")].append(vif(port, networks[port.network_id], of_subnets, of_groups))
    return {instance: tuple(vifs) for instance, vifs in found.items()}


def vif(port: Port, network: Network, subnets: tuple[VifSubnet, ...], groups: tuple[VifGroup, ...]) -> Vif:
    """Return a port as its server has it."""
    return Vif(
        id=port.id,
        mac_address=port.mac_address,
        network_id=network.id,
        network_name=network.name,
        mtu=network.mtu,
        vnic_type=port.binding_vnic_type,
        made=port.made_for_server,
        tag=port.device_tag,
        subnets=subnets,
        groups=groups,
    )


def _floating(connection: sa.Connection, port_ids: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the floating addresses by port and fixed address."""
    found: dict[str, dict[str, list[str]]] = {}
    for some in portions(list(port_ids)):
        for one in network_rows.where(connection, FLOATING_IPS, port_id=some):
            by_fixed = found.setdefault(one.port_id or "", {})
            by_fixed.setdefault(one.fixed_ip_address or "", []).append(one.floating_ip_address)
    return found


def _subnets(
    fixed: Sequence[FixedIp], subnets: Mapping[str, Subnet], floating: Mapping[str, Sequence[str]]
) -> tuple[VifSubnet, ...]:
    """Return what a port has of each subnet, in the order of its addresses."""
    by_subnet: dict[str, list[VifAddress]] = {}
    for one in fixed:
        address = VifAddress(one.ip_address, tuple(floating.get(one.ip_address, ())))
        by_subnet.setdefault(one.subnet_id, []).append(address)
    return tuple(vif_subnet(subnets[subnet_id], tuple(addresses)) for subnet_id, addresses in by_subnet.items())


def bind(
    connection: sa.Connection, hosts: Mapping[InstanceUuid, str], beside: Mapping[InstanceUuid, str], now: int
) -> None:
    """Bind the ports of servers to hosts alone; to none where the host is empty.

    What they are bound to `beside` stays.
    """
    for port in ports_of(connection, list(hosts)):
        server = InstanceUuid(port.server or "")
        kept = tuple(one for one in port.other_bindings if one.host == beside.get(server) != hosts[server])
        if port.binding_host_id != hosts[server] or port.other_bindings != kept:
            bound = _changed(port, now, binding_host_id=hosts[server], other_bindings=kept)
            network_rows.update(connection, PORTS, bound)


def bind_beside(connection: sa.Connection, hosts: Mapping[InstanceUuid, str], now: int) -> None:
    """Bind the ports of servers to one more host, which does not get them yet."""
    for port in ports_of(connection, list(hosts)):
        host = hosts[InstanceUuid(port.server or "")]
        if host not in {port.binding_host_id, *(one.host for one in port.other_bindings)}:
            more = PortBinding(host=host, vnic_type=port.binding_vnic_type, profile=port.binding_profile)
            bound = _changed(port, now, other_bindings=(*port.other_bindings, more))
            network_rows.update(connection, PORTS, bound)
            network_changes.note(connection, [subject_of_host(host)], now)


def bound_to(
    connection: sa.Connection, instances: Sequence[InstanceUuid], several: Collection[InstanceUuid]
) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
    """Return to which hosts the ports of servers are bound; of `several` also to which ones that do not have them."""
    found: dict[InstanceUuid, dict[str, tuple[str, ...]]] = {one: {} for one in instances}
    for port in ports_of(connection, instances):
        server = InstanceUuid(port.server or "")
        others = (one.host for one in port.other_bindings if one.host != port.binding_host_id)
        found[server][port.id] = (port.binding_host_id, *(others if server in several else ()))
    return found


def release(connection: sa.Connection, instances: Sequence[str], now: int) -> None:
    """Delete the ports that were made for servers, and give those back that users brought."""
    of_servers = ports_of(connection, instances)
    if of_servers:
        remove(connection, [port for port in of_servers if port.made_for_server], now)
        for port in of_servers:
            if not port.made_for_server:
                network_rows.update(connection, PORTS, given_back(port, now))
    for some in portions(list(instances)):
        connection.execute(changed_interfaces.delete().where(changed_interfaces.c.instance.in_(some)))


def given_back(port: Port, now: int) -> Port:
    """Return a port of a user that no server has any more."""
    return _changed(port, now, **NO_SERVER, device_id="", device_owner="", binding_host_id="")


def remove(connection: sa.Connection, found: Sequence[Port], now: int) -> None:
    """Delete ports with their addresses; floating addresses lead nowhere then. Their servers have to be told."""
    ids = [port.id for port in found]
    for some in portions(ids):
        note(connection, now, those(some))
        connection.execute(
            floating_ips.update()
            .where(floating_ips.c.port_id.in_(some))
            .values(
                port_id=None,
                fixed_ip_address=None,
                router_id=None,
                updated_at=now,
                revision_number=floating_ips.c.revision_number + 1,
            )
        )
    port_addresses.give_back(connection, ids)
    network_rows.delete(connection, PORTS, ids)


def those(port_ids: Sequence[str]) -> Condition:
    """Return the condition that a port is one of these."""
    return ports.c.id.in_(port_ids)


def on_network(network_id: str) -> Condition:
    """Return the condition that a port is on a network."""
    return ports.c.network_id == network_id


def note(connection: sa.Connection, now: int, narrowed: Condition) -> None:
    """Note that the servers have to be told whose ports `narrowed` holds for."""
    of_servers = sa.select(ports.c.server).where(narrowed, ports.c.server.is_not(None)).distinct()
    _note(connection, now, connection.scalars(of_servers).all())


def _note(connection: sa.Connection, now: int, named: Sequence[str]) -> None:
    if named:
        statement = insert(connection, changed_interfaces).on_conflict_do_update(
            index_elements=["instance"],
            set_={"changed_at": now, "changes": changed_interfaces.c.changes + 1},
        )
        connection.execute(statement, [{"instance": one, "changed_at": now, "changes": 1} for one in named])


def changed(connection: sa.Connection, limit: int, without: Sequence[CellUuid] = ()) -> list[ChangedServer]:
    """Return servers that have to be told of their interfaces, the longest waiting first.

    Left out are those that have no cell yet, and those `without` whose cells it is.
    """
    row, mapping = changed_interfaces.c, instance_mappings.c
    waits = sa.and_(
        mapping.deleted_at.is_(None),
        sa.or_(mapping.cell.in_(without), sa.and_(mapping.instance.is_not(None), mapping.cell.is_(None))),
    )
    query = (
        sa.select(row.instance, row.changed_at, row.changes)
        .outerjoin_from(changed_interfaces, instance_mappings, mapping.instance == row.instance)
        .where(~sa.func.coalesce(waits, sa.false()))
        .order_by(row.changed_at, row.instance)
        .limit(limit)
    )
    return [ChangedServer(InstanceUuid(one.instance), one.changed_at, one.changes) for one in connection.execute(query)]


def note_servers(connection: sa.Connection, now: int, instances: Sequence[str]) -> None:
    """Note that servers have to be told, those of them that have ports, or may have some."""
    for some in portions(list(instances)):
        note(connection, now, ports.c.server.in_(some))
        held = sa.select(port_holders.c.instance).where(port_holders.c.instance.in_(some))
        _note(connection, now, connection.scalars(held).all())


def told(connection: sa.Connection, servers: Sequence[ChangedServer]) -> None:
    """Forget that servers have to be told, unless something changed since."""
    row = changed_interfaces.c
    for one in servers:
        same = (row.instance == one.instance, row.changed_at == one.changed_at, row.changes == one.changes)
        connection.execute(changed_interfaces.delete().where(*same))


def note_server(connection: sa.Connection, now: int, instance: str) -> None:
    """Note that a server has to be told, whether it has ports or not."""
    _note(connection, now, [instance])


def orphans(connection: sa.Connection) -> dict[InstanceUuid, list[str]]:
    """Return the ids of ports by their servers, where those do not live."""
    query = sa.select(ports.c.server, ports.c.id).where(ports.c.server.is_not(None), ~lives(ports.c.server))
    found: dict[InstanceUuid, list[str]] = {}
    for one in connection.execute(query.order_by(ports.c.server, ports.c.id)):
        found.setdefault(InstanceUuid(one.server), []).append(one.id)
    return found


def noted(connection: sa.Connection, instances: Sequence[str]) -> set[str]:
    """Return those of these servers that are to be told of their interfaces."""
    row = changed_interfaces.c.instance
    return {
        one for some in portions(list(instances)) for one in connection.scalars(sa.select(row).where(row.in_(some)))
    }


def _changed(port: Port, now: int, **values: object) -> Port:
    return msgspec.structs.replace(port, **values, updated_at=now, revision_number=port.revision_number + 1)
