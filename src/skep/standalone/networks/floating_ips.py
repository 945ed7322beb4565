"""Floating addresses: what may be done to one, as units of work."""

from __future__ import annotations

from ipaddress import ip_address

from msgspec import UNSET

from skep.database import Connection
from skep.database.api import network_rows, port_addresses, server_ports
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, PORTS, SUBNETS
from skep.domain.networking import FLOATING_IP, FloatingIp, NetworkResource, Port
from skep.standalone.networks import ports, routers, subnets, views
from skep.standalone.networks.bodies import FloatingIpChanges, NewFloatingIp, WantedIp
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.queries import TEXT
from skep.standalone.networks.refusals import InTheWay, InvalidInput, Missing, NotPermitted
from skep.standalone.networks.resources import ResourceApi, changed, check_owner, columns, find, fresh, said_of, store


def create(work: NetworkWork, said: NewFloatingIp, base: NetworkResource) -> FloatingIp:
    """Take an address of an external network.

    Raises InvalidInput, Missing, NotPermitted, InTheWay where none is free or it is taken.
    """
    network = find(work, "Network", NETWORKS, said.floating_network_id)
    if not network.external:
        raise InvalidInput(f"network {network.id} is not a valid external network")
    wanted = None
    if isinstance(said.floating_ip_address, str):
        if not work.caller.is_admin:
            raise NotPermitted("create_floatingip:floating_ip_address")
        wanted = [WantedIp(said.subnet_id or None, said.floating_ip_address)]
    elif isinstance(said.subnet_id, str):
        wanted = [WantedIp(said.subnet_id)]
    of_ipv4 = [subnet for subnet in subnets.of_network(work.connection, network.id) if subnet.ip_version == 4]
    if not of_ipv4:
        raise InvalidInput(f"network {network.id} does not contain any IPv4 subnet")
    if isinstance(said.subnet_id, str) and said.subnet_id not in {subnet.id for subnet in of_ipv4}:
        raise InvalidInput(f"subnet_id: expected an IPv4 subnet of network {network.id}, not {said.subnet_id}")
    port = ports.make(work, network, fresh(work, ""), wanted or (), device_id=base.id, device_owner=FLOATING_IP)
    if wanted is None:
        ports.give_any(work, port, of_ipv4, 0)
    [fixed] = port_addresses.of_ports(work.connection, [port.id])[port.id]
    if ip_address(fixed.ip_address).version != 4:
        raise InvalidInput(f"floating_ip_address: expected an IPv4 address, not {fixed.ip_address}")
    floating = FloatingIp(
        **columns(base),
        floating_network_id=network.id,
        floating_port_id=port.id,
        floating_ip_address=fixed.ip_address,
    )
    network_rows.insert(work.connection, FLOATING_IPS, floating)
    if said.port_id is None:
        return floating
    after = _leading(work, floating, said.port_id, said.fixed_ip_address)
    _tell(work, after)
    return store(work, FLOATING_IPS, after)


def _tell(work: NetworkWork, *floating: FloatingIp) -> None:
    """Note that servers have to be told to which floating addresses lead, or led before."""
    led = [one.port_id for one in floating if one.port_id is not None]
    if led:
        server_ports.note(work.connection, work.now, server_ports.those(led))


def update(work: NetworkWork, floating: FloatingIp, changes: FloatingIpChanges) -> FloatingIp:
    """Lead a floating address to another port, or to none.

    Raises InvalidInput, Missing, InTheWay where the address of the port has another one.
    """
    after = changed(work, floating, **said_of(changes, "description"))
    if changes.port_id is not UNSET or changes.fixed_ip_address is not UNSET:
        port_id = floating.port_id if changes.port_id is UNSET else changes.port_id
        if port_id is None:
            if changes.fixed_ip_address not in (UNSET, None):
                raise InvalidInput("fixed_ip_address: cannot be specified without a port_id")
            after = ports.loosened(work, after)
        else:
            after = _leading(work, after, port_id, changes.fixed_ip_address or None)
    _tell(work, floating, after)
    return store(work, FLOATING_IPS, after)


