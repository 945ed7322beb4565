"""Hosts with NUMA cells, devices and groups: who fits, in which words a stage says no, and which parts are claimed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from skep.domain.claims import Claim
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.nested.wanted import Group, PortsWanted
from skep.placement.hosts import rooms
from skep.placement.request import placement_request
from skep.simulator.inside import GPU, devices, host_with_inside, spec_for_parts

PINNED = {"hw:cpu_policy": "dedicated"}


def inside(world: Any, name: str, **amounts: int) -> NodeUuid:
    usage = host_with_inside(name, **amounts)
    node: NodeUuid = world.host(name, inventory=usage.inventory, topology=usage.topology)
    return node


def claim(world: Any, node: NodeUuid, spec: Any, instance: str = "i") -> Claim:
    request = placement_request(spec)
    row = world.table.row_of[node]
    made = Claim(
        instance=InstanceUuid(instance),
        attempt=1,
        node=node,
        resources=request.resources,
        allocation=world.table.nested.allocate(row, request.nested),
    )
    world.claims.assume(made)
    return made


def test_only_hosts_that_tell_of_their_cells_hold_pinned_guests(world: Any) -> None:
    world.host("flat")
    inside(world, "good")
    assert world.fitting(spec_for_parts(4, 1024, PINNED)) == {"good"}
    assert world.fitting(spec_for_parts(4, 1024, {})) == {"flat", "good"}


def test_free_cpus_in_two_cells_are_not_enough_for_one_cell(world: Any) -> None:
    inside(world, "split", cores=2, threads=2)
    spec = spec_for_parts(6, 1024, PINNED)
    assert world.why(spec) == "1 host considered; 0 left by NUMA topology"
    assert world.fitting(spec_for_parts(6, 1024, PINNED | {"hw:numa_nodes": "2"})) == {"split"}


def test_a_claim_takes_its_parts_and_gives_them_back(world: Any) -> None:
    node = inside(world, "one", cells=1, cores=4, threads=2)
    spec = spec_for_parts(8, 1024, PINNED)
    assert world.fitting(spec) == {"one"}
    made = claim(world, node, spec)
    assert made.allocation is not None
    assert world.fitting(spec) == set()
    world.claims.drop(made)
    assert world.fitting(spec) == {"one"}


def test_answers_that_a_search_found_are_bounded(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_ANSWERS", 10)
    for number in range(4):
        inside(world, f"h{number}", cells=2, cores=4 + number, vgpus=2)
    for cpus in range(2, 10):
        searched = PINNED | {"hw:emulator_threads_policy": "isolate"}
        assert "h3" in world.fitting(spec_for_parts(cpus, 1024, searched))
        held = sum(len(one.by_condition) for one in world.table.nested._answers.values())
        assert 0 < held <= 10


def test_what_is_known_of_layouts_is_bounded_over_all_requests(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_ANSWERS", 40)
    for number in range(8):
        inside(world, f"h{number}", cells=1, cores=4 + number)
    for cpus in range(1, 8):
        assert "h7" in world.fitting(spec_for_parts(cpus, 512, PINNED))
        assert sum(len(one._countings) for one in world.table.nested._answers.values()) <= 5


def test_a_host_that_reports_again_keeps_its_layout() -> None:
    nested = rooms.Rooms()
    nested.set_usage(0, host_with_inside("one"))
    before = nested.room(0)
    nested.set_usage(0, replace(host_with_inside("one"), used={"VCPU": 1}))
    after = nested.room(0)
    assert before is not None
    assert after is not None
    assert before is not after
    assert before.layout is after.layout


def test_devices_by_alias(world: Any) -> None:
    world.host("flat")
    inside(world, "one", cells=1, gpus=1)
    two = spec_for_parts(1, 512, {}, devices(GPU, 2))
    assert world.fitting(spec_for_parts(1, 512, {}, devices(GPU, 1))) == {"one"}
    assert "0 left by capacity" in world.why(two)


def test_devices_that_are_too_far_away(world: Any) -> None:
    node = inside(world, "one", cells=2, cores=2, gpus=1)
    claim(world, node, spec_for_parts(4, 512, PINNED, devices(GPU, 1, "required")))
    claim(world, node, spec_for_parts(1, 512, {}, devices(GPU, 1)), "other")
    world.claims.drop(claim(world, node, spec_for_parts(1, 512, PINNED), "third"))
    assert world.fitting(spec_for_parts(4, 512, PINNED)) == {"one"}
    assert "capacity" in world.why(spec_for_parts(4, 512, PINNED, devices(GPU, 1, "required")))


def test_near_devices_are_judged_with_the_cells(world: Any) -> None:
    inside(world, "one", cells=2, cores=2, gpus=1)
    spec = spec_for_parts(4, 512, PINNED, devices(GPU, 2, "required"))
    assert world.why(spec) == "1 host considered; 1 left by PCI devices; 0 left by NUMA topology"
    assert world.fitting(spec_for_parts(4, 512, PINNED, devices(GPU, 2, "preferred"))) == {"one"}


def test_groups_are_served_by_flat_hosts_too_where_one_is_enough(world: Any) -> None:
    world.host("flat", inventory={**host_with_inside(vgpus=0).inventory, **host_with_inside(vgpus=4).inventory})
    inside(world, "one", vgpus=4)
    assert world.fitting(spec_for_parts(1, 512, {"resources1:VGPU": "4"})) == {"flat", "one"}
    assert world.fitting(spec_for_parts(1, 512, {"resources1:VGPU": "5"})) == {"flat"}
    first = {"resources1:VGPU": "1", "trait1:CUSTOM_FIRST": "required"}
    assert world.fitting(spec_for_parts(1, 512, first)) == {"one"}
    apart = {"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}
    assert world.fitting(spec_for_parts(1, 512, apart)) == {"one"}


def of_ports(*amounts: int) -> Any:
    """Return a spec whose ports ask for so many virtual GPUs each."""
    groups = tuple(
        Group(name=f"port-{number}", resources=(("VGPU", amount),), required=("CUSTOM_FIRST",), of_port=True)
        for number, amount in enumerate(amounts)
    )
    return replace(spec_for_parts(1, 512, {}), ports=PortsWanted(groups=groups))


def test_ports_are_served_by_providers_with_a_uuid_alone(world: Any) -> None:
    """No host without an inside has one; and a stage names what they ask for, but not without an end."""
    world.host("flat", inventory={**host_with_inside().inventory, **host_with_inside(vgpus=9).inventory})
    inside(world, "unnamed", vgpus=9)
    assert world.fitting(of_ports(1)) == set()
    usage = host_with_inside("named", vgpus=9)
    assert usage.topology is not None
    named = tuple(replace(one, uuid=f"uuid-{one.name}") for one in usage.topology.providers)
    world.host("named", inventory=usage.inventory, topology=replace(usage.topology, providers=named))
    assert world.fitting(of_ports(1)) == {"named"}
    assert world.fitting(of_ports(4, 5)) == {"named"}
    assert world.why(of_ports(4, 6)).startswith(
        "3 hosts considered; 0 left by groups of resources (ports: VGPU=4 with CUSTOM_FIRST, VGPU=6 with CUSTOM_FIRST)"
    )
    assert "VGPU=2 with CUSTOM_FIRST, 2 more)" in world.why(of_ports(*[2] * 6))


def test_unnumbered_classes_come_from_any_one_provider(world: Any) -> None:
    inside(world, "one", cells=2, vgpus=4)
    assert world.fitting(spec_for_parts(1, 512, {"resources:VGPU": "4"})) == {"one"}
    assert world.why(spec_for_parts(1, 512, {"resources:VGPU": "5"})) == (
        "1 host considered; 0 left by groups of resources"
    )


def test_one_trait_of_several(world: Any) -> None:
    world.host("a", traits=("CUSTOM_A",))
    world.host("b", traits=("CUSTOM_B",))
    world.host("c")
    spec = spec_for_parts(1, 512, {"trait:any_of": "CUSTOM_A,CUSTOM_B"})
    assert world.fitting(spec) == {"a", "b"}
    why = world.why(spec_for_parts(1, 512, {"trait:any_of": "CUSTOM_Y,CUSTOM_Z"}))
    assert why.endswith("0 left by traits (CUSTOM_Y or CUSTOM_Z)")
