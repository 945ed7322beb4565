"""What servers may have of networks: what a create names is looked up before there is a server."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from skep.database.api import network_rows, port_addresses
from skep.database.api.network_rows import NETWORKS, SECURITY_GROUPS, SUBNETS
from skep.domain.errors import BadRequest, Conflict, Forbidden, QuotaExceeded
from skep.domain.invalid_input import invalid_field
from skep.domain.networking import AUTO_ADDRESSES, Network, Port
from skep.domain.subnet_addresses import BadSubnet, IpAddress, address_of, is_usable
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork
from skep.neighbours.networks.base import AskedNetworks, ChosenNetworks, check_kind
from skep.standalone.networks import default_groups, groups_of_servers, quotas, subnets, topologies
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.refusals import InTheWay, Missing
from skep.standalone.networks.resources import find
from skep.standalone.networks.settings import UNLIMITED
from skep.standalone.networks.taking import own_port

AMBIGUOUS = "More than one possible network found. Specify network ID(s) to select which one(s) to connect to."
"""Nova's text, as those of the other refusals that name no field."""


def chosen(work: NetworkWork, asked: AskedNetworks) -> ChosenNetworks:
    """Return what the servers of a create are to have. Raises as `NetworksOfUsers.choose`."""
    known: dict[str, str] = {}
    for index, name in enumerate(asked.security_groups):
        if name not in known:
            known[name] = _group(work, index, name)
    groups = tuple(known[name] for name in asked.security_groups)
    named = asked.named if asked.networks == NETWORKS_NAMED else _only_network(work, asked)
    networks = NETWORKS_NAMED if named else "none" if asked.networks != "auto" else "auto"
    if networks == "auto":
        _check_topology(work)
    new = 1 if networks == "auto" else sum(one.port_id is None for one in named)
    # First: what is looked up for each interface is bounded by it.
    count = _count(work, asked, new)
    _check_named(work, asked, named)
    return ChosenNetworks(
        networks=networks,  # type: ignore[arg-type]
        named=named,
        security_groups=() if groups == (default_groups.NAME,) else groups,
        count=count,
    )


def _group(work: NetworkWork, index: int, name: str) -> str:
    """Return the id of a security group that a create names; the default group may not be there yet.

    Raises BadRequest, or Conflict where several have the name.
    """
    if name == default_groups.NAME:
        return name
    found = network_rows.get(work.connection, SECURITY_GROUPS, name, work.caller.project_id)
    found = found or groups_of_servers.only_named(work, name)
    if found is None:
        expected = "the name or the id of a security group of the project"
        raise invalid_field(f"server.security_groups[{index}].name", name, expected)
    return found.id


def _only_network(work: NetworkWork, asked: AskedNetworks) -> tuple[RequestedNetwork, ...]:
    """Return the one network that the project can use, which has a subnet, where there is one.

    Raises Conflict where there are several.
    """
    if asked.networks == "none":
        return ()
    found = usable_networks(work)
    if len(found) > 1:
        raise Conflict(AMBIGUOUS)
    return tuple(RequestedNetwork(network_id=one.id) for one in found)


def usable_networks(work: NetworkWork) -> list[Network]:
    """Return the networks that a server of the project gets without naming one: they have a subnet."""
    mine = network_rows.where(work.connection, NETWORKS, project_id=work.caller.project_id, shared=False)
    usable = [one for one in (*mine, *network_rows.where(work.connection, NETWORKS, shared=True)) if one.admin_state_up]
    of_them = network_rows.where(work.connection, SUBNETS, network_id=[one.id for one in usable])
    return [one for one in usable if any(subnet.network_id == one.id for subnet in of_them)]


def _check_topology(work: NetworkWork) -> None:
    """Refuse a project that has no network and can get none. Raises BadRequest."""
    try:
        topologies.check(work, work.caller.project_id)
    except InTheWay as error:
        text = f"Unable to automatically allocate a network for project {work.caller.project_id}: {error}"
        raise BadRequest(text) from error