def delete(work: NetworkWork, floating: FloatingIp) -> None:
    """Give a floating address back."""
    _tell(work, floating)
    network_rows.delete(work.connection, FLOATING_IPS, [floating.id])
    port = network_rows.get(work.connection, PORTS, floating.floating_port_id)
    assert port is not None, "the row named it"
    ports.remove(work, [port])


def show(connection: Connection, found: list[FloatingIp], _caller: NetworkCaller) -> list[views.ShownFloatingIp]:
    """Show floating addresses with the ports that they lead to."""
    tags = network_rows.tags_of(connection, [floating.id for floating in found])
    ids = [floating.port_id for floating in found if floating.port_id is not None]
    leads_to = network_rows.by_id(connection, PORTS, ids)
    return [views.floating_ip(one, tags[one.id], leads_to.get(one.port_id or "")) for one in found]


def _leading(work: NetworkWork, floating: FloatingIp, port_id: str, fixed_ip_address: str | None) -> FloatingIp:
    """Return a floating address that leads to an address of a port."""
    port = find(work, "Port", PORTS, port_id)
    check_owner(work, port, "update_floatingip:port_id")
    subnet_id, address = _internal(work, port, fixed_ip_address)
    subnet = network_rows.get(work.connection, SUBNETS, subnet_id)
    assert subnet is not None, "a port has an address of it"
    router = routers.through(work, floating.floating_network_id, subnet, floating.project_id)
    if router is None:
        raise Missing(
            "External gateway for floating IP",
            f"(external network {floating.floating_network_id} is not reachable from subnet {subnet_id})",
        )
    there = network_rows.where(work.connection, FLOATING_IPS, port_id=port.id, fixed_ip_address=address)
    if any(other.id != floating.id for other in there):
        raise InTheWay(
            "FloatingIPPortAlreadyAssociated",
            f"Cannot associate floating IP {floating.floating_ip_address} ({floating.id}) with port {port.id} using "
            f"fixed IP {address}, as that fixed IP already has a floating IP on external network "
            f"{there[0].floating_network_id}.",
        )
    return changed(work, floating, port_id=port.id, fixed_ip_address=address, router_id=router.id)


def _internal(work: NetworkWork, port: Port, wanted: str | None) -> tuple[str, str]:
    """Return the subnet and the address of a port that a floating address leads to. Raises InvalidInput."""
    fixed_ips = port_addresses.of_ports(work.connection, [port.id])[port.id]
    of_ipv4 = [one for one in fixed_ips if ip_address(one.ip_address).version == 4]
    if wanted is not None:
        of_ipv4 = [one for one in of_ipv4 if one.ip_address == wanted]
        if not of_ipv4:
            raise InvalidInput(f"port {port.id} does not have fixed ip {wanted}")
    if not of_ipv4:
        raise InvalidInput(f"cannot add floating IP to port {port.id} that has no fixed IPv4 addresses")
    if len(of_ipv4) > 1:
        raise InvalidInput(
            f"port {port.id} has multiple fixed IPv4 addresses. Must provide a specific IPv4 address when assigning a "
            "floating IP"
        )
    return of_ipv4[0].subnet_id, of_ipv4[0].ip_address


RESOURCE = ResourceApi(
    noun="Floating IP",
    member="floatingip",
    path="floatingips",
    kind=FLOATING_IPS,
    new=NewFloatingIp,
    changes=FloatingIpChanges,
    shown=views.ShownFloatingIp,
    filters=dict.fromkeys(
        ("floating_network_id", "floating_ip_address", "port_id", "fixed_ip_address", "router_id"), TEXT
    ),
    create=create,
    update=update,
    delete=delete,
    show=show,
)
