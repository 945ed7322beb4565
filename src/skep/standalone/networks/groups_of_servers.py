"""Security groups of servers: all ports of a server get one, or lose it."""

from __future__ import annotations

from skep.database.api import network_rows, port_addresses, port_groups, server_ports
from skep.database.api.network_rows import SECURITY_GROUPS
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.networking import Port, SecurityGroup
from skep.neighbours.networks.base import GroupChange
from skep.standalone.networks import ports
from skep.standalone.networks.bodies import PortChanges
from skep.standalone.networks.callers import NetworkWork


def change(work: NetworkWork, wanted: GroupChange) -> None:
    """Carry a change out. The server is noted with its ports.

    Raises NotFound, Conflict, BadRequest.
    """
    group = _group(work, wanted.group)
    of_server = server_ports.ports_of(work.connection, [wanted.instance])
    if not of_server:
        raise NotFound(f"Instance {wanted.instance} has no ports.")
    groups = port_groups.of_ports(work.connection, [port.id for port in of_server])
    concerned = [port for port in of_server if (group.id in groups[port.id]) is not wanted.added]
    if wanted.added:
        _check_may_have(work, concerned, group, groups)
    elif not concerned:
        raise NotFound(f"Security group {wanted.group} is not associated with instance {wanted.instance}.")
    for port in concerned:
        others = [one for one in groups[port.id] if one != group.id]
        after = (*others, group.id) if wanted.added else tuple(others)
        ports.update(work, port, PortChanges(security_groups=after))


def only_named(work: NetworkWork, name: str) -> SecurityGroup | None:
    """Return the group of the caller's project with a name.

    Raises Conflict where several have it.
    """
    found = network_rows.where(work.connection, SECURITY_GROUPS, project_id=work.caller.project_id, name=name)
    if len(found) > 1:
        raise Conflict(f"Multiple security_groups found matching '{name}'. Use an ID to be more specific.")
    return found[0] if found else None


def _group(work: NetworkWork, name: str) -> SecurityGroup:
    """Return the group that an id means, or else the only one of the caller's project with this name."""
    seen_by = None if work.caller.is_admin else work.caller.project_id
    by_id = network_rows.get(work.connection, SECURITY_GROUPS, name, seen_by)
    if by_id is not None:
        return by_id
    found = only_named(work, name)
    if found is None:
        raise NotFound(f"Security group {name} not found for project {work.caller.project_id}.")
    return found


def _check_may_have(
    work: NetworkWork, concerned: list[Port], group: SecurityGroup, groups: dict[str, list[str]]
) -> None:
    """Raise BadRequest for a port that has no groups, Conflict where groups do not go together."""
    addresses = port_addresses.of_ports(work.connection, [port.id for port in concerned])
    others = sorted({one for port in concerned for one in groups[port.id]})
    if any(not port.port_security_enabled or not addresses[port.id] for port in concerned):
        raise BadRequest(f"Network requires port_security_enabled and subnet to apply security group {group.name}.")
    for other in network_rows.by_id(work.connection, SECURITY_GROUPS, others).values():
        if other.stateful != group.stateful:
            raise Conflict("Stateful and stateless security groups cannot be mixed on one port.")
