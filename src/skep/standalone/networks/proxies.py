"""What old clients ask the compute API for, answered by the network service: its units of work, in Nova's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from skep.database import Connection
from skep.database.api import network_rows, server_ports
from skep.database.api.network_rows import FLOATING_IPS, NETWORKS, SECURITY_GROUP_RULES, SECURITY_GROUPS
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, QuotaExceeded
from skep.domain.ids import InstanceUuid
from skep.domain.networking import FloatingIp, SecurityGroup
from skep.domain.vifs import Vif
from skep.neighbours.networks.base import FloatingOfServer, GroupOfServer, NamedNetwork, WantedRule, id_said
from skep.standalone.networks import addresses_of_servers, default_groups, floating_ips, quotas, security_groups
from skep.standalone.networks.bodies import NewSecurityGroup, NewSecurityGroupRule, SecurityGroupChanges
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.refusals import InTheWay
from skep.standalone.networks.resources import check_owner, find, fresh
from skep.standalone.networks.settings import NetworksSettings

T = TypeVar("T")


class EmbeddedProxies:
    """What old clients ask for, over the tables of the embedded network service."""

    def __init__(self, settings: NetworksSettings, database: Database, clock: Clock) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock

    async def list_groups(self, context: RequestContext, _token: str, *, of_all: bool) -> list[GroupOfServer]:
        """Return the groups of a project, or of all."""
        if not await self._look(context, default_groups.is_there):
            await self._change(context, lambda work: default_groups.ensure(work, work.caller.project_id))
        of_project = {} if of_all and context.is_admin else {"project_id": context.project_id}

        def unit(work: NetworkWork) -> list[GroupOfServer]:
            return with_rules(work.connection, network_rows.where(work.connection, SECURITY_GROUPS, **of_project))

        return await self._look(context, unit)

    async def group(self, group: str, context: RequestContext, _token: str) -> GroupOfServer:
        """Return a group."""
        return await self._look(context, lambda work: _shown(work, _group(work, group)))

    async def create_group(self, name: str, description: str, context: RequestContext, _token: str) -> GroupOfServer:
        """Make a group."""

        def unit(work: NetworkWork) -> GroupOfServer:
            quotas.check(work, "security_group", work.caller.project_id)
            said = NewSecurityGroup(name=name, description=description)
            base = fresh(work, work.caller.project_id, name=name, description=description)
            return _shown(work, security_groups.create_group(work, said, base))

        return await self._change(context, unit, intake=True)

    async def update_group(
        self, group: str, name: str, description: str, context: RequestContext, _token: str
    ) -> GroupOfServer:
        """Change a group."""

        def unit(work: NetworkWork) -> GroupOfServer:
            changes = SecurityGroupChanges(name=name, description=description)
            return _shown(work, security_groups.update_group(work, _group(work, group), changes))

        return await self._change(context, unit)

    async def delete_group(self, group: str, context: RequestContext, _token: str) -> None:
        """Delete a group."""
        await self._change(context, lambda work: security_groups.delete_group(work, _group(work, group)))

    async def create_rule(self, rule: WantedRule, context: RequestContext, _token: str) -> tuple[str, GroupOfServer]:
        """Make a rule."""

        def unit(work: NetworkWork) -> tuple[str, GroupOfServer]:
            group = _group(work, rule.group)
            quotas.check(work, "security_group_rule", group.project_id)
            made = security_groups.create_rule(work, _new_rule(rule), fresh(work, group.project_id))
            return made.id, _shown(work, group)

        return await self._change(context, unit, intake=True)

    async def delete_rule(self, rule: str, context: RequestContext, _token: str) -> None:
        """Delete a rule."""

        def unit(work: NetworkWork) -> None:
            found = find(work, "Security group rule", SECURITY_GROUP_RULES, id_said(rule))
            check_owner(work, found, "delete_security_group_rule")
            security_groups.delete_rule(work, found)

        await self._change(context, unit)

    async def floating_pools(self, context: RequestContext, _token: str) -> list[str]:
        """Return the names of the external networks."""
        return await self._look(context, addresses_of_servers.pools)

    async def floating_ips(self, context: RequestContext, _token: str) -> list[FloatingOfServer]:
        """Return floating addresses."""

        def unit(work: NetworkWork) -> list[FloatingOfServer]:
            found = network_rows.where(work.connection, FLOATING_IPS, project_id=context.project_id)
            return addresses_of_servers.shown(work, found)

        return await self._look(context, unit)

    async def floating_ip(self, floating: str, context: RequestContext, _token: str) -> FloatingOfServer:
        """Return a floating address."""
        return await self._look(context, lambda work: addresses_of_servers.shown(work, [_floating(work, floating)])[0])

    async def take_floating_ip(self, pool: str | None, context: RequestContext, _token: str) -> FloatingOfServer:
        """Take a floating address."""
        return await self._change(context, lambda work: addresses_of_servers.take(work, pool), intake=True)

    async def give_floating_ip_back(self, floating: str, context: RequestContext, _token: str) -> None:
        """Give a floating address back."""
        await self._change(context, lambda work: floating_ips.delete(work, _floating(work, floating)))

    async def lead_floating_ip(
        self, instance: InstanceUuid, address: str, fixed_address: str | None, context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address to a server."""
        return await self._change_of(
            instance, context, lambda work: addresses_of_servers.lead(work, instance, address, fixed_address)
        )

    async def loosen_floating_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address nowhere."""
        return await self._change_of(
            instance, context, lambda work: addresses_of_servers.loosen(work, instance, address)
        )

    async def list_networks(self, context: RequestContext, _token: str) -> list[NamedNetwork]:
        """Return the networks that a caller sees."""
        return await self._look(context, addresses_of_servers.networks_seen)

    async def network(self, network: str, context: RequestContext, _token: str) -> NamedNetwork:
        """Return a network."""
        found = await self._look(context, lambda work: find(work, "Network", NETWORKS, network))
        return NamedNetwork(found.id, found.name)

    async def add_fixed_ip(
        self, instance: InstanceUuid, network: str, context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Give a server one more address."""
        return await self._change_of(
            instance, context, lambda work: addresses_of_servers.add(work, instance, network), intake=True
        )

    async def remove_fixed_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, _token: str
    ) -> tuple[Vif, ...]:
        """Take an address from a server."""
        return await self._change_of(
            instance, context, lambda work: addresses_of_servers.remove(work, instance, address)
        )

    async def _look(self, context: RequestContext, unit: Callable[[NetworkWork], T]) -> T:
        """Do a unit of work that only looks, for a user."""
        caller = caller_of(context)
        return await self._database.read(lambda connection: unit(self._work(connection, caller)))

    async def _change(self, context: RequestContext, unit: Callable[[NetworkWork], T], *, intake: bool = False) -> T:
        """Do a unit of work for a user, all of it or nothing."""
        caller = caller_of(context)

        def within(connection: Connection) -> T:
            with _as_nova_says():
                return unit(self._work(connection, caller))

        return await self._database.write(within, intake=intake)

    async def _change_of(
        self,
        instance: InstanceUuid,
        context: RequestContext,
        unit: Callable[[NetworkWork], None],
        *,
        intake: bool = False,
    ) -> tuple[Vif, ...]:
        """Do a unit of work that changes interfaces of a server; return them as they are then."""

        def within(work: NetworkWork) -> tuple[Vif, ...]:
            unit(work)
            return server_ports.vifs_of(work.connection, [instance])[instance]

        return await self._change(context, within, intake=intake)

    def _work(self, connection: Connection, caller: NetworkCaller) -> NetworkWork:
        return NetworkWork(connection=connection, caller=caller, settings=self._settings, now=self._clock.now())


