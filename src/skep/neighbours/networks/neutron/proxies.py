"""What old clients ask the compute API for, asked of Neutron with their own tokens, in Nova's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound, QuotaExceeded
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif
from skep.neighbours.networks.base import FloatingOfServer, GroupOfServer, NamedNetwork, WantedRule, id_said
from skep.neighbours.networks.neutron import addresses_of_servers, groups, interfaces
from skep.neighbours.networks.neutron.addresses_of_servers import AddressesOfUser
from skep.neighbours.networks.neutron.calls import OVER_QUOTA, NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.forms import FLOATING, GROUPS, NETWORKS, RULES, NeutronFloating, NeutronGroup
from skep.neighbours.networks.neutron.ports import ServerPorts


class NeutronProxies:
    """Security groups, floating addresses and fixed ones, for clients that ask the compute API for them."""

    def __init__(self, skep: NeutronCalls) -> None:
        self.skep = skep
        self._ports = ServerPorts(skep)

    async def list_groups(self, context: RequestContext, token: str, *, of_all: bool) -> list[GroupOfServer]:
        """Return the groups of a project, or of all."""
        of_project = () if of_all and context.is_admin else (("project_id", context.project_id),)
        with told_as_nova_says():
            user = self.skep.of_user(token)
            return await groups.described(self.skep, await user.listed(GROUPS, *of_project))

    async def group(self, group: str, _context: RequestContext, token: str) -> GroupOfServer:
        """Return a group."""
        with told_as_nova_says():
            return await self._described(await _group(self.skep.of_user(token), group))

    async def create_group(self, name: str, description: str, _context: RequestContext, token: str) -> GroupOfServer:
        """Make a group."""
        with told_as_nova_says():
            made = await self.skep.of_user(token).made(GROUPS, name=name, description=description)
            return await self._described(made)

    async def update_group(
        self, group: str, name: str, description: str, _context: RequestContext, token: str
    ) -> GroupOfServer:
        """Change a group."""
        fields = {"name": name, "description": description}
        with told_as_nova_says():
            return await self._described(await self.skep.of_user(token).changed(GROUPS, id_said(group), fields))

    async def delete_group(self, group: str, _context: RequestContext, token: str) -> None:
        """Delete a group."""
        with told_as_nova_says():
            if not await self.skep.of_user(token).deleted(GROUPS, id_said(group)):
                raise NotFound(f"Security group {group} could not be found.")

    async def create_rule(self, rule: WantedRule, _context: RequestContext, token: str) -> tuple[str, GroupOfServer]:
        """Make a rule."""
        user = self.skep.of_user(token)
        with told_as_nova_says():
            group = await _group(user, rule.group)
            said: dict[str, Any] = {
                "security_group_id": group.id,
                "direction": "ingress",
                "ethertype": rule.ethertype,
                "protocol": rule.protocol,
                "port_range_min": rule.ports[0],
                "port_range_max": rule.ports[1],
                "remote_ip_prefix": rule.cidr,
                "remote_group_id": rule.remote_group,
            }
            made = await user.made(RULES, **{key: value for key, value in said.items() if value is not None})
            return made.id, await self._described(await _group(user, rule.group))

    async def delete_rule(self, rule: str, _context: RequestContext, token: str) -> None:
        """Delete a rule."""
        with told_as_nova_says():
            if not await self.skep.of_user(token).deleted(RULES, id_said(rule)):
                raise NotFound(f"Security group rule {rule} could not be found.")

    async def floating_pools(self, _context: RequestContext, token: str) -> list[str]:
        """Return the names of the external networks."""
        with told_as_nova_says():
            return [one.name or one.id for one in await addresses_of_servers.external(self.skep.of_user(token))]

    async def floating_ips(self, context: RequestContext, token: str) -> list[FloatingOfServer]:
        """Return floating addresses."""
        with told_as_nova_says():
            found = await self.skep.of_user(token).listed(FLOATING, ("project_id", context.project_id))
            return await self._addresses(context, token).shown(found)

    async def floating_ip(self, floating: str, context: RequestContext, token: str) -> FloatingOfServer:
        """Return a floating address."""
        with told_as_nova_says():
            found = await _floating(self.skep.of_user(token), floating)
            return (await self._addresses(context, token).shown([found]))[0]

    async def take_floating_ip(self, pool: str | None, context: RequestContext, token: str) -> FloatingOfServer:
        """Take a floating address."""
        with told_as_nova_says():
            return await self._addresses(context, token).take(pool)

    async def give_floating_ip_back(self, floating: str, _context: RequestContext, token: str) -> None:
        """Give a floating address back."""
        user = self.skep.of_user(token)
        with told_as_nova_says():
            if not await user.deleted(FLOATING, (await _floating(user, floating)).id):
                raise _no_floating(floating)

    async def lead_floating_ip(
        self, instance: InstanceUuid, address: str, fixed_address: str | None, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address to a server."""
        with told_as_nova_says():
            await self._addresses(context, token).lead(instance, address, fixed_address)
            return await self._vifs(instance)

    async def loosen_floating_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address nowhere."""
        with told_as_nova_says():
            await self._addresses(context, token).loosen(instance, address)
            return await self._vifs(instance)

    async def list_networks(self, _context: RequestContext, token: str) -> list[NamedNetwork]:
        """Return the networks that a caller sees."""
        with told_as_nova_says():
            return [NamedNetwork(one.id, one.name) for one in await self.skep.of_user(token).listed(NETWORKS)]

    async def network(self, network: str, _context: RequestContext, token: str) -> NamedNetwork:
        """Return a network."""
        with told_as_nova_says():
            found = await self.skep.of_user(token).shown(NETWORKS, network)
        if found is None:
            raise NotFound(f"Network {network[:80]} could not be found.")
        return NamedNetwork(found.id, found.name)

    async def add_fixed_ip(
        self, instance: InstanceUuid, network: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Give a server one more address."""
        with told_as_nova_says():
            await self._addresses(context, token).add(instance, network)
            return await self._vifs(instance)

    async def remove_fixed_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Take an address from a server."""
        with told_as_nova_says():
            await self._addresses(context, token).remove(instance, address)
            return await self._vifs(instance)

    def _addresses(self, context: RequestContext, token: str) -> AddressesOfUser:
        return AddressesOfUser(
            skep=self.skep,
            ports=self._ports,
            user=self.skep.of_user(token),
            project_id=None if context.is_admin else context.project_id,
        )

    async def _described(self, group: NeutronGroup) -> GroupOfServer:
        return (await groups.described(self.skep, [group]))[0]

    async def _vifs(self, instance: InstanceUuid) -> tuple[Vif, ...]:
        return (await interfaces.of_servers(self.skep, [instance]))[instance]


@contextlib.contextmanager
def told_as_nova_says() -> Iterator[None]:
    """Turn a refusal into Nova's error: quota is 403, what is in the way 400."""
    try:
        yield
    except NeutronRefused as error:
        if error.type == OVER_QUOTA:
            raise QuotaExceeded(str(error)) from error
        raise (BadRequest(str(error)) if error.status == 409 else error.for_user) from error


async def _group(user: NeutronCalls, said: str) -> NeutronGroup:
    """Return a group that a user sees. Raises BadRequest, NotFound."""
    found = await user.shown(GROUPS, id_said(said))
    if found is None:
        raise NotFound(f"Security group {said} could not be found.")
    return found


async def _floating(user: NeutronCalls, said: str) -> NeutronFloating:
    """Return a floating address that a user sees. Raises NotFound."""
    found = await user.shown(FLOATING, said)
    if found is None:
        raise _no_floating(said)
    return found


def _no_floating(said: str) -> NotFound:
    return NotFound(f"Floating IP {said[:80]} could not be found.")
