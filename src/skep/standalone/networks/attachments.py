"""Interfaces that a server gets, or loses, after its build."""

from __future__ import annotations

from skep.database.api import instance_mappings, network_rows, server_ports
from skep.database.api.network_rows import NETWORKS, PORTS
from skep.domain.errors import BadRequest, Conflict, NotFound, QuotaExceeded
from skep.domain.ids import InstanceUuid
from skep.domain.networking import Network
from skep.domain.vifs import RequestedNetwork, Vif
from skep.neighbours.networks.base import WantedInterface, WantedPorts
from skep.standalone.networks import choices, ports, taking
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.quotas import OVER_QUOTA
from skep.standalone.networks.refusals import InTheWay, Missing
from skep.standalone.networks.resources import find

WHERE = "interfaceAttachment"
NO_NETWORK = "No specific network was requested and none are available for project '{}'."
"""Nova's text."""


def attach(work: NetworkWork, wanted: WantedInterface) -> Vif:
    """Make a port for a server, or give it a user's, as the last of its interfaces.

    Raises as `NetworksOfUsers.attach`.
    """
    mapping = instance_mappings.get(work.connection, wanted.instance)
    if mapping is None or mapping.delete_intent_at or mapping.deleted_at:
        raise NotFound(f"Instance {wanted.instance} could not be found.")
    one = _checked(work, wanted.network)
    of_server = server_ports.ports_of(work.connection, [wanted.instance])
    position = max((port.server_position + 1 for port in of_server), default=0)
    try:
        taking.take(work, _as_of_build(wanted, mapping.attempt, one), one, position)
    except InTheWay as error:
        if error.type == OVER_QUOTA:
            raise QuotaExceeded("Maximum number of ports exceeded") from error
        if error.type == ports.NO_MORE_ADDRESSES:
            raise BadRequest(str(error)) from error
        raise
    server_ports.note_server(work.connection, work.now, wanted.instance)
    return server_ports.vifs_of(work.connection, [wanted.instance])[wanted.instance][-1]


def detach(work: NetworkWork, instance: InstanceUuid, port_id: str) -> None:
    """Take an interface from a server: delete the port that was made for it, or give a user's back.

    Raises NotFound where it is none of the server's.
    """
    port = network_rows.get(work.connection, PORTS, port_id)
    if port is None or port.server != instance:
        raise NotFound(f"Port id {port_id[:80]} could not be found.")
    if port.made_for_server:
        server_ports.remove(work.connection, [port], work.now)
    else:
        server_ports.note_server(work.connection, work.now, instance)
        network_rows.update(work.connection, PORTS, server_ports.given_back(port, work.now))


def _checked(work: NetworkWork, wanted: RequestedNetwork) -> RequestedNetwork:
    """Return the interface with its network, where none was named the only one that there is."""
    if wanted.port_id is not None:
        try:
            port = taking.own_port(work, work.caller.project_id, wanted.port_id)
        except Missing as error:
            raise NotFound(f"Port id {wanted.port_id[:80]} could not be found.") from error
        choices.check_port(work, f"{WHERE}.port_id", port)
        return wanted
    if wanted.network_id is None:
        return RequestedNetwork(network_id=_only_network(work).id, tag=wanted.tag)
    network = find(work, "Network", NETWORKS, wanted.network_id)
    choices.check_network(work, f"{WHERE}.net_id", network)
    if wanted.fixed_ip is not None:
        address, held = choices.address_on(work, f"{WHERE}.fixed_ips[0].ip_address", network, wanted.fixed_ip)
        if held:
            raise Conflict(f"Fixed IP address {address} is already in use on network {network.id}.")
    return wanted


def _only_network(work: NetworkWork) -> Network:
    found = choices.usable_networks(work)
    if not found:
        raise BadRequest(NO_NETWORK.format(work.caller.project_id))
    if len(found) > 1:
        raise BadRequest(choices.AMBIGUOUS)
    return found[0]


def _as_of_build(wanted: WantedInterface, attempt: int, one: RequestedNetwork) -> WantedPorts:
    return WantedPorts(
        instance=wanted.instance,
        attempt=attempt,
        project_id=wanted.project_id,
        is_admin=False,
        host=wanted.host,
        zone=wanted.zone,
        networks="named",
        named=(one,),
        security_groups=(),
    )
