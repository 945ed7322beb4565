"""Hosts: whether mappings and agents name each other, and what agents report beside what their cells believe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import host_mappings
from skep.database.cell import agents, open_attempts
from skep.database.cell.agents import RegisteredAgent
from skep.database.cell.open_attempts import NodeGuests
from skep.domain.cells import Cell, HostMapping
from skep.domain.hosts import HostState
from skep.domain.ids import NodeUuid


async def differences(sources: Sources, cell: Cell, states: Sequence[HostState] | None) -> list[Difference]:
    """Compare the agents of a cell with its mappings and reports. `states` is None when no scheduler answers."""
    guests = await sources.read_cell(cell.uuid, open_attempts.guests_by_node)
    known = {agent.node: agent for agent in await sources.read_cell(cell.uuid, agents.list_all)}
    mapped = {one.node: one for one in await sources.api.read(host_mappings.every)}
    mine = [state for state in states or () if state.cell == cell.uuid and state.up]
    return [*_of_mappings(cell, known, mapped), *_of_reports(cell, mine, guests)]


def _of_mappings(
    cell: Cell, known: dict[NodeUuid, RegisteredAgent], mapped: dict[NodeUuid, HostMapping]
) -> Iterator[Difference]:
    for node, agent in sorted(known.items()):
        mapping = mapped.get(node)
        if agent.mapped and (mapping is None or mapping.cell != cell.uuid):
            elsewhere = None if mapping is None else mapping.cell
            evidence = {"cell": cell.name, "node": node, "mapping": elsewhere}
            yield Difference(kind="agent_not_mapped", subject=agent.host, evidence=evidence)
    for node, mapping in sorted(mapped.items()):
        if mapping.cell == cell.uuid and node not in known:
            evidence = {"cell": cell.name, "node": node}
            yield Difference(kind="host_without_agent", subject=mapping.host, evidence=evidence)


def _of_reports(cell: Cell, states: Sequence[HostState], guests: dict[NodeUuid, NodeGuests]) -> Iterator[Difference]:
    for state in states:
        believed = guests.get(state.node, NodeGuests())
        if not believed.busy and not state.claims and believed.built != state.usage.servers:
            yield Difference(
                kind="host_counts_other_servers",
                subject=state.usage.host,
                evidence={"cell": cell.name, "reported": state.usage.servers, "rows": believed.built},
            )
