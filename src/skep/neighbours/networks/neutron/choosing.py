"""What users name of networks, looked up with their own tokens before anything is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_network

import msgspec

from skep.domain.errors import BadRequest, Conflict, Forbidden, QuotaExceeded
from skep.domain.invalid_input import invalid_field
from skep.domain.subnet_addresses import BadSubnet, IpAddress, address_of, block_of, is_usable
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.answers import nonsense
from skep.neighbours.networks.base import AskedNetworks, ChosenNetworks, check_kind
from skep.neighbours.networks.neutron.building import check_room, room, topology
from skep.neighbours.networks.neutron.calls import NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.forms import (
    COUNTED_NETWORKS,
    COUNTED_SUBNETS,
    GROUPS,
    NETWORKS,
    PORTS,
    SUBNETS,
    NeutronGroup,
    NeutronNetwork,
    NeutronPort,
    NeutronSubnet,
)
from skep.neighbours.networks.neutron.ports import DEFAULT_GROUP
from skep.neighbours.networks.neutron.resource_requests import asked_of

AMBIGUOUS = "More than one possible network found. Specify network ID(s) to select which one(s) to connect to."
"""Nova's text, as those of the other refusals that name no field."""


class Chooser(msgspec.Struct, frozen=True, kw_only=True):
    """For whom something is looked up."""

    calls: NeutronCalls
    """With his own token."""
    of_skep: NeutronCalls
    """With Skep's own: what a port needs of its host is shown to admins only."""
    project_id: str
    is_admin: bool

    async def group_named(self, name: str) -> NeutronGroup | None:
        """Return the group that an id means, or else the only one of the project with this name.

        Raises Conflict where several have it.
        """
        found = await self.calls.shown(GROUPS, name)
        if found is not None:
            return found
        named = await self.calls.listed(GROUPS, ("project_id", self.project_id), ("name", name))
        if len(named) > 1:
            raise Conflict(f"Multiple security_groups found matching '{name}'. Use an ID to be more specific.")
        return named[0] if named else None

    async def usable_networks(self) -> list[NeutronNetwork]:
        """Return the networks that a server of the project gets without naming one: they have a subnet."""
        up = ("admin_state_up", "true")
        mine = await self.calls.listed(NETWORKS, ("project_id", self.project_id), ("shared", "false"), up)
        shared = await self.calls.listed(NETWORKS, ("shared", "true"), up)
        return [one for one in {one.id: one for one in (*mine, *shared)}.values() if one.subnets]


class FoundOfNamed(msgspec.Struct, frozen=True, kw_only=True):
    """What is there of what was named."""

    networks: Mapping[str, NeutronNetwork]
    subnets: Sequence[NeutronSubnet]
    """Of networks on which an address is chosen."""
    ports: Mapping[str, NeutronPort]


async def look_up(chooser: Chooser, named: Sequence[RequestedNetwork]) -> FoundOfNamed:
    """Look up networks and ports, all of a kind at once."""
    networks = [one.network_id for one in named if one.port_id is None and one.network_id is not None]
    with_address = [one.network_id for one in named if one.fixed_ip is not None and one.network_id is not None]
    ports = [one.port_id for one in named if one.port_id is not None]
    return FoundOfNamed(
        networks={one.id: one for one in await chooser.calls.listed(NETWORKS, values=networks)},
        subnets=await chooser.calls.listed(SUBNETS, name="network_id", values=with_address),
        ports={
            one.id: one
            for one in await chooser.of_skep.listed(PORTS, values=ports)
            if one.project_id == chooser.project_id
        },
    )


async def chosen(chooser: Chooser, asked: AskedNetworks) -> ChosenNetworks:
    """Return what the servers of a create are to have. Raises as `NetworksOfUsers.choose`, and NeutronRefused."""
    known: dict[str, str] = {}
    for index, name in enumerate(asked.security_groups):
        if name not in known:
            known[name] = await _group(chooser, index, name)
    groups = tuple(known[name] for name in asked.security_groups)
    named = asked.named if asked.networks == NETWORKS_NAMED else await _only_network(chooser, asked)
    networks = NETWORKS_NAMED if named else "none" if asked.networks != "auto" else "auto"
    if networks == "auto":
        await _check_topology(chooser)
    new = 1 if networks == "auto" else sum(one.port_id is None for one in named)
    # First: what is looked up for each interface is bounded by it.
    count = await _count(chooser, asked, new)
    there = await _check_named(chooser, asked, named)
    brought = [there.ports[one.port_id] if one.port_id is not None else None for one in named]
    asking = (place for place, port in enumerate(brought) if port is not None and port.resource_request)
    return ChosenNetworks(
        networks=networks,  # type: ignore[arg-type]
        named=named,
        security_groups=() if groups == (DEFAULT_GROUP,) else groups,
        count=count,
        ports=asked_of(port for port in brought if port is not None),
        asking=next(asking, None),
    )


async def _group(chooser: Chooser, index: int, name: str) -> str:
    """Return the id of a security group that a create names; the default group may not be there yet."""
    if name == DEFAULT_GROUP:
        return name
    found = await chooser.group_named(name)
    if found is None or (chooser.is_admin and found.project_id != chooser.project_id):
        expected = "the name or the id of a security group of the project"
        raise invalid_field(f"server.security_groups[{index}].name", name, expected)
    return found.id


