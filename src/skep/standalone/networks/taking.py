"""Ports that servers take: a new one on a network, or one that a user brings."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET

from skep.database.api import instance_mappings, server_ports
from skep.database.api.network_rows import PORTS
from skep.domain.networking import Port
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork, Vif
from skep.neighbours.networks.base import WantedPorts
from skep.standalone.networks import default_groups, ports, quotas, topologies
from skep.standalone.networks.bodies import NewPort, WantedIp
from skep.standalone.networks.callers import NetworkWork
from skep.standalone.networks.refusals import InTheWay, Missing
from skep.standalone.networks.resources import changed, find, fresh, store


def allocated(work: NetworkWork, wanted: WantedPorts) -> tuple[Vif, ...]:
    """Make the ports of one server, or bind those that an attempt before made; none for a server that is gone."""
    if not _counts(work, wanted):
        return ()
    if server_ports.ports_of(work.connection, [wanted.instance]):
        server_ports.bind(work.connection, {wanted.instance: wanted.host}, {}, work.now)
    else:
        for position, one in enumerate(_wanted_networks(work, wanted)):
            take(work, wanted, one, position)
    return server_ports.vifs_of(work.connection, [wanted.instance])[wanted.instance]


def renewed(work: NetworkWork, wanted: WantedPorts, kept: Collection[str]) -> tuple[Vif, ...] | None:
    """Delete those of these ports that were made for a server, and make what is missing.

    None for a server that is gone, or whose attempt was raised.
    """
    if not _counts(work, wanted):
        return None
    found = server_ports.ports_of(work.connection, [wanted.instance])
    old = [port for port in found if port.id in kept and port.made_for_server]
    server_ports.remove(work.connection, old, work.now)
    server_ports.bind(work.connection, {wanted.instance: wanted.host}, {}, work.now)
    gone = {port.id for port in old}
    positions = {port.server_position for port in found if port.id not in gone}
    for position, one in enumerate(_wanted_networks(work, wanted)):
        if position not in positions:
            take(work, wanted, one, position)
    return server_ports.vifs_of(work.connection, [wanted.instance])[wanted.instance]


def _counts(work: NetworkWork, wanted: WantedPorts) -> bool:
    """Tell whether a server lives, is not to be deleted, and has this attempt."""
    mapping = instance_mappings.get(work.connection, wanted.instance)
    living = mapping is not None and not mapping.delete_intent_at and not mapping.deleted_at
    return living and mapping is not None and mapping.attempt == wanted.attempt


def _wanted_networks(work: NetworkWork, wanted: WantedPorts) -> Sequence[RequestedNetwork]:
    if wanted.networks == NETWORKS_NAMED:
        return wanted.named
    return (RequestedNetwork(network_id=topologies.ensure(work, wanted.project_id)),)


def take(work: NetworkWork, wanted: WantedPorts, one: RequestedNetwork, position: int) -> None:
    """Make one port for a server, or take a user's."""
    if one.port_id is not None:
        port = own_port(work, wanted.project_id, one.port_id)
        if port.device_id:
            raise InTheWay("PortInUse", f"Port {port.id} is still in use.")
        port = changed(work, port, device_id=wanted.instance, device_owner=f"compute:{wanted.zone}")
    else:
        assert one.network_id is not None, "it was chosen"
        port = _new(work, wanted, one.network_id, one.fixed_ip)
    values = {
        "binding_host_id": wanted.host,
        "server": wanted.instance,
        "server_position": position,
        "made_for_server": one.port_id is None,
        "device_tag": one.tag,
    }
    store(work, PORTS, msgspec.structs.replace(port, **values))


def _new(work: NetworkWork, wanted: WantedPorts, network_id: str, fixed_ip: str | None) -> Port:
    quotas.check(work, "port", wanted.project_id)
    groups = tuple(
        default_groups.ensure(work, wanted.project_id).id if one == default_groups.NAME else one
        for one in wanted.security_groups
    )
    said = NewPort(
        network_id=network_id,
        fixed_ips=UNSET if fixed_ip is None else (WantedIp(ip_address=fixed_ip),),
        security_groups=groups or UNSET,
        device_id=wanted.instance,
        device_owner=f"compute:{wanted.zone}",
    )
    return ports.create(work, said, fresh(work, wanted.project_id))


def own_port(work: NetworkWork, project_id: str, port_id: str) -> Port:
    """Return a port of a project. Who owns a network sees the ports of others on it, but has no server use them.

    Raises Missing.
    """
    port = find(work, "Port", PORTS, port_id)
    if port.project_id != project_id:
        raise Missing("Port", port_id)
    return port
