"""Who could hold a server if empty is who does hold it in the same cloud without any server, all hosts switched on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.request_specs import RequestSpec
from skep.placement.choice import NoHost
from skep.placement.claims import ClaimIndex
from skep.placement.groups import GroupIndex
from skep.placement.hosts.table import HostTable
from skep.placement.options import PlacementOptions
from skep.placement.placement import Placement
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from skep.simulator.inside import GPU, NIC, devices, host_with_inside, spec_for_parts
from tests.support.samples import examples

CELL = CellUuid("cell-1")
FILTERS = ("ComputeFilter", "AggregateNumInstancesFilter", "IoOpsFilter", "JsonFilter", "ComputeCapabilitiesFilter")
SETTINGS = SchedulerSettings(filters=FILTERS, options=PlacementOptions(max_instances_per_host=2, max_io_ops_per_host=1))
PINNED = {"hw:cpu_policy": "dedicated"}
SPECS = (
    spec_for_parts(2, 256, {}),
    spec_for_parts(4, 1024, PINNED),
    spec_for_parts(4, 1024, PINNED | {"hw:numa_nodes": "2", "hw:mem_page_size": "large"}),
    spec_for_parts(3, 512, PINNED | {"hw:cpu_thread_policy": "isolate"}, devices(NIC, 1, "required")),
    spec_for_parts(1, 256, {}, devices(GPU, 2)),
    spec_for_parts(2, 256, {"hw:numa_nodes": "1"}, devices(GPU, 1, "preferred")),
    spec_for_parts(1, 256, {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}),
    replace(spec_for_parts(1, 256, {}), scheduler_hints={"query": '[">=", "$free_ram_mb", 3000]'}),
    spec_for_parts(1, 256, {"capabilities:vcpus_used": "<= 1"}),
)
kinds = st.fixed_dictionaries(
    {
        "cells": st.integers(1, 2),
        "cores": st.integers(1, 3),
        "threads": st.integers(1, 2),
        "shared": st.integers(0, 2),
        "memory_mb": st.sampled_from([1024, 2048]),
        "huge_mb": st.sampled_from([0, 512]),
        "gpus": st.integers(0, 2),
        "nics": st.integers(0, 1),
        "vgpus": st.integers(0, 2),
    }
)
states = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2))


class World:
    """Hosts that are in use, and the same ones that are not."""

    def __init__(self, chosen: SchedulerSettings = SETTINGS) -> None:
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.placement = Placement(self.table, GroupIndex(), chosen)
        self.table.set_cell(CELL, known=True, asserted=True, living=True)

    def host(self, number: int, usage: HostUsage, *, disabled: bool, heard: list[int]) -> None:
        node, name = NodeUuid(f"n{number}"), f"h{number}"
        self.table.set_intent(HostIntent(node=node, host=name, cell=CELL, disabled=disabled))
        self.table.set_report(node, CELL, replace(usage, host=name))
        self.table.set_heard(CELL, tuple(NodeUuid(f"n{one}") for one in heard), 1)

    def take(self, number: int, spec: RequestSpec) -> None:
        """Promise parts of a host to a server."""
        request, row = placement_request(spec), self.table.row_of[NodeUuid(f"n{number}")]
        held = self.table.nested.allocate(row, request.nested) if request.nested is not None else None
        node = NodeUuid(f"n{number}")
        self.claims.assume(
            Claim(instance=InstanceUuid("x"), attempt=1, node=node, resources=request.resources, allocation=held)
        )


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(kinds, states, st.sampled_from(SPECS)), min_size=1, max_size=4), st.sampled_from(SPECS))
def test_an_empty_host_holds_what_it_is_said_to_hold(made: list[tuple[Any, ...]], spec: RequestSpec) -> None:
    used, empty = World(), World()
    heard = [number for number, (_, (_, up, _, _), _) in enumerate(made) if up]
    for number, (kind, (disabled, _, limited, busy), taken) in enumerate(made):
        usage = host_with_inside(**kind)
        in_use = replace(usage, used={"VCPU": busy, "MEMORY_MB": 700 * busy}, instances=busy, io_ops=busy)
        used.host(number, in_use, disabled=disabled, heard=heard)
        empty.host(number, usage, disabled=False, heard=list(range(len(made))))
        used.take(number, taken)
        for world in (used, empty):
            members = [f"h{one}" for one in range(number + 1) if made[one][1][2]]
            world.table.set_aggregate(1, members, {"max_instances_per_host": "0"} if limited else {})
    request = placement_request(spec)
    choice = used.placement.choose(request, InstanceUuid("i"), seed=0)
    if isinstance(choice, NoHost):
        could = empty.placement.might_fit(request, InstanceUuid("i"))
        assert choice.explanation.could_hold == int(np.count_nonzero(could))


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(kinds, st.integers(0, 2), st.sampled_from(SPECS)), min_size=1, max_size=3),
    st.sampled_from([spec for spec in SPECS if not spec.scheduler_hints]),
    st.integers(1, 3),
)
def test_what_is_said_to_fit_inside_of_hosts_does(made: list[tuple[Any, ...]], spec: RequestSpec, times: int) -> None:
    world = World(SchedulerSettings(filters=("ComputeFilter",)))
    for number, (kind, busy, taken) in enumerate(made):
        usage = replace(host_with_inside(**kind), used={"VCPU": busy, "MEMORY_MB": 500 * busy})
        world.host(number, usage, disabled=False, heard=list(range(len(made))))
        world.take(number, taken)
    larger = replace(spec, flavor=replace(spec.flavor, vcpus=times * spec.flavor.vcpus))
    choice = world.placement.choose(placement_request(larger), InstanceUuid("i"), seed=0)
    if not isinstance(choice, NoHost):
        return
    for change in choice.explanation.changes:
        changed = larger
        for words in change.parts:
            changed = with_change(changed, words)
        found = world.placement.choose(placement_request(changed), InstanceUuid("i"), seed=0)
        assert not isinstance(found, NoHost), (change, found.explanation.summary())


def with_change(spec: RequestSpec, words: str) -> RequestSpec:
    """Ask for what the words of a change say."""
    flavor, specs = spec.flavor, spec.flavor.extra_specs
    if words.startswith(("without pinned", "without NUMA")):
        return replace(spec, flavor=replace(flavor, extra_specs={k: v for k, v in specs.items() if k[:3] != "hw:"}))
    if words.startswith(("without groups", "without any VGPU")):
        return replace(spec, flavor=replace(flavor, extra_specs={}))
    if words.startswith("without PCI devices"):
        return replace(spec, devices=())
    if words.startswith("without any"):
        alias = words.split("(")[1].rstrip(")")
        return replace(spec, devices=tuple(one for one in spec.devices if one.alias != alias))
    _, amount, name, *_ = words.split()
    if name in ("VCPU", "PCPU", "MEMORY_MB"):
        fewer, less = (0, int(amount)) if name == "MEMORY_MB" else (int(amount), 0)
        return replace(spec, flavor=replace(flavor, vcpus=flavor.vcpus - fewer, memory_mb=flavor.memory_mb - less))
    if name == "VGPU":
        kept = {key: value for key, value in specs.items() if key != "resources2:VGPU"}
        return replace(spec, flavor=replace(flavor, extra_specs=kept))
    return replace(spec, devices=tuple(replace(one, count=one.count - int(amount)) for one in spec.devices))