def with_rules(connection: Connection, found: Sequence[SecurityGroup]) -> list[GroupOfServer]:
    """Return groups with their rules, as the compute API shows them."""
    rules = [
        rule
        for some in network_rows.portions([one.id for one in found])
        for rule in network_rows.where(connection, SECURITY_GROUP_RULES, security_group_id=some)
    ]
    remote = sorted({rule.remote_group_id for rule in rules if rule.remote_group_id is not None})
    names = {one.id: one.name for one in network_rows.by_id(connection, SECURITY_GROUPS, remote).values()}
    return [
        GroupOfServer(
            id=group.id,
            name=group.name,
            description=group.description,
            project_id=group.project_id,
            rules=tuple(rule for rule in rules if rule.security_group_id == group.id),
            names=names,
        )
        for group in found
    ]


def caller_of(context: RequestContext) -> NetworkCaller:
    """Return a user of the compute API as the network service knows him."""
    return NetworkCaller(project_id=context.project_id, is_admin=context.is_admin)


@contextlib.contextmanager
def _as_nova_says() -> Iterator[None]:
    """Turn what is in the way into Nova's errors: quota is 403, all else 400."""
    try:
        yield
    except InTheWay as error:
        raise (QuotaExceeded if error.type == quotas.OVER_QUOTA else BadRequest)(str(error)) from error


def _shown(work: NetworkWork, group: SecurityGroup) -> GroupOfServer:
    [shown] = with_rules(work.connection, [group])
    return shown


def _group(work: NetworkWork, group_id: str) -> SecurityGroup:
    return find(work, "Security group", SECURITY_GROUPS, id_said(group_id))


def _floating(work: NetworkWork, floating_id: str) -> FloatingIp:
    return find(work, "Floating IP", FLOATING_IPS, floating_id)


def _new_rule(rule: WantedRule) -> NewSecurityGroupRule:
    """Return a rule as the network service takes it. Raises BadRequest."""
    return NewSecurityGroupRule(
        security_group_id=rule.group,
        direction="ingress",
        ethertype=rule.ethertype,
        protocol=rule.protocol,
        port_range_min=rule.ports[0],
        port_range_max=rule.ports[1],
        remote_ip_prefix=rule.cidr,
        remote_group_id=rule.remote_group,
    )
