"""Hosts, seen from above: maps the agents that cells report, and publishes what the operator wants of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skep.database import Connection
from skep.database.api import destinations, host_mappings, operator_state, retired_hosts
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents
from skep.database.cell.agents import RegisteredAgent
from skep.domain.cells import Cell, HostMapping
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import GetHostStates, OperatorStatePart, PublishOperatorState
from skep.reconciler.operator_state import publish
from skep.super_conductor.namespaces import PublishedNamespaces
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

MAPPED_AT_ONCE = 200
"""Hosts in one transaction: it costs as much as one host does, and nobody waits long for its end."""

REPUBLISH_SECONDS = 30.0
"""A scheduler that lost its data has the operator's will again after this time at the latest."""


NAMED_HOSTS = 20
"""Hosts that a line of the log names; it counts the others."""


class Hosts:
    """Keeps host mappings and the published will of the operator in step with the rows."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._namespaces = PublishedNamespaces(parts)
        self._published: dict[OperatorStatePart, PublishOperatorState] | None = None
        """What was told last, part by part."""
        self._again_at = 0

    async def map_agents(self) -> bool:
        """Map the agents that their cells know and the API database does not; nothing else is needed to use a host.

        Before that cells forget the hosts that were retired: what registers after it is new.
        """
        await self._retire()
        if await self._parts.in_each_cell("mapping of agents", self._map_agents_of):
            await self.publish()
        return False

    async def _retire(self) -> None:
        """Have cells forget the hosts whose mapping was taken away; a cell that cannot be written comes later."""
        retired = await self._parts.api.read(retired_hosts.every)
        if not retired:
            return
        await self.publish()

        async def of_cell(access: CellAccess) -> bool:
            for host in retired:
                if host.cell == access.cell.uuid:
                    await self._forget(host, access)
            return False

        await self._parts.in_each_cell("retiring of hosts", of_cell)

    async def _forget(self, host: RetiredHost, access: CellAccess) -> None:
        was_known = await access.write(partial(agents.retire, node=host.node, process=host.process))
        await self._parts.api.write(partial(retired_hosts.forgotten, host=host))
        log.info("host retired", host=host.host, node=host.node, cell=access.cell.name, forgotten=was_known)

    async def _map_agents_of(self, access: CellAccess) -> bool:
        """Map those of one cell; True when there were some."""
        if access.transport is None:
            return False
        new = await access.read(agents.unmapped)
        if not new:
            return False
        mapped: list[RegisteredAgent] = []
        for start in range(0, len(new), MAPPED_AT_ONCE):
            mapped += await self._map(new[start : start + MAPPED_AT_ONCE], access)
        names = sorted(agent.host for agent in mapped)
        log.info("hosts mapped", cell=access.cell.name, hosts=len(names), names=names[:NAMED_HOSTS])
        return bool(mapped)

    async def _map(self, new: Sequence[RegisteredAgent], access: CellAccess) -> list[RegisteredAgent]:
        """Map agents and tell their cell; those whose name is another node's are said loudly, and left out."""
        cell, now = access.cell, self._parts.clock.now()
        mappings = [HostMapping(node=agent.node, host=agent.host, cell=cell.uuid, created_at=now) for agent in new]
        refused = await self._parts.api.write(partial(_add_all, new=mappings, cell=cell))
        for agent in new:
            if agent.node in refused:
                log.error(
                    "host not mapped", host=agent.host, node=agent.node, cell=cell.name, error=refused[agent.node]
                )
        mapped = [agent for agent in new if agent.node not in refused]
        await access.write(partial(agents.mark_mapped, nodes=[agent.node for agent in mapped]))
        return mapped

    async def publish(self) -> bool:
        """Publish the operator's will when it differs from what this process published, and now and then anyway."""
        parts = self._parts
        wanted = operator_state.parts(await parts.api.read(operator_state.read))
        known = self._published
        again = known is None or parts.clock.now() >= self._again_at
        await self._namespaces.publish(anew=again)
        if known is None or again:
            known, self._again_at = {}, parts.after(REPUBLISH_SECONDS)
        await publish(parts.transport, [one for one in wanted if one.part is None or known.get(one.part) != one])
        self._published = {one.part: one for one in wanted if one.part is not None}
        return False

    async def follow_epoch(self) -> bool:
        """Publish at once under a new epoch: until then no host is mapped, and nothing can be placed."""
        reply = await self._parts.transport.call(SCHEDULER, GetHostStates(nodes=()))
        known, self._parts.latest.epoch = self._parts.latest.epoch, reply.epoch
        if known not in (None, reply.epoch):
            log.info("host states began a new epoch", epoch=reply.epoch)
            self._published = None
        if self._published is None:
            await self.publish()
        return False


def _add_all(connection: Connection, new: Sequence[HostMapping], cell: Cell) -> dict[NodeUuid, str]:
    """Map the hosts of a cell, unless the cell goes: they would be left over. Return those not mapped, and why."""
    if not destinations.cell_takes_hosts(connection, cell.uuid):
        return {one.node: f"cell {cell.name} is being deleted" for one in new}
    return host_mappings.add_all(connection, new)
