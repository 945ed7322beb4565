"""Interfaces that a server gets, or loses, after its build."""

from __future__ import annotations

from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import InstanceUuid, is_uuid, new_uuid
from skep.domain.invalid_input import invalid_field
from skep.domain.vifs import RequestedNetwork
from skep.neighbours.networks.base import WantedInterface
from skep.neighbours.networks.neutron import choosing
from skep.neighbours.networks.neutron.calls import NeutronCalls
from skep.neighbours.networks.neutron.choosing import Chooser
from skep.neighbours.networks.neutron.forms import PORTS, NeutronPort
from skep.neighbours.networks.neutron.interfaces import order, ports_of
from skep.neighbours.networks.neutron.ports import PortPlace, ServerPorts

WHERE = "interfaceAttachment"
NO_NETWORK = "No specific network was requested and none are available for project '{}'."
"""Nova's text."""


async def attach(skep: NeutronCalls, ports: ServerPorts, chooser: Chooser, wanted: WantedInterface) -> NeutronPort:
    """Make a port for a server, or give it a user's, as the last of its interfaces.

    Raises as `NetworksOfUsers.attach`, and NeutronRefused.
    """
    one = await _checked(chooser, wanted.network)
    async with ports.turn(wanted.instance):
        of_server = (await ports_of(skep, [wanted.instance]))[wanted.instance]
        place = PortPlace(
            instance=wanted.instance,
            project_id=wanted.project_id,
            host=wanted.host,
            zone=wanted.zone,
            position=max((order(port)[0] + 1 for port in of_server), default=0),
            request=new_uuid(),
        )
        return await ports.take(place, one)


async def detach(skep: NeutronCalls, ports: ServerPorts, instance: InstanceUuid, port_id: str) -> None:
    """Take an interface from a server. Raises NotFound where it is none of the server's, and NeutronRefused."""
    port = await skep.shown(PORTS, port_id) if is_uuid(port_id) else None
    of_server = port is not None and port.label is not None and port.device_id == instance
    if port is None or not of_server or not await ports.give_up(instance, port):
        raise NotFound(f"Port id {port_id[:80]} could not be found.")


async def _checked(chooser: Chooser, wanted: RequestedNetwork) -> RequestedNetwork:
    """Return the interface with its network, where none was named the only one that there is."""
    there = await choosing.look_up(chooser, [wanted])
    if wanted.port_id is not None:
        if wanted.port_id not in there.ports:
            raise NotFound(f"Port id {wanted.port_id[:80]} could not be found.")
        port = there.ports[wanted.port_id]
        choosing.check_port(f"{WHERE}.port_id", port)
        if port.resource_request:
            expected = "a port without a resource_request (a QoS policy with a minimum), which only a create takes"
            raise invalid_field(f"{WHERE}.port_id", port.id, expected)
        return wanted
    if wanted.network_id is None:
        return RequestedNetwork(network_id=await _only_network(chooser), tag=wanted.tag)
    if wanted.network_id not in there.networks:
        raise NotFound(f"Network {wanted.network_id[:80]} could not be found.")
    network = there.networks[wanted.network_id]
    choosing.check_network(chooser, f"{WHERE}.net_id", network)
    if wanted.fixed_ip is not None:
        where = f"{WHERE}.fixed_ips[0].ip_address"
        address = choosing.address_on(chooser, where, network, there.subnets, wanted.fixed_ip)
        if await choosing.is_held(chooser, network, address):
            raise Conflict(f"Fixed IP address {address} is already in use on network {network.id}.")
    return wanted


async def _only_network(chooser: Chooser) -> str:
    found = await chooser.usable_networks()
    if not found:
        raise BadRequest(NO_NETWORK.format(chooser.project_id))
    if len(found) > 1:
        raise BadRequest(choosing.AMBIGUOUS)
    return found[0].id
