"""Huawei-East-1 decided by the code of the service: hosts with two NUMA cells, flavors with one or two, claims.

Who fits where must agree with the experiment's own clusters, else an episode cannot go on.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from skep.domain.cells import HostIntent
from skep.domain.clock import SECOND
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.lifetimes import Lifetime
from skep.domain.providers import NumaCell, Topology
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.deciding import Deciding, Seat
from skep.placement.hosts.mix import AskedKind, MixState, PublishedMix
from skep.placement.knowledge import Knowledge
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.settings import SchedulerSettings
from skep.placement.slots import Worthing
from skep_lab.benchmarks.quality.huawei import BOTH, CPUS, MEMORY_GB, Episode, Option, Policy, Vm

_CELL = CellUuid("cell")
_HALF_GB = 512
_PAGE_KIB = 4

FRAGMENTATION = {"FragmentationWeigher": 1.0}


class ServiceEpisode(Episode):
    """An episode that asks the service's code instead of a policy."""

    def __init__(
        self,
        trace: list[Vm],
        start: int,
        servers: int,
        how: Worthing,
        learned: MixState,
        weighers: dict[str, float] = FRAGMENTATION,
    ) -> None:
        """With LifetimeWeigher among the weighers requests tell how long they will live."""
        super().__init__(trace, start, servers)
        self._tells = "LifetimeWeigher" in weighers
        options = PlacementOptions(
            fragmentation_size_exponent=how.size_exponent,
            fragmentation_slot_exponent=how.slot_exponent,
            fragmentation_departures=how.departures,
        )
        self._known = Knowledge(SchedulerSettings(weighers=weighers, options=options))
        self._decided: dict[int, Deciding] = {}
        _fill(self._known, servers)
        self._known.table.mix.restore(learned)
        # What is learned stays as it is, as it does for the other policies.
        self._known.table.mix.learns = False

    def _place(self, policy: Policy) -> None:  # noqa: ARG002  # an episode is told one
        super()._place(self._decide)

    def _options(self, vm: Vm) -> list[Option]:
        # One place more than there is, so that the decision is asked for even where there is but one.
        options = super()._options(vm)
        return [*options, options[-1]] if options else options

    def _decide(self, servers: Any, vm: Vm, options: list[Option]) -> Option:  # noqa: ARG002  # the signature of policies
        lifetime = Lifetime(self._now * SECOND, (self._now + max(vm.lifetime, 1)) * SECOND) if self._tells else None
        seat = Seat(InstanceUuid(str(self._next)), 1, request_of(vm, lifetime))
        deciding = Deciding(self._known, [seat], min_count=1, seed=0)
        deciding.decide_all()
        assert seat.claim is not None, "the service's code finds no room"
        assert seat.claim.allocation is not None
        self._decided[self._next] = deciding
        cells = seat.claim.allocation.cells
        option = (self._known.table.row_of[seat.claim.node], BOTH if len(cells) > 1 else cells[0].cell)
        assert option in options, "the service's code finds room where none is"
        return option

    def _leave(self) -> None:
        self._decided.pop(self._leaving[0][1]).drop_all()
        super()._leave()


def request_of(vm: Vm, lifetime: Lifetime | None = None) -> PlacementRequest:
    """Return what a row asks of a host; cores and memory in halves, so that they can be divided by two."""
    specs = {"hw:numa_nodes": "2" if vm.is_double else "1"}
    flavor = Flavor(
        flavorid="row",
        name="row",
        vcpus=2 * vm.cpus,
        memory_mb=2 * vm.memory_gb * _HALF_GB,
        root_gb=0,
        extra_specs=specs,
    )
    spec = RequestSpec(project_id=ProjectId("project"), user_id=UserId("user"), flavor=flavor, lifetime=lifetime)
    return placement_request(spec, alternates=0)


def learned_from(vms: list[Vm]) -> MixState:
    """Return the mix of some rows."""
    kinds = []
    for vm, count in sorted(Counter(vm._replace(arrival=0, lifetime=0) for vm in vms).items()):
        request = request_of(vm)
        resources = tuple(sorted((name, amount) for name, amount in request.resources.items() if amount))
        kinds.append((AskedKind(resources=resources, nested=request.nested), float(count)))
    mean = {VCPU: 4.0 * CPUS, MEMORY_MB: 4.0 * MEMORY_GB * _HALF_GB}
    return MixState(published=PublishedMix(version=1, kinds=tuple(kinds), mean=mean))


def _fill(known: Knowledge, servers: int) -> None:
    memory = 2 * MEMORY_GB * _HALF_GB
    cells = tuple(
        NumaCell(number=number, shared_cpus=2 * CPUS, pages={_PAGE_KIB: memory * 1024 // _PAGE_KIB})
        for number in range(2)
    )
    inventory = {
        VCPU: Inventory(total=4 * CPUS),
        MEMORY_MB: Inventory(total=2 * memory),
        DISK_GB: Inventory(total=1_000_000),
    }
    nodes = tuple(NodeUuid(f"node-{number}") for number in range(servers))
    known.table.set_cell(_CELL, known=True, asserted=True, living=True)
    for node in nodes:
        usage = HostUsage(host=node, inventory=inventory, used={}, topology=Topology(cells=cells))
        known.table.set_intent(HostIntent(node=node, host=node, cell=_CELL))
        known.table.set_report(node, _CELL, usage)
    known.table.set_heard(_CELL, nodes, 1)
