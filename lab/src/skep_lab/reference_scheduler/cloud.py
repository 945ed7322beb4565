"""What is known of a cloud, as plain structs: nothing is derived before somebody asks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.domain.namespaces import Schema
from skep.placement.groups import GroupSlot


@dataclass(slots=True)
class ReferenceHost:
    """One node, as people and the host itself told of it."""

    node: NodeUuid
    name: str = ""
    cell: CellUuid | None = None
    mapped: bool = False
    disabled: bool = False
    forced_down: bool = False
    usage: HostUsage | None = None
    claims: dict[tuple[str, int], Claim] = field(default_factory=dict)


@dataclass(slots=True)
class ReferenceCell:
    """What is known of one cell, and whom its latest beat names."""

    known: bool = False
    disabled: bool = False
    asserted: bool = False
    living: bool = False
    heard: frozenset[NodeUuid] = frozenset()


@dataclass(slots=True)
class ReferenceAggregate:
    """Hosts by name, and metadata."""

    hosts: frozenset[str]
    metadata: dict[str, str]


class ReferenceCloud:
    """Takes the same calls as `HostTable`, `ClaimIndex`, `GroupIndex` and `JoinedStates`."""

    def __init__(self) -> None:
        self.hosts: dict[NodeUuid, ReferenceHost] = {}
        self.cells: dict[CellUuid, ReferenceCell] = {}
        self.aggregates: dict[int, ReferenceAggregate] = {}
        self.slots: dict[GroupUuid, list[GroupSlot]] = {}
        self.schemas: dict[str, Schema] = {}
        self.states: dict[str, dict[str, Mapping[str, Any]]] = {}

    # --- what is told --------------------------------------------------------------------------------

    def set_report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> None:
        """Take what a host said of itself."""
        host = self._host(node)
        host.usage = usage
        if not host.mapped:
            host.name, host.cell = usage.host, cell

    def drop_report(self, node: NodeUuid) -> None:
        """Forget what a host said."""
        self._host(node).usage = None

    def set_intent(self, intent: HostIntent) -> None:
        """Map a node to its cell."""
        host = self._host(intent.node)
        host.name, host.cell, host.mapped = intent.host, intent.cell, True
        host.disabled, host.forced_down = intent.disabled, intent.forced_down

    def drop_intent(self, node: NodeUuid) -> None:
        """Forget the mapping of a node."""
        self._host(node).mapped = False

    def set_aggregate(self, number: int, hosts: Iterable[str], metadata: Mapping[str, str]) -> None:
        """Set one aggregate."""
        self.aggregates[number] = ReferenceAggregate(frozenset(hosts), dict(metadata))

    def drop_aggregate(self, number: int) -> None:
        """Forget one aggregate."""
        self.aggregates.pop(number, None)

    def set_cell(self, cell: CellUuid, **flags: bool) -> None:
        """Change what is known of a cell."""
        known = self.cells.setdefault(cell, ReferenceCell())
        for name, value in flags.items():
            setattr(known, name, value)

    def set_heard(self, cell: CellUuid, nodes: Iterable[NodeUuid]) -> None:
        """Take which nodes a cell's latest beat names."""
        self.cells.setdefault(cell, ReferenceCell()).heard = frozenset(nodes)

    def set_schema(self, namespace: str, schema: Schema) -> None:
        """Register another service's namespace."""
        self.schemas[namespace] = schema

    def set_state(self, namespace: str, key: str, state: Mapping[str, Any] | None) -> None:
        """Set one state of another service; None removes it."""
        states = self.states.setdefault(namespace, {})
        states.pop(key, None)
        if state is not None:
            states[key] = state

    def claim(self, claim: Claim) -> None:
        """Count a claim on its node."""
        self._host(claim.node).claims[claim.key] = claim

    def release(self, claim: Claim) -> None:
        """Count a claim no longer."""
        self._host(claim.node).claims.pop(claim.key, None)

    def join(self, group: GroupUuid, slot: GroupSlot) -> None:
        """Count a member of a server group."""
        self.slots.setdefault(group, []).append(slot)

    def leave(self, group: GroupUuid, slot: GroupSlot) -> None:
        """Count a member no longer."""
        self.slots[group].remove(slot)

    # --- what follows --------------------------------------------------------------------------------

    def cell_of(self, host: ReferenceHost) -> ReferenceCell:
        """Return what is known of the host's cell."""
        return self.cells.get(host.cell, ReferenceCell()) if host.cell is not None else ReferenceCell()

    def is_ready(self, host: ReferenceHost) -> bool:
        """Tell whether it is known what is free on the host."""
        return host.mapped and host.usage is not None and self.cell_of(host).asserted

    def is_up(self, host: ReferenceHost) -> bool:
        """Tell whether a living beat of the cell names the host, and nobody forced it down."""
        cell = self.cell_of(host)
        return cell.living and host.node in cell.heard and not host.forced_down

    def aggregates_of(self, host: ReferenceHost) -> list[tuple[int, ReferenceAggregate]]:
        """Return the host's aggregates in the order of their numbers."""
        return [(number, one) for number, one in sorted(self.aggregates.items()) if host.name in one.hosts]

    def zone_of(self, host: ReferenceHost) -> str:
        """Return the host's availability zone: that of the first aggregate that has one."""
        zones = (one.metadata.get("availability_zone") for _, one in self.aggregates_of(host))
        return next((zone for zone in zones if zone), "nova")

    def members(self, group: GroupUuid, instance: str, *, latest_only: bool) -> dict[NodeUuid, int]:
        """Return how many other members each node holds; `latest_only`: each counts where its latest attempt is."""
        attempts: dict[str, dict[int, NodeUuid]] = {}
        for slot in self.slots.get(group, []):
            if slot.instance != instance:
                attempts.setdefault(slot.instance, {})[slot.attempt] = slot.node
        counts: dict[NodeUuid, int] = {}
        for nodes in attempts.values():
            for node in {nodes[max(nodes)]} if latest_only else set(nodes.values()):
                counts[node] = counts.get(node, 0) + 1
        return counts

    def states_of(self, host: ReferenceHost, namespace: str) -> list[Mapping[str, Any]]:
        """Return the states of another service that speak of the host."""
        schema = self.schemas.get(namespace)
        if schema is None:
            return []
        name = host.node if schema.join.names == "node" else host.name
        found = []
        for key, state in self.states.get(namespace, {}).items():
            named = key if schema.join.field is None else state.get(schema.join.field, ())
            if name == named or (isinstance(named, list) and name in named):
                found.append(state)
        return found

    def _host(self, node: NodeUuid) -> ReferenceHost:
        return self.hosts.setdefault(node, ReferenceHost(node))


def capacity(host: ReferenceHost, resource_class: str) -> int:
    """Return how much of a class the host may give out."""
    inventory = host.usage.inventory.get(resource_class) if host.usage is not None else None
    return inventory.capacity if inventory is not None else 0


def free(host: ReferenceHost, resource_class: str) -> int:
    """Return what is neither used nor claimed."""
    used = host.usage.used.get(resource_class, 0) if host.usage is not None else 0
    claimed = sum(claim.resources.get(resource_class, 0) for claim in host.claims.values())
    return capacity(host, resource_class) - used - claimed


def free_share(host: ReferenceHost, resource_class: str) -> float:
    """Return the free part of the host's own capacity."""
    total = capacity(host, resource_class)
    return free(host, resource_class) / total if total > 0 else 0.0


def occupied_until(host: ReferenceHost) -> float:
    """Return when the host is expected to be empty: inf where a server has no known end, -inf where there is none."""
    ends: list[int | None] = [claim.expected_end for claim in host.claims.values()]
    if host.usage is not None and max(host.usage.instances, host.usage.servers) > 0:
        ends.append(host.usage.expected_end)
    known = [end for end in ends if end is not None]
    return math.inf if len(known) < len(ends) else max(known, default=-math.inf)
