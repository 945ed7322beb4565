"""Subnets: what may be done to one, as units of work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

from msgspec import UNSET

from skep.database import Connection
from skep.database.api import network_rows, port_addresses, server_ports
from skep.database.api.network_rows import NETWORKS, PORTS, SUBNETS
from skep.domain.networking import (
    AUTO_ADDRESSES,
    LEAST_MTU_IPV6,
    ROUTER_INTERFACE,
    AllocationPool,
    HostRoute,
    Network,
    NetworkResource,
    Subnet,
)
from skep.domain.subnet_addresses import (
    BadSubnet,
    GatewayInPool,
    IpNetwork,
    address_of,
    block_of,
    check_pools,
    eui64,
    first_address,
    is_usable,
    network_of,
    pools_beside,
)
from skep.standalone.networks import views
from skep.standalone.networks.bodies import NewSubnet, SubnetChanges
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import FLAG, NUMBER, TEXT
from skep.standalone.networks.refusals import InTheWay, InvalidInput
from skep.standalone.networks.resources import ResourceApi, changed, check_owner, columns, find, said_of, store

MOST_POOLS = 50
"""Allocation pools that a request gives a subnet."""


@contextmanager
def invalid() -> Iterator[None]:
    """Answer values that make no subnet as invalid input."""
    try:
        yield
    except GatewayInPool as error:
        raise InTheWay("GatewayConflictWithAllocationPools", str(error)) from error
    except BadSubnet as error:
        raise InvalidInput(str(error)) from error


def create(work: NetworkWork, said: NewSubnet, base: NetworkResource) -> Subnet:
    """Make a subnet on a network of the caller's.

    Raises InvalidInput, Missing, NotPermitted.
    """
    network = find(work, "Network", NETWORKS, said.network_id)
    check_owner(work, network, "create_subnet")
    if said.ip_version not in (4, 6):
        raise InvalidInput(f"ip_version: expected 4 or 6, got {said.ip_version}")
    with invalid():
        of = network_of(said.cidr, said.ip_version)
        gateway: str | None = first_address(of)
        if said.gateway_ip is not UNSET:
            gateway = None if said.gateway_ip is None else _gateway(of, said.gateway_ip)
        said_pools = said.allocation_pools
        if said_pools is UNSET or said_pools is None:
            pools = pools_beside(of, gateway)
        else:
            pools = check_pools(of, _few(said_pools), gateway)
    subnet = Subnet(
        **columns(base),
        network_id=network.id,
        ip_version=said.ip_version,
        cidr=str(of),
        gateway_ip=gateway,
        enable_dhcp=said.enable_dhcp,
        ipv6_ra_mode=said.ipv6_ra_mode,
        ipv6_address_mode=said.ipv6_address_mode,
        allocation_pools=pools,
        dns_nameservers=_dns(work, said.dns_nameservers or ()),
        host_routes=routes(said.host_routes or (), said.ip_version, work.settings.max_subnet_host_routes),
    )
    _check_dhcp(subnet, of)
    _check_modes(subnet, of)
    _check_free(work, network, of)
    _check_mtu(network, subnet)
    network_rows.insert(work.connection, SUBNETS, subnet)
    if subnet.ipv6_address_mode in AUTO_ADDRESSES:
        _give_to_all(work, subnet, of)
    return subnet


def update(work: NetworkWork, subnet: Subnet, changes: SubnetChanges) -> Subnet:
    """Change a subnet.

    Raises InvalidInput, InTheWay where its gateway is that of a router.
    """
    values = said_of(changes, "name", "description", "enable_dhcp")
    of = ip_network(subnet.cidr)
    with invalid():
        if changes.gateway_ip is not UNSET:
            values["gateway_ip"] = None if changes.gateway_ip is None else _gateway(of, changes.gateway_ip)
        gateway = values.get("gateway_ip", subnet.gateway_ip)
        if changes.allocation_pools is not UNSET:
            values["allocation_pools"] = check_pools(of, _few(changes.allocation_pools), gateway)
        elif gateway != subnet.gateway_ip:
            check_pools(of, subnet.allocation_pools, gateway)
    if gateway != subnet.gateway_ip and subnet.gateway_ip is not None:
        _check_gateway_free(work, subnet)
    if changes.dns_nameservers is not UNSET:
        values["dns_nameservers"] = _dns(work, changes.dns_nameservers or ())
    if changes.host_routes is not UNSET:
        most = work.settings.max_subnet_host_routes
        values["host_routes"] = routes(changes.host_routes or (), subnet.ip_version, most)
    if values.get("enable_dhcp") is False and subnet.ipv6_address_mode is not None:
        raise InvalidInput("ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False")
    after = changed(work, subnet, **values)
    if not subnet.enable_dhcp:
        _check_dhcp(after, of)
    server_ports.note(work.connection, work.now, server_ports.on_network(subnet.network_id))
    return store(work, SUBNETS, after)


def delete(work: NetworkWork, subnet: Subnet) -> None:
    """Delete a subnet. Addresses that ports made themselves go with it.

    Raises InTheWay while ports have other addresses of it.
    """
    if subnet.ipv6_address_mode in AUTO_ADDRESSES:
        in_the_way = port_addresses.devices_in(work.connection, subnet.id, ROUTER_INTERFACE) != {}
    else:
        in_the_way = port_addresses.is_used(work.connection, subnet.id)
    if in_the_way:
        raise InTheWay(
            "SubnetInUse",
            f"Unable to complete operation on subnet {subnet.id}: One or more ports have an IP allocation from this "
            "subnet.",
        )
    server_ports.note(work.connection, work.now, server_ports.on_network(subnet.network_id))
    port_addresses.give_back_all(work.connection, subnet.id)
    network_rows.delete(work.connection, SUBNETS, [subnet.id])


def show(connection: Connection, found: list[Subnet], _caller: NetworkCaller) -> list[views.ShownSubnet]:
    """Show subnets."""
    tags = network_rows.tags_of(connection, [subnet.id for subnet in found])
    return [views.subnet(subnet, tags[subnet.id]) for subnet in found]


def routes(said: tuple[HostRoute, ...], version: int | None, most: int) -> tuple[HostRoute, ...]:
    """Return routes in the usual form. `version`: of IP; None: any.

    Raises InvalidInput.
    """
    if len(said) > most:
        raise InvalidInput(f"the number of routes exceeds the limit of {most}")
    found = []
    with invalid():
        for one in said:
            destination = block_of(one.destination)
            nexthop = address_of(one.nexthop)
            if version is not None and nexthop.version != version:
                raise BadSubnet(f"the nexthop {one.nexthop} is not of IPv{version}")
            if destination.version != nexthop.version:
                raise BadSubnet(f"the nexthop {nexthop} does not match the destination {destination}")
            found.append(HostRoute(str(destination), str(nexthop)))
        if len({(one.destination, one.nexthop) for one in found}) < len(found):
            raise BadSubnet("a route is there twice")
    return tuple(found)


def of_network(connection: Connection, network_id: str) -> list[Subnet]:
    """Return the subnets of a network, the first one first."""
    return network_rows.where(connection, SUBNETS, network_id=network_id)


def automatic_address(subnet: Subnet, mac_address: str) -> Any:
    """Return the address that a port makes itself on a subnet."""
    return eui64(ip_network(subnet.cidr), mac_address)


def _gateway(of: IpNetwork, text: str) -> str:
    address = address_of(text)
    if not is_usable(of, address) and not (of.version == 6 and address.is_link_local):
        raise BadSubnet(f"Gateway is not valid on subnet: {text} is not on {of}")
    return str(address)


def _few(said: tuple[AllocationPool, ...]) -> tuple[AllocationPool, ...]:
    """Return the pools. Each port on the network looks through those of all its subnets.

    Raises InvalidInput for too many.
    """
    if len(said) > MOST_POOLS:
        raise InvalidInput(f"allocation_pools: expected at most {MOST_POOLS} pools")
    return said


def _dns(work: NetworkWork, said: tuple[str, ...]) -> tuple[str, ...]:
    if len(said) > work.settings.max_dns_nameservers:
        raise InvalidInput(f"the number of DNS nameservers exceeds the limit of {work.settings.max_dns_nameservers}")
    with invalid():
        found = tuple(str(address_of(one)) for one in said)
    if len(set(found)) < len(found):
        raise InvalidInput("a DNS nameserver is there twice")
    return found


def _check_dhcp(subnet: Subnet, of: IpNetwork) -> None:
    """Raise InvalidInput for DHCP where a server of it has no place beside a gateway and one port."""
    longest = 30 if of.version == 4 else 126
    if subnet.enable_dhcp and of.prefixlen > longest:
        raise InvalidInput(
            f"Subnet has a prefix length that is incompatible with DHCP service enabled: {of}, "
            f"expected at most {longest}"
        )


def _check_modes(subnet: Subnet, of: IpNetwork) -> None:
    """Raise InvalidInput for modes of IPv6 that do not go together (Neutron's table)."""
    ra_mode, address_mode = subnet.ipv6_ra_mode, subnet.ipv6_address_mode
    if ra_mode is None and address_mode is None:
        return
    if subnet.ip_version == 4:
        raise InvalidInput("ipv6_ra_mode and ipv6_address_mode are not of IPv4")
    if not subnet.enable_dhcp:
        raise InvalidInput("ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False")
    if ra_mode is not None and address_mode is not None and ra_mode != address_mode:
        raise InvalidInput(
            f"ipv6_ra_mode set to '{ra_mode}' with ipv6_address_mode set to '{address_mode}' is not valid"
        )
    if address_mode in AUTO_ADDRESSES and of.prefixlen != 64:
        raise InvalidInput(f"cidr {of}: expected a prefix of 64 bits for {address_mode}")


def _check_free(work: NetworkWork, network: Network, of: IpNetwork) -> None:
    """Raise InvalidInput where a subnet of the network has some of these addresses."""
    for other in of_network(work.connection, network.id):
        theirs = ip_network(other.cidr)
        if theirs.version == of.version and theirs.overlaps(of):
            raise InvalidInput(
                f"Requested subnet with cidr: {of} for network: {network.id} overlaps with another subnet"
            )


def _check_mtu(network: Network, subnet: Subnet) -> None:
    if subnet.ip_version == 6 and network.mtu < LEAST_MTU_IPV6:
        raise InvalidInput(f"mtu: the network carries {network.mtu} bytes, IPv6 needs {LEAST_MTU_IPV6}")


def _give_to_all(work: NetworkWork, subnet: Subnet, of: IpNetwork) -> None:
    """Note the address that each port of the network makes itself on a new subnet."""
    found = [
        port
        for port in network_rows.where(work.connection, PORTS, network_id=subnet.network_id)
        if not port.device_owner.startswith("network:")
    ]
    server_ports.note(work.connection, work.now, server_ports.on_network(subnet.network_id))
    port_addresses.take_all(work.connection, subnet, {port.id: eui64(of, port.mac_address) for port in found})


def _check_gateway_free(work: NetworkWork, subnet: Subnet) -> None:
    assert subnet.gateway_ip is not None
    holder = port_addresses.holder(work.connection, subnet.id, address_of(subnet.gateway_ip))
    if holder is not None:
        raise InTheWay(
            "GatewayIpInUse",
            f"Current gateway ip {subnet.gateway_ip} already in use by port {holder}. Unable to update.",
        )


RESOURCE = ResourceApi(
    noun="Subnet",
    member="subnet",
    path="subnets",
    kind=SUBNETS,
    new=NewSubnet,
    changes=SubnetChanges,
    shown=views.ShownSubnet,
    filters={
        **dict.fromkeys(("network_id", "cidr", "gateway_ip", "ipv6_ra_mode", "ipv6_address_mode"), TEXT),
        "enable_dhcp": FLAG,
        "ip_version": NUMBER,
    },
    create=create,
    update=update,
    delete=delete,
    show=show,
)