async def _only_network(chooser: Chooser, asked: AskedNetworks) -> tuple[RequestedNetwork, ...]:
    """Return the one network that the project can use, where there is one. Raises Conflict where there are several."""
    if asked.networks == "none":
        return ()
    found = await chooser.usable_networks()
    if len(found) > 1:
        raise Conflict(AMBIGUOUS)
    return tuple(RequestedNetwork(network_id=one.id) for one in found)


async def _check_topology(chooser: Chooser) -> None:
    """Refuse a project that has no network and can get none. Raises BadRequest."""
    try:
        await topology(chooser.calls, chooser.project_id, dry_run=True)
        # The dry run asks only whether there is what a topology is made of.
        await check_room(chooser.calls, chooser.project_id, COUNTED_NETWORKS, COUNTED_SUBNETS)
    except NeutronRefused as error:
        text = f"Unable to automatically allocate a network for project {chooser.project_id}: {error}"
        raise BadRequest(text) from error


async def _check_named(chooser: Chooser, asked: AskedNetworks, named: Sequence[RequestedNetwork]) -> FoundOfNamed:
    """Refuse interfaces that cannot be, and return what was found of them. Raises BadRequest, Conflict, Forbidden."""
    there = await look_up(chooser, named)
    seen: set[str | tuple[str, IpAddress]] = set()
    for index, one in enumerate(named):
        where = f"server.networks[{index}]"
        if one.port_id is not None:
            if asked.max_count > 1:
                raise invalid_field(f"{where}.port", one.port_id, "no port where several servers are created")
            if one.port_id in seen:
                raise invalid_field(f"{where}.port", one.port_id, "each port once")
            seen.add(one.port_id)
            if one.port_id not in there.ports:
                raise invalid_field(f"{where}.port", one.port_id, "the id of a port of the project")
            check_port(f"{where}.port", there.ports[one.port_id])
        elif one.network_id is None:
            raise invalid_field(where, {}, "a 'uuid' or a 'port'")
        elif one.network_id not in there.networks:
            raise invalid_field(f"{where}.uuid", one.network_id, "the id of a network that the project can use")
        else:
            network = there.networks[one.network_id]
            check_network(chooser, f"{where}.uuid", network)
            if one.fixed_ip is not None:
                address = await _check_address(chooser, asked, f"{where}.fixed_ip", there, network, one.fixed_ip)
                if (network.id, address) in seen:
                    raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "each address once")
                seen.add((network.id, address))
    return there


async def _check_address(
    chooser: Chooser, asked: AskedNetworks, where: str, there: FoundOfNamed, network: NeutronNetwork, text: str
) -> IpAddress:
    if asked.max_count > 1:
        raise invalid_field(where, text, "none where several servers are created")
    address = address_on(chooser, where, network, there.subnets, text)
    if await is_held(chooser, network, address):
        raise invalid_field(where, text, "an address that no port has")
    return address


def check_port(where: str, port: NeutronPort) -> None:
    """Refuse a port that is in use, has no address, or needs what no host gives. `where` names it in the body.

    Raises Conflict, BadRequest.
    """
    if port.device_id:
        raise Conflict(f"Port {port.id} is still in use.")
    check_kind(where, port.id, port.vnic_type)
    if port.numa_affinity_policy:
        raise invalid_field(where, port.id, "a port without a numa_affinity_policy: none is part of this release")
    if not port.has_address:
        raise invalid_field(where, port.id, "a port with a fixed IP address")


def check_network(chooser: Chooser, where: str, network: NeutronNetwork) -> None:
    """Refuse a network on which servers of the caller can have no address. `where` names it in the body.

    Raises Forbidden, BadRequest.
    """
    if network.external and not network.shared and not chooser.is_admin:
        raise Forbidden(f"It is not allowed to create an interface on external network {network.id}")
    if not network.subnets:
        raise invalid_field(where, network.id, "a network with a subnet")


def address_on(
    chooser: Chooser, where: str, network: NeutronNetwork, subnets: Sequence[NeutronSubnet], text: str
) -> IpAddress:
    """Return an address that the caller may choose on a network. Raises Forbidden, BadRequest."""
    if network.shared and not chooser.is_admin and network.project_id != chooser.project_id:
        raise Forbidden(f"It is not allowed to choose an address of shared network {network.id}")
    try:
        address = address_of(text)
    except BadSubnet as error:
        raise invalid_field(where, text, "an IP address") from error
    if not any(one.network_id == network.id and _has(one, address) for one in subnets):
        raise invalid_field(where, text, f"an address of a subnet of network {network.id}")
    return address


async def is_held(chooser: Chooser, network: NeutronNetwork, address: IpAddress) -> bool:
    """Tell whether a port that the caller sees has an address; of others Neutron tells when a port is made."""
    asked = (("network_id", network.id), ("fixed_ips", f"ip_address={address}"))
    return bool(await chooser.calls.listed(PORTS, *asked))


def _has(subnet: NeutronSubnet, address: IpAddress) -> bool:
    try:
        return is_usable(ip_network(block_of(subnet.cidr)), address)
    except BadSubnet as error:
        raise nonsense(SERVICE, str(error)) from error


async def _count(chooser: Chooser, asked: AskedNetworks, new: int) -> int:
    """Return for how many servers there is quota of ports. Raises QuotaExceeded below the minimum."""
    left = await room(chooser.calls, chooser.project_id) if new else None
    if left is None:
        return asked.max_count
    if left // new < asked.min_count:
        raise QuotaExceeded("Maximum number of ports exceeded")
    return min(asked.max_count, left // new)