def _check_named(work: NetworkWork, asked: AskedNetworks, named: Sequence[RequestedNetwork]) -> None:
    """Refuse interfaces that cannot be. Raises BadRequest, Conflict, Forbidden."""
    seen: set[str] = set()
    addresses: set[tuple[str, IpAddress]] = set()
    networks: dict[str, Network] = {}
    for index, one in enumerate(named):
        where = f"server.networks[{index}]"
        if one.port_id is not None:
            if asked.max_count > 1:
                raise invalid_field(f"{where}.port", one.port_id, "no port where several servers are created")
            if one.port_id in seen:
                raise invalid_field(f"{where}.port", one.port_id, "each port once")
            seen.add(one.port_id)
            _check_own_port(work, f"{where}.port", one.port_id)
            continue
        if one.network_id is None:
            raise invalid_field(where, {}, "a 'uuid' or a 'port'")
        if one.network_id not in networks:
            networks[one.network_id] = _network(work, f"{where}.uuid", one.network_id)
        network = networks[one.network_id]
        if one.fixed_ip is not None:
            if asked.max_count > 1:
                raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "none where several servers are created")
            address, held = address_on(work, f"{where}.fixed_ip", network, one.fixed_ip)
            if held:
                raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "an address that no port has")
            if (network.id, address) in addresses:
                raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "each address once")
            addresses.add((network.id, address))


def _check_own_port(work: NetworkWork, where: str, port_id: str) -> None:
    try:
        port = own_port(work, work.caller.project_id, port_id)
    except Missing as error:
        raise invalid_field(where, port_id, "the id of a port of the project") from error
    check_port(work, where, port)


def check_port(work: NetworkWork, where: str, port: Port) -> None:
    """Refuse a port that is in use, has no address, or needs a device of its host. `where` names it in the body.

    Raises Conflict, BadRequest.
    """
    if port.device_id:
        raise Conflict(f"Port {port.id} is still in use.")
    check_kind(where, port.id, port.binding_vnic_type)
    if not port_addresses.of_ports(work.connection, [port.id])[port.id]:
        raise invalid_field(where, port.id, "a port with a fixed IP address")


def _network(work: NetworkWork, where: str, network_id: str) -> Network:
    try:
        network = find(work, "Network", NETWORKS, network_id)
    except Missing as error:
        raise invalid_field(where, network_id, "the id of a network that the project can use") from error
    check_network(work, where, network)
    return network


def check_network(work: NetworkWork, where: str, network: Network) -> None:
    """Refuse a network on which servers of the caller can have no address. `where` names it in the body.

    Raises Forbidden, BadRequest.
    """
    if network.external and not network.shared and not work.caller.is_admin:
        raise Forbidden(f"It is not allowed to create an interface on external network {network.id}")
    if not subnets.of_network(work.connection, network.id):
        raise invalid_field(where, network.id, "a network with a subnet")


def address_on(work: NetworkWork, where: str, network: Network, text: str) -> tuple[IpAddress, bool]:
    """Return an address that the caller may choose on a network, and whether a port has it.

    Raises Forbidden, BadRequest.
    """
    if network.shared and not work.caller.owns(network.project_id):
        raise Forbidden(f"It is not allowed to choose an address of shared network {network.id}")
    of_network = subnets.of_network(work.connection, network.id)
    try:
        address = address_of(text)
    except BadSubnet as error:
        raise invalid_field(where, text, "an IP address") from error
    usable = [subnet for subnet in of_network if is_usable(ip_network(subnet.cidr), address)]
    if not usable:
        raise invalid_field(where, text, f"an address of a subnet of network {network.id}")
    if usable[0].ipv6_address_mode in AUTO_ADDRESSES:
        raise invalid_field(where, text, f"no address of subnet {usable[0].id}, where ports make theirs themselves")
    return address, port_addresses.holder(work.connection, usable[0].id, address) is not None


def _count(work: NetworkWork, asked: AskedNetworks, new: int) -> int:
    """Return for how many servers there is quota of ports. Raises QuotaExceeded below the minimum."""
    limit = quotas.limits(work, work.caller.project_id)["port"]
    if new == 0 or limit == UNLIMITED:
        return asked.max_count
    room = (limit - quotas.used(work, "port", work.caller.project_id)) // new
    if room < asked.min_count:
        raise QuotaExceeded("Maximum number of ports exceeded")
    return min(asked.max_count, room)
