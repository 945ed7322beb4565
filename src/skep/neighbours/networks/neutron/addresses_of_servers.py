"""AddressesOfUser that old clients give to servers by the compute API: floating ones, and more fixed ones."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import msgspec

from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import InstanceUuid
from skep.neighbours.networks.base import FloatingOfServer
from skep.neighbours.networks.neutron.calls import NO_MORE_ADDRESSES, NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.forms import (
    FLOATING,
    NETWORKS,
    PORTS,
    SUBNETS,
    NeutronFloating,
    NeutronNetwork,
    NeutronPort,
)
from skep.neighbours.networks.neutron.interfaces import ports_of
from skep.neighbours.networks.neutron.ports import ServerPorts


async def external(user: NeutronCalls) -> list[NeutronNetwork]:
    """Return the networks from which floating addresses come."""
    return await user.listed(NETWORKS, ("router:external", "true"))


class AddressesOfUser(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses as one user gives and takes them. Each raises NeutronRefused and Unavailable, beside what it says."""

    skep: NeutronCalls
    ports: ServerPorts
    user: NeutronCalls
    """With his own token."""
    project_id: str | None
    """Whose floating addresses he names; None: those of all projects."""

    async def shown(self, found: Sequence[NeutronFloating]) -> list[FloatingOfServer]:
        """Return floating addresses with the servers that they lead to."""
        networks = await self.skep.listed(NETWORKS, values=[one.floating_network_id for one in found])
        names = {one.id: one.name or one.id for one in networks}
        led_to = [one.port_id for one in found if one.port_id is not None]
        servers = {
            port.id: port.device_id for port in await self.skep.listed(PORTS, values=led_to) if port.label is not None
        }
        return [
            FloatingOfServer(
                id=one.id,
                address=one.floating_ip_address,
                pool=names.get(one.floating_network_id, one.floating_network_id),
                fixed_address=one.fixed_ip_address,
                instance=servers.get(one.port_id or ""),
            )
            for one in found
        ]

    async def take(self, pool: str | None) -> FloatingOfServer:
        """Take a floating address from a pool. Raises NotFound, BadRequest."""
        network = await self._pool(pool)
        try:
            made = await self.user.made(FLOATING, floating_network_id=network.id)
        except NeutronRefused as error:
            if error.type not in NO_MORE_ADDRESSES:
                raise
            raise NotFound(f"No more floating IPs in pool {network.name or network.id}.") from error
        return (await self.shown([made]))[0]

    async def lead(self, instance: InstanceUuid, address: str, fixed_address: str | None) -> None:
        """Lead a floating address to a server. Raises NotFound, BadRequest."""
        floating = await self._by_address(address)
        held = await self._held(instance)
        if not held:
            raise BadRequest("No fixed IPs associated to instance")
        fixed = fixed_address or next((one for one in held if ip_address(one).version == 4), None)
        if fixed is None:
            raise BadRequest(
                f"Unable to associate floating IP {address} to any fixed IPs for instance {instance}. Instance has no "
                "fixed IPv4 addresses to associate."
            )
        if fixed not in held:
            raise BadRequest("Specified fixed address not assigned to instance")
        try:
            fields = {"port_id": held[fixed].id, "fixed_ip_address": fixed}
            await self.user.changed(FLOATING, floating.id, fields)
        except NeutronRefused as error:
            if error.status != 404:
                raise
            raise BadRequest(f"Unable to associate floating IP {address} to fixed IP {fixed}: {error}") from error

    async def loosen(self, instance: InstanceUuid, address: str) -> None:
        """Lead a floating address of a server nowhere. Raises NotFound, Conflict."""
        floating = await self._by_address(address)
        [shown] = await self.shown([floating])
        if shown.instance != instance:
            raise Conflict(f"Floating IP {address} is not associated with instance {instance}.")
        await self.user.changed(FLOATING, floating.id, {"port_id": None})

    async def add(self, instance: InstanceUuid, network_id: str) -> None:
        """Give a server one more address on a network, of the first subnet that has one. Raises NotFound, BadRequest.

        Skep's own user asks for it: on a shared network only its owner says what addresses a port has.
        """
        of_server = (await ports_of(self.skep, [instance]))[instance]
        port = next((one for one in of_server if one.network_id == network_id), None)
        if port is None:
            raise NotFound(f"Network {network_id[:80]} could not be found for instance {instance}.")
        subnets = await self.skep.listed(SUBNETS, ("network_id", network_id))
        refusal = NeutronRefused(409, NO_MORE_ADDRESSES[0], f"No more IP addresses available on network {network_id}.")
        for subnet in sorted(subnets, key=lambda one: (one.ip_version, one.id)):

            def fields(found: NeutronPort, subnet_id: str = subnet.id) -> dict[str, Any]:
                return {"fixed_ips": [*msgspec.to_builtins(found.fixed_ips), {"subnet_id": subnet_id}]}

            try:
                await self.ports.change(port.id, fields)
            except NeutronRefused as error:
                if error.type not in NO_MORE_ADDRESSES:
                    raise
                refusal = error
            else:
                return
        raise refusal

    async def remove(self, instance: InstanceUuid, address: str) -> None:
        """Take an address from a server. Raises BadRequest."""

        def fields(found: NeutronPort) -> dict[str, Any]:
            others = [one for one in found.fixed_ips if one.ip_address != address]
            return {"fixed_ips": msgspec.to_builtins(others)}

        port = (await self._held(instance)).get(address)
        if port is None:
            raise BadRequest(f"Fixed IP address {address} could not be found for instance {instance}.")
        await self.ports.change(port.id, fields)

    async def _held(self, instance: InstanceUuid) -> dict[str, NeutronPort]:
        """Return the fixed addresses of a server, in the order of its ports, each with its port."""
        held: dict[str, NeutronPort] = {}
        for port in (await ports_of(self.skep, [instance]))[instance]:
            for one in port.fixed_ips:
                held.setdefault(one.ip_address, port)
        return held

    async def _pool(self, said: str | None) -> NeutronNetwork:
        """Return the external network that is meant. Raises NotFound, and BadRequest where several have the name."""
        every = await external(self.user)
        if said is None:
            found = [one for one in every if one.is_default] or every
        else:
            found = [one for one in every if one.id == said] or [one for one in every if one.name == said]
        if not found or (said is None and len(found) > 1):
            raise NotFound("Floating IP pool not found.")
        if len(found) > 1:
            raise BadRequest(f"Multiple floating IP pools matches found for name '{said}'")
        return found[0]

    async def _by_address(self, address: str) -> NeutronFloating:
        """Return the floating address that is meant. Raises NotFound, and BadRequest where several are meant."""
        of_project = () if self.project_id is None else (("project_id", self.project_id),)
        found = await self.user.listed(FLOATING, ("floating_ip_address", address), *of_project)
        if not found:
            raise NotFound(f"Floating IP not found for address {address}.")
        if len(found) > 1:
            raise BadRequest(f"Multiple floating IPs are found for address {address}.")
        return found[0]
