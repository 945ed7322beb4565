"""Ports of many servers at once, in a few statements however many they are.

Only what is plain is done here: new ports on networks with ordinary subnets, with room for all. For anything else, and
for every refusal, the server goes the usual way by itself.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skep.database import Connection
from skep.database.api import instance_mappings, network_rows, port_addresses, port_groups, server_ports
from skep.database.api.network_rows import NETWORKS, PORTS
from skep.domain.errors import SkepError
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.networking import AUTO_ADDRESSES, Network, Port, SecurityGroup, Subnet
from skep.domain.subnet_addresses import IpAddress
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork, Vif, VifAddress, VifGroup, vif_subnet
from skep.neighbours.networks.base import WantedPorts
from skep.standalone.networks import default_groups, quotas, subnets
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.ports import MAC_PREFIX
from skep.standalone.networks.resources import find
from skep.standalone.networks.settings import NetworksSettings

Made = dict[InstanceUuid, tuple[Vif, ...]]


class _Place(NamedTuple):
    """A network on which each server of a group gets a port, with the subnets of its addresses."""

    network: Network
    subnets: tuple[Subnet, ...]


class _Group(NamedTuple):
    """Servers that want the same."""

    members: Sequence[WantedPorts]
    places: Sequence[_Place]
    groups: Sequence[SecurityGroup]


def make(connection: Connection, settings: NetworksSettings, now: int, wanted: Sequence[WantedPorts]) -> Made:
    """Make the ports of those of these servers for which that is plain; the others have no entry."""
    made: Made = {}
    for members in _alike(_new(connection, [one for one in wanted if _is_plain(one)])):
        caller = NetworkCaller(project_id=members[0].project_id, is_admin=members[0].is_admin)
        work = NetworkWork(connection=connection, caller=caller, settings=settings, now=now)
        try:
            group = _looked_up(work, members)
        except SkepError:
            # Each of them is told so by itself.
            continue
        if group is not None:
            made |= _made(work, group)
    return made


def _is_plain(one: WantedPorts) -> bool:
    return (
        one.networks == NETWORKS_NAMED
        and one.named != ()
        and all(net.port_id is None and net.fixed_ip is None for net in one.named)
    )


def _new(connection: Connection, wanted: Sequence[WantedPorts]) -> list[WantedPorts]:
    """Return those whose attempt counts and that have no port yet."""
    uuids = [one.instance for one in wanted]
    mappings = instance_mappings.get_many(connection, uuids)
    has_some = {port.server for port in server_ports.ports_of(connection, uuids)}
    return [
        one
        for one in wanted
        if one.instance not in has_some
        and (mapping := mappings.get(one.instance)) is not None
        and mapping.attempt == one.attempt
        and mapping.delete_intent_at is None
        and mapping.deleted_at is None
    ]


def _alike(wanted: Sequence[WantedPorts]) -> Iterator[list[WantedPorts]]:
    """Return servers by what they want. One that stands alone goes the usual way as well as this one."""
    by_wish: dict[object, list[WantedPorts]] = {}
    for one in wanted:
        networks = tuple(net.network_id for net in one.named)
        by_wish.setdefault((one.project_id, one.is_admin, networks, one.security_groups), []).append(one)
    yield from by_wish.values()


def _looked_up(work: NetworkWork, members: Sequence[WantedPorts]) -> _Group | None:
    """Return what they want where it is plain. Raises SkepError for what is refused."""
    first = members[0]
    places: list[_Place] = []
    for net in first.named:
        place = _place(work, net)
        if place is None:
            return None
        places.append(place)
    quotas.check(work, "port", first.project_id, len(places) * len(members))
    if not first.security_groups:
        return _Group(members, places, [default_groups.ensure(work, first.project_id)])
    groups = [
        default_groups.ensure(work, first.project_id)
        if one == default_groups.NAME
        else default_groups.usable(work, one, first.project_id)
        for one in first.security_groups
    ]
    return _Group(members, places, groups)


def _place(work: NetworkWork, net: RequestedNetwork) -> _Place | None:
    network = find(work, "Network", NETWORKS, net.network_id or "")
    of_network = subnets.of_network(work.connection, network.id)
    automatic = any(one.ipv6_address_mode in AUTO_ADDRESSES for one in of_network)
    if network.external or not network.port_security_enabled or automatic or not of_network:
        return None
    firsts = (next((one for one in of_network if one.ip_version == version), None) for version in (4, 6))
    return _Place(network, tuple(one for one in firsts if one is not None))


def _made(work: NetworkWork, group: _Group) -> Made:
    """Make all ports of a group; nothing where an address is not found soon."""
    count = len(group.members)
    needed = Counter(subnet.id for place in group.places for subnet in place.subnets)
    known = {subnet.id: subnet for place in group.places for subnet in place.subnets}
    free: dict[str, list[IpAddress]] = {}
    for subnet_id, times in needed.items():
        found = port_addresses.next_free(work.connection, known[subnet_id], times * count)
        if found is None:
            return {}
        free[subnet_id] = found[::-1]
    macs = _macs(work, count * len(group.places))
    if macs is None:
        return {}
    made: Made = {}
    new: list[Port] = []
    taken: list[tuple[Subnet, IpAddress, str, int]] = []
    for member in group.members:
        vifs = []
        for position, place in enumerate(group.places):
            port = _port(work, member, place.network, position, macs.pop())
            addresses = [(subnet, free[subnet.id].pop()) for subnet in place.subnets]
            taken += [(subnet, address, port.id, at) for at, (subnet, address) in enumerate(addresses)]
            new.append(port)
            vifs.append(_vif(port, place.network, addresses, group.groups))
        made[member.instance] = tuple(vifs)
    network_rows.insert_many(work.connection, PORTS, new)
    groups = list(dict.fromkeys(one.id for one in group.groups))
    port_groups.add_groups(work.connection, [port.id for port in new], groups)
    port_addresses.take_many(work.connection, taken)
    return made


def _macs(work: NetworkWork, count: int) -> list[str] | None:
    """Return hardware addresses that no port has; None where one of those that were drawn is taken."""
    drawn = list({(MAC_PREFIX + secrets.token_bytes(3)).hex(":") for _ in range(count)})
    if len(drawn) < count or network_rows.count(work.connection, PORTS, mac_address=drawn):
        return None
    return drawn


def _port(work: NetworkWork, member: WantedPorts, network: Network, position: int, mac_address: str) -> Port:
    return Port(
        id=new_uuid(),
        project_id=member.project_id,
        created_at=work.now,
        updated_at=work.now,
        network_id=network.id,
        mac_address=mac_address,
        device_id=member.instance,
        device_owner=f"compute:{member.zone}",
        binding_host_id=member.host,
        server=member.instance,
        server_position=position,
        made_for_server=True,
        device_tag=member.named[position].tag,
    )


def _vif(
    port: Port, network: Network, addresses: Sequence[tuple[Subnet, IpAddress]], groups: Sequence[SecurityGroup]
) -> Vif:
    """Return an interface as `server_ports.vifs_of` would: of a new port nothing has to be read."""
    of_subnets = tuple(vif_subnet(subnet, (VifAddress(str(address)),)) for subnet, address in addresses)
    ordered = sorted(groups, key=lambda one: one.id)
    of_groups = tuple(VifGroup(one.id, one.name) for one in dict.fromkeys(ordered))
    return server_ports.vif(port, network, of_subnets, of_groups)
