"""What a host has to bring of networks, read in a number of statements that does not depend on how much it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import sqlalchemy as sa

from skep.database.api import instance_mappings, network_changes, network_rows, port_addresses, port_groups
from skep.database.api.host_network_tables import host_tunnels
from skep.database.api.network_rows import (
    FLOATING_IPS,
    NETWORKS,
    PORTS,
    ROUTERS,
    SECURITY_GROUP_RULES,
    SECURITY_GROUPS,
    SUBNETS,
    portions,
)
from skep.database.api.network_tables import BOUND_TWICE, port_security_groups, ports
from skep.database.api.network_tables import port_addresses as addresses_of_ports
from skep.database.upsert import written
from skep.domain.host_networks import (
    FloatingAddress,
    Group,
    GroupRule,
    HostLook,
    HostNetworks,
    HostRouter,
    PluggedPort,
    RouterLeg,
    Segment,
    SegmentSubnet,
    subject_of_host,
    versioned,
)
from skep.domain.networking import ROUTER_INTERFACE, FixedIp, Port, SecurityGroupRule, Subnet, VirtualRouter

_OF_ROUTERS = ports.c.device_owner == sa.literal_column(f"'{ROUTER_INTERFACE}'")
"""In the words of the index, which a database does not compare with a value that it is told beside the statement."""
_OF_SERVERS = sa.func.coalesce(ports.c.server, "") != ""
"""In words for which no database uses the index of servers, which has most ports of a cloud."""


def look(connection: sa.Connection, host: str, heard_since: int) -> HostLook | list[str]:
    """Return what a host has to bring; or the ids of networks of it that have no number yet (`network_changes.number`).

    The tunnels of other hosts count that said where they are since `heard_since`.
    """
    twice = _bound_twice(connection)
    plugged = _plugged(connection, host, twice)
    legs = _legs(connection, sorted({port.network_id for port in plugged}))
    network_ids = sorted({port.network_id for port in (*plugged, *legs)})
    numbers = network_changes.numbers(connection, network_ids)
    if len(numbers) < len(network_ids):
        return [one for one in network_ids if one not in numbers]
    addresses = port_addresses.of_ports(connection, [port.id for port in (*plugged, *legs)])
    groups_of = port_groups.of_ports(connection, [port.id for port in plugged])
    groups = _groups(connection, {group for found in groups_of.values() for group in found})
    peers = _peers(connection, host, network_ids, twice, heard_since)
    routers = _routers(connection, host, plugged, legs, addresses)
    projects = _projects(connection, sorted({port.server for port in plugged if port.server}))
    segments = _segments(connection, plugged, numbers, addresses, groups_of, peers, projects)
    subjects = {*network_ids, *(one.id for one in routers), *(one.id for one in groups), subject_of_host(host)}
    return HostLook(
        networks=versioned(HostNetworks(segments=segments, groups=groups, routers=routers)),
        subjects=tuple(sorted(subjects)),
        change=network_changes.last(connection),
    )


def note_tunnel(connection: sa.Connection, host: str, address: str | None, now: int, heard_since: int) -> None:
    """Remember where a host says that its tunnel is.

    The networks of its ports have changed where it says another than before, or was silent since `heard_since`.
    """
    known = connection.execute(host_tunnels.select().where(host_tunnels.c.host == host)).first()
    values = {"host": host, "address": address, "said_at": now}
    connection.execute(written(connection, host_tunnels, "host", "address", "said_at"), values)
    before = None if known is None or known.said_at < heard_since else known.address
    if address != before:
        found = _plugged(connection, host, _bound_twice(connection))
        network_changes.note(connection, {port.network_id for port in found}, now)


def tunnel_is_known(connection: sa.Connection, host: str, address: str | None, since: int) -> bool:
    """Tell whether a host has said since then that its tunnel is there."""
    tunnel = host_tunnels.c
    same = (tunnel.host == host, tunnel.said_at >= since, tunnel.address.is_not_distinct_from(address))
    return connection.execute(host_tunnels.select().where(*same)).first() is not None


def purge_tunnels(connection: sa.Connection, before: int, limit: int) -> int:
    """Forget the tunnels of hosts that have been silent since `before`, and return how many: they are no peers."""
    tunnel = host_tunnels.c
    silent = sa.select(tunnel.host).where(tunnel.said_at < before).limit(limit)
    return connection.execute(host_tunnels.delete().where(tunnel.host.in_(silent))).rowcount


def _bound_twice(connection: sa.Connection) -> list[Port]:
    """Return the ports of servers that are bound to several hosts: those of live migrations under way."""
    few = sa.text(str(BOUND_TWICE[f"{connection.dialect.name}_where"]))
    return [one for one in network_rows.of_query(connection, PORTS, ports.select().where(few)) if one.server]


def _plugged(connection: sa.Connection, host: str, twice: Sequence[Port]) -> list[Port]:
    """Return the ports of servers that are bound to a host, the ones that it is to have soon among them."""
    query = ports.select().where(ports.c.binding_host_id == host, _OF_SERVERS)
    found = {port.id: port for port in network_rows.of_query(connection, PORTS, query)}
    found |= {port.id: port for port in twice if any(one.host == host for one in port.other_bindings)}
    return [found[one] for one in sorted(found)]


def _legs(connection: sa.Connection, network_ids: list[str]) -> list[Port]:
    """Return all the ports of the routers that have one in a network of these."""
    ids: set[str] = set()
    for some in portions(network_ids):
        query = sa.select(ports.c.device_id).where(_OF_ROUTERS, ports.c.network_id.in_(some))
        ids.update(connection.scalars(query))
    found: list[Port] = []
    for some in portions(sorted(ids)):
        query = ports.select().where(_OF_ROUTERS, ports.c.device_id.in_(some)).order_by(ports.c.id)
        found += network_rows.of_query(connection, PORTS, query)
    return found


def _segments(
    connection: sa.Connection,
    plugged: Sequence[Port],
    numbers: Mapping[str, int],
    addresses: Mapping[str, Sequence[FixedIp]],
    groups_of: Mapping[str, Sequence[str]],
    peers: Mapping[str, Collection[str]],
    projects: Mapping[str, str],
) -> tuple[Segment, ...]:
    ids = sorted(numbers)
    networks = network_rows.by_id(connection, NETWORKS, ids)
    subnets: dict[str, list[SegmentSubnet]] = defaultdict(list)
    for some in portions(ids):
        for subnet in network_rows.where(connection, SUBNETS, network_id=some):
            subnets[subnet.network_id].append(_subnet(subnet))
    of_network: dict[str, list[PluggedPort]] = defaultdict(list)
    for port in plugged:
        fixed = tuple(one.ip_address for one in addresses[port.id])
        project = projects.get(port.server or "", "")
        of_network[port.network_id].append(_port(port, project, fixed, tuple(groups_of[port.id])))
    return tuple(
        Segment(
            network=one,
            number=numbers[one],
            mtu=networks[one].mtu,
            admin_state_up=networks[one].admin_state_up,
            subnets=tuple(subnets[one]),
            ports=tuple(of_network[one]),
            peers=tuple(sorted(peers.get(one, ()))),
        )
        for one in ids
    )


def _projects(connection: sa.Connection, servers: list[str]) -> dict[str, str]:
    """Return the projects of servers: a port may be of another one."""
    found: dict[str, str] = {}
    for some in portions(servers):
        found |= {one: mapping.project_id for one, mapping in instance_mappings.get_many(connection, some).items()}
    return found


def _subnet(subnet: Subnet) -> SegmentSubnet:
    return SegmentSubnet(
        id=subnet.id,
        cidr=subnet.cidr,
        ip_version=subnet.ip_version,
        gateway_ip=subnet.gateway_ip,
        enable_dhcp=subnet.enable_dhcp,
        ipv6_ra_mode=subnet.ipv6_ra_mode,
        ipv6_address_mode=subnet.ipv6_address_mode,
        dns_nameservers=subnet.dns_nameservers,
        host_routes=subnet.host_routes,
    )


def _port(port: Port, project: str, fixed: tuple[str, ...], groups: tuple[str, ...]) -> PluggedPort:
    return PluggedPort(
        id=port.id,
        server=port.server or "",
        project=project,
        mac_address=port.mac_address,
        addresses=fixed,
        host_name=_host_name(fixed),
        admin_state_up=port.admin_state_up,
        port_security_enabled=port.port_security_enabled,
        allowed_address_pairs=port.allowed_address_pairs,
        groups=groups,
    )


def _host_name(fixed: Sequence[str]) -> str:
    """Return how a guest is called by which only its addresses are known: as Neutron calls it."""
    return f"host-{fixed[0].replace('.', '-').replace(':', '-')}" if fixed else ""


def _groups(connection: sa.Connection, own: Collection[str]) -> tuple[Group, ...]:
    """Return groups with their rules, and those that the rules name with their members."""
    rules: dict[str, list[SecurityGroupRule]] = defaultdict(list)
    for some in portions(sorted(own)):
        for rule in network_rows.where(connection, SECURITY_GROUP_RULES, security_group_id=some):
            rules[rule.security_group_id].append(rule)
    named = {one.remote_group_id for found in rules.values() for one in found if one.remote_group_id is not None}
    found = network_rows.by_id(connection, SECURITY_GROUPS, sorted({*own, *named}))
    members = _members(connection, sorted(named))
    return tuple(
        Group(id=one, stateful=found[one].stateful, rules=_rules(rules[one]), members=members.get(one, ()))
        for one in sorted(found)
    )


def _rules(found: Iterable[SecurityGroupRule]) -> tuple[GroupRule, ...]:
    return tuple(
        GroupRule(
            direction=rule.direction,
            ethertype=rule.ethertype,
            protocol=rule.protocol,
            port_range_min=rule.port_range_min,
            port_range_max=rule.port_range_max,
            remote_ip_prefix=rule.remote_ip_prefix,
            remote_group=rule.remote_group_id,
        )
        for rule in sorted(found, key=lambda rule: rule.id)
    )


def _members(connection: sa.Connection, groups: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of all ports that have a group."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    group, address = port_security_groups.c.security_group_id, addresses_of_ports.c.ip_address
    of_ports = addresses_of_ports.c.port_id == port_security_groups.c.port_id
    for some in portions(groups):
        query = sa.select(group, address).join_from(port_security_groups, addresses_of_ports, of_ports)
        # Subnets of several networks may have the same addresses.
        for group_id, member in connection.execute(query.where(group.in_(some)).order_by(addresses_of_ports.c.address)):
            found[group_id][member] = None
    return {one: tuple(addresses) for one, addresses in found.items()}


def _peers(
    connection: sa.Connection, host: str, network_ids: list[str], twice: Sequence[Port], heard_since: int
) -> dict[str, set[str]]:
    """Return where the tunnels are of other hosts with ports of servers, by network."""
    hosts: dict[str, set[str]] = {one: set() for one in network_ids}
    elsewhere = sa.and_(_OF_SERVERS, ports.c.binding_host_id.not_in(("", host)))
    for some in portions(network_ids):
        query = sa.select(ports.c.network_id, ports.c.binding_host_id).where(ports.c.network_id.in_(some), elsewhere)
        for row in connection.execute(query.distinct()):
            hosts[row.network_id].add(row.binding_host_id)
    for port in twice:
        if port.network_id in hosts:
            hosts[port.network_id].update(one.host for one in port.other_bindings if one.host != host)
    tunnels: dict[str, str] = {}
    tunnel = host_tunnels.c
    for some in portions(sorted({one for found in hosts.values() for one in found})):
        heard = (tunnel.host.in_(some), tunnel.said_at >= heard_since, tunnel.address.is_not(None))
        tunnels |= {one.host: one.address for one in connection.execute(host_tunnels.select().where(*heard))}
    return {network: {tunnels[one] for one in found if one in tunnels} for network, found in hosts.items()}


def _routers(
    connection: sa.Connection,
    host: str,
    plugged: Sequence[Port],
    legs: Sequence[Port],
    addresses: Mapping[str, Sequence[FixedIp]],
) -> tuple[HostRouter, ...]:
    of_router: dict[str, list[RouterLeg]] = defaultdict(list)
    for leg in legs:
        of_router[leg.device_id] += [
            RouterLeg(network=leg.network_id, subnet=one.subnet_id, address=one.ip_address, mac_address=leg.mac_address)
            for one in addresses[leg.id]
        ]
    # The host that is to have a port soon does not answer for its floating address yet.
    floating = _floating(connection, [port.id for port in plugged if port.binding_host_id == host])
    found: dict[str, VirtualRouter] = network_rows.by_id(connection, ROUTERS, sorted(of_router))
    return tuple(
        HostRouter(
            id=one,
            admin_state_up=router.admin_state_up,
            legs=tuple(of_router[one]),
            outside=router.gateway_port_id is not None,
            enable_snat=router.enable_snat,
            floating=tuple(floating.get(one, ())),
            routes=router.routes,
        )
        for one, router in sorted(found.items())
    )


def _floating(connection: sa.Connection, port_ids: list[str]) -> dict[str, list[FloatingAddress]]:
    """Return the floating addresses that lead to ports, by router."""
    by_router: dict[str, list[FloatingAddress]] = defaultdict(list)
    for some in portions(port_ids):
        for one in network_rows.where(connection, FLOATING_IPS, port_id=some):
            leads = FloatingAddress(
                address=one.floating_ip_address, fixed_address=one.fixed_ip_address or "", port=one.port_id or ""
            )
            by_router[one.router_id or ""].append(leads)
    return by_router
