"""What is so in a cloud, and an engine that is told all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, GroupUuid, NodeUuid
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.groups import GroupSlot
from skep.placement.knowledge import Knowledge
from skep.placement.settings import SchedulerSettings
from skep.simulator.clouds import gpus_of
from skep.simulator.traces.flavors import GPU_MILLI
from skep.simulator.traces.openb import THOUSANDTHS

CELLS = (CellUuid("c1"), CellUuid("c2"))


@dataclass(frozen=True)
class StoryHost:
    """All that is so of one host."""

    cell: CellUuid
    mapped: bool
    disabled: bool
    reported: bool
    heard: bool
    vcpus: int
    used: int
    gpus: int
    failed_builds: int
    io_ops: int
    instances: int
    expected_end: int | None

    def usage(self, name: str) -> HostUsage:
        """Return what the host reports."""
        inventory = {
            VCPU: Inventory(total=self.vcpus, allocation_ratio=4.0),
            MEMORY_MB: Inventory(total=8192, reserved=512),
            DISK_GB: Inventory(total=100),
        }
        if self.gpus:
            inventory[GPU_MILLI] = Inventory(total=THOUSANDTHS * self.gpus)
        return HostUsage(
            host=name,
            hypervisor_hostname=f"{name}.example",
            inventory=inventory,
            topology=gpus_of(self.gpus),
            used={VCPU: self.used, MEMORY_MB: self.used * 256},
            failed_builds=self.failed_builds,
            io_ops=self.io_ops,
            instances=self.instances,
            expected_end=self.expected_end,
        )


def node_of(name: str) -> NodeUuid:
    """Return the node of the host of this name."""
    return NodeUuid(f"node-{name}")


@dataclass
class Facts:
    """All that is so in a cloud, whatever came before it."""

    hosts: dict[str, StoryHost] = field(default_factory=dict)
    aggregates: dict[int, tuple[tuple[str, ...], Mapping[str, str]]] = field(default_factory=dict)
    claims: dict[tuple[str, int], Claim] = field(default_factory=dict)
    slots: list[tuple[GroupUuid, GroupSlot]] = field(default_factory=list)

    def engine(self, settings: SchedulerSettings) -> Knowledge:
        """Return an engine that knows this and was never told anything else."""
        known = empty_engine(settings)
        for number, (names, metadata) in self.aggregates.items():
            known.table.set_aggregate(number, names, metadata)
        for name in self.hosts:
            self.tell_host(known, name)
        self.tell_beats(known)
        for claim in self.claims.values():
            known.claims.assume(claim)
        for group, slot in self.slots:
            known.groups.assume(group, slot)
        return known

    def tell_host(self, known: Knowledge, name: str) -> None:
        """Tell an engine what is so of one host, but for whether it is heard."""
        facts, node, table = self.hosts[name], node_of(name), known.table
        if facts.mapped:
            table.set_intent(HostIntent(node=node, host=name, cell=facts.cell, disabled=facts.disabled))
        else:
            table.drop_intent(node)
        # Of a host that is neither mapped nor has reported nobody knows.
        if facts.reported or not facts.mapped:
            table.set_report(node, facts.cell, facts.usage(name))
        else:
            table.drop_report(node)

    def tell_beats(self, known: Knowledge) -> None:
        """Tell an engine which hosts each cell hears."""
        for cell in CELLS:
            heard = (node_of(name) for name, facts in self.hosts.items() if facts.cell == cell and facts.heard)
            known.table.set_heard(cell, tuple(heard), 1)


def empty_engine(settings: SchedulerSettings) -> Knowledge:
    """Return an engine that knows two cells and no host."""
    known = Knowledge(settings)
    known.epoch = "epoch"
    for cell in CELLS:
        known.table.set_cell(cell, known=True, asserted=True, living=True)
    return known
