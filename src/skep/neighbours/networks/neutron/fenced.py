"""Neutron behind both of Skep's ports towards networks.

Neutron knows no attempts and no servers. So what servers have of it is noted before it is asked for, where attempts and
ends of servers are known: whatever dies then, what may be there is looked for, and goes with its server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.vifs import LostPort, Vif
from skep.neighbours.at_once import AT_ONCE
from skep.neighbours.networks.base import (
    NO_PROVIDERS_OF_SERVERS,
    NOT_BESIDE,
    GroupChange,
    PortsAwaited,
    PortsOutcome,
    ProvidersOfServers,
    WantedInterface,
    WantedPorts,
)
from skep.neighbours.networks.neutron.calls import NeutronCalls
from skep.neighbours.networks.neutron.service import NeutronNetworks
from skep.neighbours.service_session import ServiceSession


class PortLedger(Protocol):
    """Notes which servers may have ports, by the rules of the mappings of servers."""

    async def hold(self, wanted: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Note that attempts of builds make ports; return the servers for which they may: others have gone on."""
        ...

    async def hold_living(self, instance: InstanceUuid) -> bool:
        """Note that a server that is there gets a port, or that what it has changes; return whether it stays.

        Its row is compared with its ports soon after: an answer may be lost, and two changes may cross.
        """
        ...

    async def releasable(self, held: Mapping[InstanceUuid, int]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports and may lose them.

        They are gone, or no cell has them and the attempt is still the one that found so.
        """
        ...

    async def hold_ended(self, servers: Mapping[InstanceUuid, bool]) -> Collection[InstanceUuid]:
        """Return those servers that may have ports; those of which it is said that they have some are noted."""
        ...

    async def look_soon(self, servers: Collection[InstanceUuid]) -> None:
        """Have the rows of servers compared with their ports soon."""
        ...

    async def gone(self, servers: Collection[InstanceUuid]) -> Collection[InstanceUuid]:
        """Return those servers that do not live."""
        ...

    async def hold_gone(self, instance: InstanceUuid) -> bool:
        """Note that a server may have ports that is gone; False where it lives, or was none of this cloud's."""
        ...


class FencedNetworks(NeutronNetworks):
    """A `NetworksOfUsers` and `NetworkPorts` over Neutron."""

    def __init__(self, session: ServiceSession, ledger: PortLedger, endpoint: str = "") -> None:
        """`endpoint` is Neutron's address without `/v2.0`; empty: what the catalogue says."""
        super().__init__(NeutronCalls(session, endpoint))
        self._ledger = ledger

    async def attach(self, wanted: WantedInterface, context: RequestContext, token: str) -> Vif:
        """Give a server an interface."""
        if not await self._ledger.hold_living(wanted.instance):
            raise NotFound(f"Instance {wanted.instance} could not be found.")
        return await super().attach(wanted, context, token)

    async def detach(self, instance: InstanceUuid, port_id: str, context: RequestContext, token: str) -> None:
        """Take an interface from a server."""
        await self._ledger.hold_living(instance)
        await super().detach(instance, port_id, context, token)

    async def release_port(self, instance: InstanceUuid, port_id: str) -> None:
        """Take an interface from a server."""
        await self._ledger.hold_living(instance)
        await super().release_port(instance, port_id)

    async def set_group(self, change: GroupChange, context: RequestContext, token: str) -> tuple[Vif, ...]:
        """Give a group to the ports of a server, or take it from them."""
        await self._ledger.hold_living(change.instance)
        return await super().set_group(change, context, token)

    async def lead_floating_ip(
        self, instance: InstanceUuid, address: str, fixed_address: str | None, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address to a server."""
        await self._ledger.hold_living(instance)
        return await super().lead_floating_ip(instance, address, fixed_address, context, token)

    async def loosen_floating_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead a floating address nowhere."""
        await self._ledger.hold_living(instance)
        return await super().loosen_floating_ip(instance, address, context, token)

    async def add_fixed_ip(
        self, instance: InstanceUuid, network: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Give a server one more address."""
        await self._ledger.hold_living(instance)
        return await super().add_fixed_ip(instance, network, context, token)

    async def remove_fixed_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Take an address from a server."""
        await self._ledger.hold_living(instance)
        return await super().remove_fixed_ip(instance, address, context, token)

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsOutcome]:
        """Make what is missing of the ports of servers: of a few at a time, which are noted just before.

        Where nothing is known of some, the others are not asked for in this turn.
        """
        asked = [one for one in wanted if one.networks != "none"]
        made: dict[InstanceUuid, PortsOutcome] = {}
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            may = await self._ledger.hold({one.instance: one.attempt for one in some})
            mine = [one for one in some if one.instance in may]
            try:
                made |= zip([one.instance for one in mine], await super().allocate(mine), strict=True)
            except Unavailable as error:
                made |= {one.instance: PortsAwaited(str(error)) for one in asked[first:] if one.instance not in made}
                break
        return [made.get(one.instance, ()) for one in wanted]

    async def renew(self, wanted: WantedPorts, kept: Collection[str]) -> PortsOutcome | None:
        """Make the ports of a server anew."""
        if wanted.instance not in await self._ledger.hold({wanted.instance: wanted.attempt}):
            return None
        return await super().renew(wanted, kept)

    async def release(self, held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """Delete the ports that were made for servers, and give those of users back."""
        attempts = dict(held)
        await self.release_those(lambda: self._ledger.releasable(attempts))

    async def release_ended(self, servers: Mapping[InstanceUuid, bool]) -> None:
        """Release the ports of servers that their cells have deleted: no build has them any more."""
        held = await self._ledger.hold_ended(servers)

        async def all_of_them() -> Collection[InstanceUuid]:
            return held

        await self.release_those(all_of_them)

    async def bind(
        self,
        hosts: Mapping[InstanceUuid, str],
        beside: Mapping[InstanceUuid, str] = NOT_BESIDE,
        providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS,
    ) -> None:
        """Bind the ports of servers to their hosts. How they are plugged there is for their rows to say."""
        await super().bind(hosts, beside, providers)
        await self._ledger.look_soon(hosts.keys())

    async def remake(self, _server: Instance) -> list[LostPort]:
        """Leave it: Neutron's database does not go back with Skep's, and what it does not know was deleted there."""
        return []

    async def orphans(self) -> dict[InstanceUuid, list[str]]:
        """Return the ids of the ports of servers that do not live."""
        held = await self.held()
        gone = await self._ledger.gone(held.keys()) if held else ()
        return {one: held[one] for one in held if one in gone}

    async def release_orphans(self, server: InstanceUuid) -> bool:
        """Release the ports of a server that does not live. One that this cloud never had may be another cloud's."""
        if not await self._ledger.hold_gone(server):
            return False
        await self.release([(server, 0)])
        return True
