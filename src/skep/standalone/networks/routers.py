"""Routers: what may be done to one, as units of work. Its interfaces and its gateway are ports of the service."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec import UNSET

from skep.database import Connection
from skep.database.api import network_rows, port_addresses
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, PORTS, ROUTERS, SUBNETS
from skep.domain.networking import (
    ROUTER_GATEWAY,
    ROUTER_INTERFACE,
    HostRoute,
    Network,
    NetworkResource,
    Port,
    Subnet,
    VirtualRouter,
)
from skep.standalone.networks import ports, quotas, subnets, views
from skep.standalone.networks.bodies import NewRouter, RouterChanges, WantedGateway, WantedIp
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import FLAG
from skep.standalone.networks.refusals import InTheWay, InvalidInput, Missing, NotPermitted
from skep.standalone.networks.resources import ResourceApi, changed, check_owner, columns, find, fresh, said_of, store


def create(work: NetworkWork, said: NewRouter, base: NetworkResource) -> VirtualRouter:
    """Make a router.

    Raises InvalidInput, Missing, NotPermitted, InTheWay where the outside has no address for it.
    """
    router = VirtualRouter(**columns(base), admin_state_up=said.admin_state_up)
    network_rows.insert(work.connection, ROUTERS, router)
    if said.external_gateway_info is None or said.external_gateway_info.network_id is None:
        return router
    return store(work, ROUTERS, _with_gateway(work, router, said.external_gateway_info))


def update(work: NetworkWork, router: VirtualRouter, changes: RouterChanges) -> VirtualRouter:
    """Change a router.

    Raises as `create`, and InTheWay where floating addresses lead through a gateway that would go.
    """
    after = changed(work, router, **said_of(changes, "name", "description", "admin_state_up"))
    if changes.external_gateway_info is not UNSET:
        after = _with_gateway(work, after, changes.external_gateway_info or WantedGateway())
    if changes.routes is not UNSET:
        after = with_routes(work, after, changes.routes or ())
    return store(work, ROUTERS, after)


def delete(work: NetworkWork, router: VirtualRouter) -> None:
    """Delete a router.

    Raises InTheWay while it has interfaces or floating addresses.
    """
    if _interfaces(work, router) or network_rows.count(work.connection, FLOATING_IPS, router_id=router.id):
        raise InTheWay("RouterInUse", f"Router {router.id} still has ports")
    without = _without_gateway(work, router)
    store(work, ROUTERS, without)
    if router.gateway_port_id is not None:
        _remove_gateway_port(work, router.gateway_port_id)
    network_rows.delete(work.connection, ROUTERS, [router.id])


def show(connection: Connection, found: list[VirtualRouter], _caller: NetworkCaller) -> list[views.ShownRouter]:
    """Show routers with their gateways."""
    ids = [router.id for router in found]
    tags = network_rows.tags_of(connection, ids)
    gateway_ids = [router.gateway_port_id for router in found if router.gateway_port_id is not None]
    gateways = network_rows.by_id(connection, PORTS, gateway_ids)
    addresses = port_addresses.of_ports(connection, gateway_ids)
    shown = []
    for router in found:
        gateway = None
        if router.gateway_port_id is not None:
            port = gateways[router.gateway_port_id]
            gateway = views.ShownGateway(
                network_id=port.network_id, enable_snat=router.enable_snat, external_fixed_ips=addresses[port.id]
            )
        shown.append(views.router(router, tags[router.id], gateway))
    return shown


def add_interface(
    work: NetworkWork, router: VirtualRouter, subnet_id: str | None, port_id: str | None
) -> tuple[Port, list[Subnet]]:
    """Join a network to a router: by the gateway address of a subnet, or by a port that is there.

    Raises InvalidInput, Missing, InTheWay. Returns the port of the router and its subnets there.
    """
    if (subnet_id is None) is (port_id is None):
        raise InvalidInput("expected either subnet_id or port_id")
    if port_id is not None:
        port = find(work, "Port", PORTS, port_id)
        check_owner(work, port, "add_router_interface")
        if port.device_id or port.device_owner:
            raise InTheWay(
                "PortInUse",
                f"Unable to complete operation on port {port.id} for network {port.network_id}. Port already has an "
                f"attached device {port.device_id}.",
            )
        joined = subnets_of(work, port)
        if not joined:
            raise InvalidInput(f"port {port.id} has no fixed ip")
        if sum(subnet.ip_version == 4 for subnet in joined) > 1:
            raise InvalidInput(f"cannot have multiple IPv4 subnets on router port {port.id}")
        _check_overlaps(work, router, joined)
        port = changed(work, port, device_id=router.id, device_owner=ROUTER_INTERFACE)
        return store(work, PORTS, port), joined
    assert subnet_id is not None
    quotas.check(work, "port", router.project_id)
    subnet = find(work, "Subnet", SUBNETS, subnet_id)
    network = _network(work, subnet.network_id)
    if not work.caller.owns(network.project_id):
        # The router takes the subnet's gateway address: in a shared network it is its owner's to give, as in Neutron.
        raise InvalidInput(f"subnet {subnet.id} is not owned by the project that makes the request")
    if subnet.gateway_ip is None:
        raise InvalidInput(f"subnet for router interface must have a gateway IP: {subnet.id}")
    _check_overlaps(work, router, [subnet])
    wanted = [WantedIp(subnet.id, subnet.gateway_ip)]
    return _port(work, router, network, wanted, ROUTER_INTERFACE, router.project_id), [subnet]


def remove_interface(
    work: NetworkWork, router: VirtualRouter, subnet_id: str | None, port_id: str | None
) -> tuple[Port, list[Subnet]]:
    """Part a network from a router, by its port or by its subnet.

    Raises InvalidInput, Missing, InTheWay while floating addresses or routes need it.
    """
    if subnet_id is None and port_id is None:
        raise InvalidInput("expected subnet_id or port_id")
    found = [port for port in _interfaces(work, router) if port_id in (None, port.id)]
    left = [(port, subnets_of(work, port)) for port in found]
    matching = [(port, of) for port, of in left if subnet_id is None or subnet_id in {subnet.id for subnet in of}]
    if not matching:
        raise Missing("Router interface", f"of router {router.id}, {port_id or subnet_id}")
    port, of = matching[0]
    networks = [ip_network(subnet.cidr) for subnet in of]
    for floating in network_rows.where(work.connection, FLOATING_IPS, router_id=router.id):
        if any(ip_address(str(floating.fixed_ip_address)) in network for network in networks):
            raise InTheWay(
                "RouterInterfaceInUseByFloatingIP",
                f"Router interface for subnet {of[0].id} on router {router.id} cannot be deleted, as it is required by "
                "one or more floating IPs.",
            )
    if any(ip_address(route.nexthop) in network for route in router.routes for network in networks):
        raise InTheWay(
            "RouterInterfaceInUseByRoute",
            f"Router interface for subnet {of[0].id} on router {router.id} cannot be deleted, as it is required by one "
            "or more routes.",
        )
    ports.remove(work, [port])
    return port, of


def with_routes(work: NetworkWork, router: VirtualRouter, said: Sequence[HostRoute]) -> VirtualRouter:
    """Return a router with other routes.

    Raises InvalidInput for a next hop on no network of the router.
    """
    found = subnets.routes(tuple(said), None, work.settings.max_routes)
    joined = [ip_network(subnet.cidr) for port in _all_ports(work, router) for subnet in subnets_of(work, port)]
    for route in found:
        if not any(ip_address(route.nexthop) in network for network in joined):
            raise InvalidInput(f"routes: the nexthop {route.nexthop} is not connected with the router")
    return changed(work, router, routes=found)


def subnets_of(work: NetworkWork, port: Port) -> list[Subnet]:
    """Return the subnets in which a port has addresses."""
    ids = [fixed.subnet_id for fixed in port_addresses.of_ports(work.connection, [port.id])[port.id]]
    return network_rows.where(work.connection, SUBNETS, id=ids)


def through(work: NetworkWork, external_network_id: str, subnet: Subnet, project_id: str) -> VirtualRouter | None:
    """Return the router that joins a subnet to an external network.

    As in Neutron that with the gateway address of the subnet comes first: guests answer through it. Then come those of
    the project.
    """
    addresses = port_addresses.devices_in(work.connection, subnet.id, ROUTER_INTERFACE)
    found: list[tuple[bool, bool, str, VirtualRouter]] = []
    for router_id, of_it in addresses.items():
        router = network_rows.get(work.connection, ROUTERS, router_id)
        if router is None or router.gateway_port_id is None:
            continue
        gateway = network_rows.get(work.connection, PORTS, router.gateway_port_id)
        if gateway is not None and gateway.network_id == external_network_id:
            found.append((subnet.gateway_ip not in of_it, router.project_id != project_id, router.id, router))
    return min(found)[-1] if found else None


def _with_gateway(work: NetworkWork, router: VirtualRouter, wanted: WantedGateway) -> VirtualRouter:
    """Give a router another gateway, or none."""
    before = (
        None if router.gateway_port_id is None else network_rows.get(work.connection, PORTS, router.gateway_port_id)
    )
    if wanted.enable_snat is not UNSET and not work.caller.is_admin:
        raise NotPermitted("update_router:external_gateway_info:enable_snat")
    if wanted.external_fixed_ips is not UNSET and not work.caller.is_admin:
        raise NotPermitted("update_router:external_gateway_info:external_fixed_ips")
    snat = True if wanted.enable_snat is UNSET else wanted.enable_snat
    if wanted.network_id is None:
        after = _without_gateway(work, router)
    elif before is not None and before.network_id == wanted.network_id and wanted.external_fixed_ips is UNSET:
        return changed(work, router, enable_snat=snat)
    else:
        network = find(work, "Network", NETWORKS, wanted.network_id)
        if not network.external:
            raise InvalidInput(f"network {network.id} is not an external network")
        _check_outside_free(work, router, network)
        addresses = None if wanted.external_fixed_ips is UNSET else wanted.external_fixed_ips
        if before is not None:
            # The old port may have the addresses that the new one is to have.
            store(work, ROUTERS, _without_gateway(work, router, to=network))
            _remove_gateway_port(work, before.id)
        port = _port(work, router, network, addresses, ROUTER_GATEWAY, "")
        return changed(work, router, gateway_port_id=port.id, enable_snat=snat)
    if before is not None:
        store(work, ROUTERS, after)
        _remove_gateway_port(work, before.id)
    return after


def _without_gateway(work: NetworkWork, router: VirtualRouter, to: Network | None = None) -> VirtualRouter:
    """Return a router without its gateway. Raises InTheWay while floating addresses lead through it."""
    leading = network_rows.where(work.connection, FLOATING_IPS, router_id=router.id)
    if any(to is None or floating.floating_network_id != to.id for floating in leading):
        raise InTheWay(
            "RouterExternalGatewayInUseByFloatingIp",
            f"Gateway cannot be updated for router {router.id}, since a gateway to external network "
            f"{leading[0].floating_network_id} is required by one or more floating IPs.",
        )
    return changed(work, router, gateway_port_id=None)


def _remove_gateway_port(work: NetworkWork, port_id: str) -> None:
    port = network_rows.get(work.connection, PORTS, port_id)
    assert port is not None, "the row of the router names it"
    ports.remove(work, [port])


def _check_outside_free(work: NetworkWork, router: VirtualRouter, network: Network) -> None:
    """Raise InvalidInput where an interface of the router has addresses of the external network."""
    outside = [ip_network(subnet.cidr) for subnet in subnets.of_network(work.connection, network.id)]
    for port in _interfaces(work, router):
        for subnet in subnets_of(work, port):
            _refuse_overlap(ip_network(subnet.cidr), outside)


def _check_overlaps(work: NetworkWork, router: VirtualRouter, joined: list[Subnet]) -> None:
    """Raise InvalidInput where the router reaches some of the addresses already."""
    there = [ip_network(subnet.cidr) for port in _all_ports(work, router) for subnet in subnets_of(work, port)]
    for subnet in joined:
        _refuse_overlap(ip_network(subnet.cidr), there)


def _refuse_overlap(mine: Any, others: list[Any]) -> None:
    for other in others:
        if mine.version == other.version and mine.overlaps(other):
            raise InvalidInput(f"cidr {mine} overlaps with cidr {other}, which the router is connected with")


def _interfaces(work: NetworkWork, router: VirtualRouter) -> list[Port]:
    return network_rows.where(work.connection, PORTS, device_id=router.id, device_owner=ROUTER_INTERFACE)


def _all_ports(work: NetworkWork, router: VirtualRouter) -> list[Port]:
    return network_rows.where(
        work.connection, PORTS, device_id=router.id, device_owner=(ROUTER_INTERFACE, ROUTER_GATEWAY)
    )


def _network(work: NetworkWork, network_id: str) -> Network:
    network = network_rows.get(work.connection, NETWORKS, network_id)
    assert network is not None, "the row of the subnet names it"
    return network


def _port(
    work: NetworkWork,
    router: VirtualRouter,
    network: Network,
    wanted: Sequence[WantedIp] | None,
    owner: str,
    project_id: str,
) -> Port:
    return ports.make(work, network, fresh(work, project_id), wanted, device_id=router.id, device_owner=owner)


RESOURCE = ResourceApi(
    noun="Router",
    member="router",
    path="routers",
    kind=ROUTERS,
    new=NewRouter,
    changes=RouterChanges,
    shown=views.ShownRouter,
    filters={"admin_state_up": FLAG},
    create=create,
    update=update,
    delete=delete,
    show=show,
)
