"""Neutron behind both of Skep's ports towards networks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

import msgspec
import structlog

from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.vifs import Vif, VifBeside
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.at_once import at_once
from skep.neighbours.networks.base import (
    NO_PROVIDERS,
    NO_PROVIDERS_OF_SERVERS,
    NOT_BESIDE,
    AskedNetworks,
    ChosenNetworks,
    GroupChange,
    GroupOfServer,
    PortsOfServers,
    PortsOutcome,
    ProvidersOfServers,
    WantedInterface,
    WantedPorts,
)
from skep.neighbours.networks.hosts import BroughtByOthers
from skep.neighbours.networks.neutron import attaching, choosing, groups, interfaces
from skep.neighbours.networks.neutron.bindings import PortBindings
from skep.neighbours.networks.neutron.building import Building, PortsMade
from skep.neighbours.networks.neutron.calls import NeutronCalls, NeutronRefused
from skep.neighbours.networks.neutron.choosing import Chooser
from skep.neighbours.networks.neutron.forms import GROUPS, LABELLED_PORTS, NeutronPort
from skep.neighbours.networks.neutron.ports import TRIES
from skep.neighbours.networks.neutron.proxies import NeutronProxies

log = structlog.get_logger("skep.neighbours")

PAGE = 1000
"""Ports of one answer, where all are listed."""


class NeutronNetworks(BroughtByOthers, NeutronProxies):
    """What Skep asks of Neutron's v2.0 API.

    What users name is looked up with their own tokens; ports are made, bound and given up by Skep's own user, who has
    to be an admin there. It knows of ports only: of a lower attempt, or a server that is gone, it is not to be asked.
    """

    elsewhere = True

    def __init__(self, skep: NeutronCalls) -> None:
        super().__init__(skep)
        self._building = Building(self.skep, self._ports)
        self._bindings = PortBindings(self.skep, self._ports)
        self._groups = groups.GroupsOfServers(self.skep, self._ports)

    async def choose(self, asked: AskedNetworks, context: RequestContext, token: str) -> ChosenNetworks:
        """Return what the servers of a create are to have."""
        with _told_to_users():
            return await choosing.chosen(self._chooser(context, token), asked)

    async def attach(self, wanted: WantedInterface, context: RequestContext, token: str) -> Vif:
        """Give a server an interface."""
        chooser = msgspec.structs.replace(self._chooser(context, token), project_id=wanted.project_id)
        with _told_to_users():
            port = await attaching.attach(self.skep, self._ports, chooser, wanted)
            vifs = await interfaces.vifs_of(self.skep, [port])
            if port.id not in vifs:
                raise NotFound(f"Network {port.network_id} could not be found.")
            return vifs[port.id]

    async def detach(self, instance: InstanceUuid, port_id: str, _context: RequestContext, _token: str) -> None:
        """Take an interface from a server."""
        with _told_to_users():
            await attaching.detach(self.skep, self._ports, instance, port_id)

    async def release_port(self, instance: InstanceUuid, port_id: str) -> None:
        """Take an interface from a server."""
        with _told_to_skep(), contextlib.suppress(NotFound):
            await attaching.detach(self.skep, self._ports, instance, port_id)

    async def set_group(self, change: GroupChange, context: RequestContext, token: str) -> tuple[Vif, ...]:
        """Give a group to the ports of a server, or take it from them."""
        with _told_to_users():
            await self._groups.change(self._chooser(context, token), change)
            return await self._vifs(change.instance)

    async def security_groups(self, ids: Sequence[str], _context: RequestContext, token: str) -> list[GroupOfServer]:
        """Return security groups with their rules."""
        with _told_to_users():
            return await groups.described(self.skep, await self.skep.of_user(token).listed(GROUPS, values=ids))

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsOutcome]:
        """Make what is missing of the ports of servers."""
        with _told_to_skep():
            outcomes = await self._building.allocate(wanted)
            made = {
                one.instance: outcome.new
                for one, outcome in zip(wanted, outcomes, strict=True)
                if isinstance(outcome, PortsMade)
            }
            new = {one: ports for one, ports in made.items() if ports is not None}
            vifs = {
                **await interfaces.of_new(self.skep, new),
                **await interfaces.of_servers(self.skep, [one for one in made if one not in new]),
            }
        return [
            vifs[one.instance] if isinstance(outcome, PortsMade) else outcome
            for one, outcome in zip(wanted, outcomes, strict=True)
        ]

    async def renew(self, wanted: WantedPorts, kept: Collection[str]) -> PortsOutcome | None:
        """Delete ports that were made for a server, and make them anew."""
        with _told_to_skep():
            found = (await interfaces.ports_of(self.skep, [wanted.instance]))[wanted.instance]
            old = [port for port in found if port.id in kept and port.label is not None and port.label.made]
            if not all(await at_once(self._given_up(wanted.instance, port) for port in old)):
                raise Unavailable(f"ports are not released by {SERVICE} yet")
        [made] = await self.allocate([wanted])
        return made

    async def release_those(self, may: Callable[[], Awaitable[Collection[InstanceUuid]]]) -> None:
        """Delete the ports that were made for servers, and give those of users back.

        `may` tells of which servers; it is asked again once the ports were looked up, for a port that changes after
        that is not released.
        """
        with _told_to_skep():
            for _ in range(TRIES):
                found = await interfaces.ports_of(self.skep, [*await may()])
                still = await may() if any(found.values()) else ()
                ports = [(one, port) for one in found if one in still for port in found[one]]
                if all(await at_once(self._given_up(one, port) for one, port in ports)):
                    return
        raise Unavailable(f"ports are not released by {SERVICE} yet")

    async def drop_doubles(self, servers: Sequence[InstanceUuid]) -> None:
        """Delete what builds made twice."""
        with _told_to_skep():
            found = await interfaces.ports_of(self.skep, servers)
            doubles = [(one, port) for one, ports in found.items() for port in interfaces.doubles_among(ports)]
            await at_once(self._given_up(one, port) for one, port in doubles)

    async def _given_up(self, instance: InstanceUuid, port: NeutronPort) -> bool:
        """Give a port up unless it changed; False where it did, or where Neutron keeps it: others go on."""
        try:
            brought = port.label is not None and not port.label.made
            # Before: a port that is given back may be another server's at once.
            if brought and await self._bindings.are_many() and await self._bindings.clear(port):
                return False
            return await self._ports.give_up_unchanged(instance, port)
        except NeutronRefused as error:
            log.warning("port not released", instance=instance, port=port.id, error=str(error))
            return False

    async def held(self) -> dict[InstanceUuid, list[str]]:
        """Return the ports of all servers, by their servers."""
        found: dict[InstanceUuid, list[str]] = {}
        with _told_to_skep():
            asked = (("fields", "id"), ("fields", "device_id"), ("fields", "binding:profile"), ("limit", str(PAGE)))
            for port in await self.skep.listed(LABELLED_PORTS, *asked):
                if port.label is not None:
                    found.setdefault(InstanceUuid(port.device_id), []).append(port.id)
        return found

    async def bind(
        self,
        hosts: Mapping[InstanceUuid, str],
        beside: Mapping[InstanceUuid, str] = NOT_BESIDE,
        providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS,
    ) -> None:
        """Bind the ports of servers to their hosts."""
        with _told_to_skep():
            found = await interfaces.ports_of(self.skep, list(hosts))
            pairs = [(one, port) for one, ports in found.items() for port in ports]
            if pairs and await self._bindings.are_many():
                binding = (
                    self._bindings.bind(port, hosts[one], beside.get(one), providers.get(one, NO_PROVIDERS))
                    for one, port in pairs
                )
                await at_once(binding)
            else:
                await at_once(
                    self._ports.bind(port, hosts[one], providers.get(one, NO_PROVIDERS)) for one, port in pairs
                )

    async def bind_beside(
        self, hosts: Mapping[InstanceUuid, str], providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS
    ) -> dict[InstanceUuid, str]:
        """Bind the ports of servers to one more host."""
        with _told_to_skep():
            found = await interfaces.ports_of(self.skep, list(hosts))
            pairs = [(one, port) for one, ports in found.items() for port in ports]
            if not pairs or not await self._bindings.are_many():
                return {}
            binding = (
                self._bindings.bind_beside(port, hosts[one], providers.get(one, NO_PROVIDERS)) for one, port in pairs
            )
            refused = await at_once(binding)
        return {one: why for (one, _), why in zip(pairs, refused, strict=True) if why is not None}

    async def plugged_beside(self, hosts: Mapping[InstanceUuid, str]) -> dict[InstanceUuid, dict[str, VifBeside]]:
        """Return how ports of servers are plugged on hosts that may get them."""
        with _told_to_skep():
            found = await interfaces.ports_of(self.skep, list(hosts))
            pairs = [(one, port) for one, ports in found.items() for port in ports]
            if not pairs or not await self._bindings.are_many():
                return {}
            plugged = await at_once(self._bindings.plugged(port, hosts[one]) for one, port in pairs)
        beside: dict[InstanceUuid, dict[str, VifBeside]] = {one: {} for one in found}
        for (one, port), there in zip(pairs, plugged, strict=True):
            if there is not None:
                beside[one][port.id] = there
        return beside

    async def bound_to(
        self, servers: Sequence[InstanceUuid], several: Collection[InstanceUuid]
    ) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
        """Return to which hosts the ports of servers are bound."""
        with _told_to_skep():
            return await self._hosts(await interfaces.ports_of(self.skep, servers), several)

    async def look_at(
        self, servers: Sequence[InstanceUuid], bound: Collection[InstanceUuid], several: Collection[InstanceUuid]
    ) -> PortsOfServers:
        """Return the interfaces of servers, and the hosts of the ports of some: their ports are listed once."""
        with _told_to_skep():
            found = await interfaces.ports_of(self.skep, servers)
            of_bound = {one: found[one] for one in bound}
            vifs, hosts = await asyncio.gather(
                interfaces.shown(self.skep, found), self._hosts(of_bound, [one for one in several if one in of_bound])
            )
            return PortsOfServers(vifs=vifs, hosts=hosts)

    async def _hosts(
        self, found: Mapping[InstanceUuid, Sequence[NeutronPort]], several: Collection[InstanceUuid]
    ) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
        bound: dict[InstanceUuid, dict[str, tuple[str, ...]]] = {
            one: {port.id: (port.host_id or "",) for port in ports} for one, ports in found.items()
        }
        looked_at = [(one, port) for one in several for port in found.get(one, ())]
        if looked_at and await self._bindings.are_many():
            hosts = await at_once(self._bindings.hosts(port) for _, port in looked_at)
            for (one, port), of_it in zip(looked_at, hosts, strict=True):
                bound[one][port.id] = of_it
        return bound

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
        """Return the interfaces of servers."""
        with _told_to_skep():
            return await interfaces.of_servers(self.skep, servers)

    def _chooser(self, context: RequestContext, token: str) -> Chooser:
        return Chooser(
            calls=self.skep.of_user(token),
            of_skep=self.skep,
            project_id=context.project_id,
            is_admin=context.is_admin,
        )


@contextlib.contextmanager
def _told_to_users() -> Iterator[None]:
    """Turn a refusal into an error that users are told."""
    try:
        yield
    except NeutronRefused as error:
        raise error.for_user from error


@contextlib.contextmanager
def _told_to_skep() -> Iterator[None]:
    """Turn a refusal of what cannot be refused into an error after which it is asked again."""
    try:
        yield
    except NeutronRefused as error:
        raise Unavailable(f"{SERVICE} refuses it to Skep's own user: {error}") from error
