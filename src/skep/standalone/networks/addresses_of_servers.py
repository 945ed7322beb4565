"""Addresses that old clients give to servers by the compute API: floating ones, and more fixed ones."""

from __future__ import annotations

from ipaddress import ip_address

from skep.database.api import network_rows, port_addresses, server_ports
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, PORTS, ResourceQuery
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import InstanceUuid
from skep.domain.networking import FloatingIp, Network
from skep.neighbours.networks.base import FloatingOfServer, NamedNetwork
from skep.standalone.networks import floating_ips, ports, quotas
from skep.standalone.networks.bodies import FloatingIpChanges, NewFloatingIp
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.refusals import InTheWay, Missing
from skep.standalone.networks.resources import fresh


def networks_seen(work: NetworkWork) -> list[NamedNetwork]:
    """Return the networks that the caller sees."""
    query = ResourceQuery(seen_by=None if work.caller.is_admin else work.caller.project_id)
    found = network_rows.select(work.connection, NETWORKS, query)
    return [NamedNetwork(one.id, one.name) for one in found or ()]


def pools(work: NetworkWork) -> list[str]:
    """Return the names of the external networks; the id of one that has none."""
    return [_name(one) for one in _external(work)]


def shown(work: NetworkWork, found: list[FloatingIp]) -> list[FloatingOfServer]:
    """Return floating addresses with the servers that they lead to."""
    networks = network_rows.by_id(work.connection, NETWORKS, sorted({one.floating_network_id for one in found}))
    led = network_rows.by_id(work.connection, PORTS, [one.port_id for one in found if one.port_id is not None])
    return [
        FloatingOfServer(
            id=one.id,
            address=one.floating_ip_address,
            pool=_name(networks[one.floating_network_id]),
            fixed_address=one.fixed_ip_address,
            instance=led[one.port_id].server if one.port_id in led else None,
        )
        for one in found
    ]


def take(work: NetworkWork, pool: str | None) -> FloatingOfServer:
    """Take a floating address from a pool.

    Raises NotFound, BadRequest, and InTheWay for the quota.
    """
    network = _pool(work, pool)
    quotas.check(work, "floatingip", work.caller.project_id)
    said = NewFloatingIp(floating_network_id=network.id)
    try:
        made = floating_ips.create(work, said, fresh(work, work.caller.project_id))
    except InTheWay as error:
        if error.type != ports.NO_MORE_ADDRESSES:
            raise
        raise NotFound(f"No more floating IPs in pool {_name(network)}.") from error
    return shown(work, [made])[0]


def lead(work: NetworkWork, instance: InstanceUuid, address: str, fixed_address: str | None) -> None:
    """Lead a floating address to a server.

    Raises NotFound, BadRequest, InTheWay.
    """
    floating = _by_address(work, address)
    held = _held(work, instance)
    if not held:
        raise BadRequest("No fixed IPs associated to instance")
    of_ipv4 = [one for one in held if ip_address(one).version == 4]
    if fixed_address is not None and fixed_address not in held:
        raise BadRequest("Specified fixed address not assigned to instance")
    if fixed_address is None and not of_ipv4:
        raise BadRequest(
            f"Unable to associate floating IP {address} to any fixed IPs for instance {instance}. Instance has no "
            "fixed IPv4 addresses to associate."
        )
    fixed = of_ipv4[0] if fixed_address is None else fixed_address
    changes = FloatingIpChanges(port_id=held[fixed], fixed_ip_address=fixed)
    try:
        floating_ips.update(work, floating, changes)
    except Missing as error:
        raise BadRequest(f"Unable to associate floating IP {address} to fixed IP {fixed}: {error}") from error


def loosen(work: NetworkWork, instance: InstanceUuid, address: str) -> None:
    """Lead a floating address of a server nowhere.

    Raises NotFound, Conflict.
    """
    floating = _by_address(work, address)
    if shown(work, [floating])[0].instance != instance:
        raise Conflict(f"Floating IP {address} is not associated with instance {instance}.")
    floating_ips.update(work, floating, FloatingIpChanges(port_id=None))


def add(work: NetworkWork, instance: InstanceUuid, network_id: str) -> None:
    """Give a server one more address on a network.

    Raises NotFound, BadRequest, InTheWay.
    """
    of_server = server_ports.ports_of(work.connection, [instance])
    port = next((one for one in of_server if one.network_id == network_id), None)
    if port is None:
        raise NotFound(f"Network {network_id} could not be found for instance {instance}.")
    ports.add_address(work, port)


def remove(work: NetworkWork, instance: InstanceUuid, address: str) -> None:
    """Take an address from a server. Raises BadRequest."""
    port_id = _held(work, instance).get(address)
    port = None if port_id is None else network_rows.get(work.connection, PORTS, port_id)
    if port is None:
        raise BadRequest(f"Fixed IP address {address} could not be found for instance {instance}.")
    ports.remove_address(work, port, address)


def _held(work: NetworkWork, instance: InstanceUuid) -> dict[str, str]:
    """Return the fixed addresses of a server, in the order of its ports, each with its port."""
    ids = [port.id for port in server_ports.ports_of(work.connection, [instance])]
    found = port_addresses.of_ports(work.connection, ids)
    held: dict[str, str] = {}
    for port_id in ids:
        for one in found[port_id]:
            held.setdefault(one.ip_address, port_id)
    return held


def _external(work: NetworkWork) -> list[Network]:
    return network_rows.where(work.connection, NETWORKS, external=True)


def _name(network: Network) -> str:
    return network.name or network.id


def _pool(work: NetworkWork, said: str | None) -> Network:
    """Return the external network that is meant. Raises NotFound, and BadRequest where several have the name."""
    every = _external(work)
    if said is None:
        found = [one for one in every if one.is_default] or every
    else:
        found = [one for one in every if one.id == said] or [one for one in every if one.name == said]
    if not found or (said is None and len(found) > 1):
        raise NotFound("Floating IP pool not found.")
    if len(found) > 1:
        raise BadRequest(f"Multiple floating IP pools matches found for name '{said}'")
    return found[0]


def _by_address(work: NetworkWork, address: str) -> FloatingIp:
    """Return the floating address that an address means. Raises NotFound, and BadRequest where several are meant."""
    of_project = {} if work.caller.is_admin else {"project_id": work.caller.project_id}
    found = network_rows.where(work.connection, FLOATING_IPS, floating_ip_address=address, **of_project)
    if not found:
        raise NotFound(f"Floating IP not found for address {address}.")
    if len(found) > 1:
        raise BadRequest(f"Multiple floating IPs are found for address {address}.")
    return found[0]
