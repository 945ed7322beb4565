"""The ports of servers that are built: all of a server, or none."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from skep.domain.errors import Unavailable
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork
from skep.neighbours.answers import NETWORKS as SERVICE
from skep.neighbours.at_once import at_once
from skep.neighbours.networks.base import PortsAwaited, PortsRefused, WantedPorts
from skep.neighbours.networks.neutron.calls import OVER_QUOTA, NeutronCalls, NeutronRefused, read
from skep.neighbours.networks.neutron.forms import COUNTED_PORTS, UNBOUND, NeutronKind, NeutronPort, Resource
from skep.neighbours.networks.neutron.interfaces import doubles_among, order, ports_of
from skep.neighbours.networks.neutron.ports import PortPlace, ServerPorts, check_unasking

T = TypeVar("T")

UNLIMITED = -1


class _Quota(msgspec.Struct):
    network: int = UNLIMITED
    subnet: int = UNLIMITED
    port: int = UNLIMITED


class _Topology(msgspec.Struct):
    id: str


async def room(caller: NeutronCalls, project_id: str, kind: NeutronKind[Resource] = COUNTED_PORTS) -> int | None:
    """Return how many of a kind a project may have more; None: as many as it likes.

    Raises NeutronRefused, Unavailable.
    """
    project = urllib.parse.quote(project_id, safe="")
    quota: _Quota = read((await caller.answer("GET", f"/quotas/{project}")).get("quota"), _Quota)
    limit = int(getattr(quota, kind.member))
    if limit <= UNLIMITED:
        return None
    return limit - len(await caller.listed(kind, ("project_id", project_id), ("fields", "id")))


async def check_room(caller: NeutronCalls, project_id: str, *kinds: NeutronKind[Resource]) -> None:
    """Raise NeutronRefused, as Neutron does, where a project may have no more of one of these kinds."""
    for kind in kinds:
        left = await room(caller, project_id, kind)
        if left is not None and left < 1:
            raise NeutronRefused(409, OVER_QUOTA, f"Quota exceeded for resources: ['{kind.member}'].")


async def topology(caller: NeutronCalls, project_id: str, *, dry_run: bool = False) -> str:
    """Return the network that a project has without asking for one; it is made unless it is only tried.

    Raises NeutronRefused, Unavailable.
    """
    path = f"/auto-allocated-topology/{urllib.parse.quote(project_id, safe='')}"
    answer = await caller.answer("GET", f"{path}?fields=dry-run" if dry_run else path)
    return str(read(answer.get("auto_allocated_topology"), _Topology).id)


class PortsMade(msgspec.Struct, frozen=True):
    """A server has its ports."""

    new: tuple[NeutronPort, ...] | None
    """All of them, where all were made just now and their answers say all; None: they are to be looked up."""


TO_LOOK_UP = PortsMade(None)


class Building:
    """Makes the ports of servers."""

    def __init__(self, skep: NeutronCalls, ports: ServerPorts) -> None:
        self._skep = skep
        self._ports = ports

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsRefused | PortsAwaited | PortsMade]:
        """Make what is missing of the ports of servers, all of a server or none.

        Raises Unavailable when it is not known what any of them has.
        """
        there = await ports_of(self._skep, [one.instance for one in wanted if one.networks != "none"])
        return await at_once(self._allocate(one, there.get(one.instance, [])) for one in wanted)

    async def _allocate(self, wanted: WantedPorts, there: list[NeutronPort]) -> PortsRefused | PortsAwaited | PortsMade:
        if wanted.networks == "none":
            return PortsMade(())
        try:
            return await self._completed(wanted, there)
        except Unavailable as error:
            # Others may have had an answer, and go on.
            return PortsAwaited(str(error))

    async def _completed(self, wanted: WantedPorts, there: list[NeutronPort]) -> PortsRefused | PortsMade:
        try:
            return await self._complete(wanted, there)
        except NeutronRefused as error:
            await self._give_up(wanted)
            return PortsRefused(str(error))

    async def _give_up(self, wanted: WantedPorts) -> None:
        """Give up what this attempt has; what a later one has by now stays."""
        try:
            for port in (await ports_of(self._skep, [wanted.instance]))[wanted.instance]:
                mine = port.label is not None and port.label.attempt == wanted.attempt
                if mine and not await self._ports.give_up_unchanged(wanted.instance, port):
                    raise Unavailable(f"port {port.id} changed while it was released")
        except NeutronRefused as error:
            raise Unavailable(f"{SERVICE} does not release ports: {error}") from error

    async def _complete(self, wanted: WantedPorts, there: Sequence[NeutronPort]) -> PortsMade:
        """Make what is missing beside ports that are there."""
        doubles = {port.id for port in doubles_among(there)}
        kept = [port for port in there if port.id not in doubles]
        check_unasking(port for port in kept if port.label is not None and port.label.made)
        for port in kept:
            await self._ports.adopt(port, wanted.host, wanted.attempt, wanted.providers)
        for port in there:
            if port.id in doubles:
                await self._ports.give_up_unchanged(wanted.instance, port)
        positions = {order(port)[0] for port in kept}
        if wanted.networks != NETWORKS_NAMED and 0 in positions:
            return TO_LOOK_UP
        missing = [
            (_place(wanted, position), one)
            for position, one in enumerate(await self._named(wanted))
            if position not in positions
        ]
        brought = [pair for pair in missing if pair[1].port_id is not None]
        # First: they may be refused, and then no others were made.
        for place, one in brought:
            await self._ports.take(place, one)
        made = await self._ports.make([pair for pair in missing if pair[1].port_id is None])
        return TO_LOOK_UP if there or brought or not all(map(_is_whole, made)) else PortsMade(tuple(made))

    async def _named(self, wanted: WantedPorts) -> Sequence[RequestedNetwork]:
        if wanted.networks == NETWORKS_NAMED:
            return wanted.named
        # Said before there is a network that nothing needs.
        await check_room(self._skep, wanted.project_id, COUNTED_PORTS)
        return (RequestedNetwork(network_id=await topology(self._skep, wanted.project_id)),)


def _is_whole(port: NeutronPort) -> bool:
    """Tell whether the answer to its making says of a port what its server is told: it may be bound after that."""
    return bool(port.fixed_ips) and port.vif_type != UNBOUND


def _place(wanted: WantedPorts, position: int) -> PortPlace:
    return PortPlace(
        instance=wanted.instance,
        project_id=wanted.project_id,
        host=wanted.host,
        zone=wanted.zone,
        position=position,
        attempt=wanted.attempt,
        security_groups=wanted.security_groups,
        providers=wanted.providers,
    )
