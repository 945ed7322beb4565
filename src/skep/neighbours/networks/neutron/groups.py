"""Security groups of servers: what they let through, and that all ports of a server get one, or lose it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from skep.domain.clock import Timestamp
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError
from skep.domain.networking import SecurityGroupRule
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.answers import time_of
from skep.neighbours.networks.base import GroupChange, GroupOfServer
from skep.neighbours.networks.neutron.calls import NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.choosing import Chooser
from skep.neighbours.networks.neutron.forms import GROUPS, NeutronGroup, NeutronPort, NeutronRule
from skep.neighbours.networks.neutron.interfaces import ports_of
from skep.neighbours.networks.neutron.ports import ServerPorts

log = structlog.get_logger("skep.neighbours")


async def described(skep: NeutronCalls, found: Sequence[NeutronGroup]) -> list[GroupOfServer]:
    """Return groups with the names of those that their rules name. Raises NeutronRefused, Unavailable."""
    remote = [rule.remote_group_id for one in found for rule in one.rules if rule.remote_group_id is not None]
    names = {one.id: one.name for one in await skep.listed(GROUPS, values=remote)}
    return [
        GroupOfServer(
            id=one.id,
            name=one.name,
            description=one.description or "",
            project_id=one.project_id,
            rules=tuple(_rule(rule) for rule in one.rules),
            names=names,
        )
        for one in found
    ]


def _rule(rule: NeutronRule) -> SecurityGroupRule:
    return SecurityGroupRule(
        id=rule.id,
        project_id=rule.project_id,
        description=rule.description or "",
        created_at=_time(rule.created_at),
        updated_at=_time(rule.updated_at),
        revision_number=rule.revision_number,
        security_group_id=rule.security_group_id,
        direction=rule.direction,
        ethertype=rule.ethertype,
        protocol=rule.protocol,
        port_range_min=rule.port_range_min,
        port_range_max=rule.port_range_max,
        remote_ip_prefix=rule.remote_ip_prefix,
        remote_group_id=rule.remote_group_id,
    )


def _time(text: str | None) -> int:
    return Timestamp(0) if text is None else time_of(SERVICE, text)


class GroupsOfServers:
    """Changes the groups of all ports of servers."""

    def __init__(self, skep: NeutronCalls, ports: ServerPorts) -> None:
        self._skep = skep
        self._ports = ports

    async def change(self, chooser: Chooser, wanted: GroupChange) -> None:
        """Carry a change out, all of it or nothing. Raises as `NetworksOfUsers.set_group`, and NeutronRefused.

        Where no answer comes, it may be half done: a repeat does the rest.
        """
        group = await chooser.group_named(wanted.group)
        if group is None:
            raise NotFound(f"Security group {wanted.group[:80]} not found for project {chooser.project_id}.")
        of_server = (await ports_of(self._skep, [wanted.instance]))[wanted.instance]
        if not of_server:
            raise NotFound(f"Instance {wanted.instance} has no ports.")
        concerned = [port for port in of_server if (group.id in port.security_groups) is not wanted.added]
        if wanted.added:
            await self._check_may_have(concerned, group)
        elif not concerned:
            raise NotFound(f"Security group {wanted.group[:80]} is not associated with instance {wanted.instance}.")
        done: list[NeutronPort] = []
        try:
            for port in concerned:
                await self._set(chooser.calls, port, group.id, added=wanted.added)
                done.append(port)
        except NeutronRefused:
            for port in done:
                await self._undo(chooser.calls, port, group.id, added=not wanted.added)
            raise

    async def _set(self, user: NeutronCalls, port: NeutronPort, group: str, *, added: bool) -> None:
        """Change the groups of a port with the rights of the user."""

        def fields(found: NeutronPort) -> dict[str, Any]:
            others = [one for one in found.security_groups if one != group]
            return {"security_groups": [*others, group] if added else others}

        await self._ports.change(port.id, fields, by=user)

    async def _undo(self, user: NeutronCalls, port: NeutronPort, group: str, *, added: bool) -> None:
        try:
            await self._set(user, port, group, added=added)
        except SkepError as error:
            log.warning("security group of a port not as before", port=port.id, group=group, error=str(error))

    async def _check_may_have(self, concerned: Sequence[NeutronPort], group: NeutronGroup) -> None:
        """Raise BadRequest for a port that can have no groups, Conflict where groups do not go together."""
        if any(not port.port_security_enabled or not port.has_address for port in concerned):
            raise BadRequest(f"Network requires port_security_enabled and subnet to apply security group {group.name}.")
        others = [one for port in concerned for one in port.security_groups]
        if any(other.stateful != group.stateful for other in await self._skep.listed(GROUPS, values=others)):
            raise Conflict("Stateful and stateless security groups cannot be mixed on one port.")
