"""Refusals: what would fit, whether the request could never be held, and what is kept between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from skep.domain.builds import Explanation
from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.placement.options import PlacementOptions
from skep.simulator.inside import GPU, devices, host_with_inside, spec_for_parts

OFF = "being up and enabled (disabled, no reason given)"


@pytest.fixture
def explained(world: Any) -> Callable[..., Explanation]:
    def explain(wanted: Any = None, **limits: Any) -> Explanation:
        found: Explanation = world.choose(wanted, **limits).explanation
        return found

    return explain


def parts(explanation: Explanation) -> list[tuple[tuple[str, ...], int]]:
    return [(change.parts, change.hosts) for change in explanation.changes]


def take(world: Any, host: str, **amounts: int) -> None:
    claim = Claim(instance=InstanceUuid(f"on-{host}"), attempt=1, node=NodeUuid(f"node-{host}"), resources=amounts)
    world.claims.assume(claim)


def test_less_of_the_resource_that_the_nearest_host_lacks(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", used={"MEMORY_MB": 7168})
    world.host("b", used={"MEMORY_MB": 7168 + 256, "VCPU": 15})
    found = explained(spec(flavor=flavor(vcpus=2, memory_mb=1024)))
    assert parts(found) == [(("with 512 MEMORY_MB less",), 1)]
    assert (found.verdict, found.could_hold) == ("not_now", 2)
    assert found.advice() == ("it would fit with 512 MEMORY_MB less; 2 hosts could hold it if empty, up and enabled")


def test_one_resource_less_is_smaller_than_two(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("two", used={"MEMORY_MB": 7168, "VCPU": 15})
    world.host("one", used={"VCPU": 10})
    found = explained(spec(flavor=flavor(vcpus=16, memory_mb=513)))
    assert [miss.host for miss in found.nearest] == ["one", "two"]
    assert parts(found) == [(("with 10 VCPU less",), 1)]


def test_a_server_that_no_host_could_ever_hold(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", disabled=True)
    world.host("b")
    found = explained(spec(flavor=flavor(vcpus=17, memory_mb=7680)))
    assert (found.verdict, found.could_hold) == ("never", 0)
    assert found.advice() == (
        "it would fit with 1 VCPU less; no host could ever hold it, even one that is empty, up and enabled"
    )


def test_a_host_that_has_not_reported_may_be_large_enough(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", disabled=True)
    world.table.drop_report("node-a")
    assert explained(spec(flavor=flavor(vcpus=17))).verdict == "not_now"


def test_a_disabled_host_would_do(world: Any, explained: Any) -> None:
    world.host("a", disabled=True)
    found = explained()
    assert parts(found) == [(("on a host that is down or disabled",), 1)]
    assert found.verdict == "not_now"


def test_another_zone_or_fewer_traits(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    for name in ("a", "b", "c"):
        world.host(name)
    world.table.set_aggregate(1, ["a", "b"], {"availability_zone": "east"})
    assert parts(explained(spec(availability_zone="west"))) == [(("in availability zone east",), 2)]
    wanted = flavor(**{"trait:CUSTOM_A": "required", "trait:CUSTOM_B": "required", "trait:CUSTOM_C": "forbidden"})
    world.host("d", traits=("CUSTOM_A", "CUSTOM_C"))
    world.host("e", traits=("CUSTOM_A",))
    assert parts(explained(spec(flavor=wanted))) == [(("without requiring CUSTOM_B",), 1)]


def test_of_zones_that_do_alike_the_first_by_name_is_said(world: Any, spec: Any, explained: Any) -> None:
    for number, name in enumerate(("west", "east", "north")):
        world.host(name)
        world.table.set_aggregate(number, [name], {"availability_zone": name})
    assert parts(explained(spec(availability_zone="south"))) == [(("in availability zone east",), 1)]


def test_two_changes_where_one_is_not_enough(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", used={"MEMORY_MB": 7168})
    world.host("b", disabled=True, used={"MEMORY_MB": 7168})
    wanted = flavor(memory_mb=1024, **{"trait:CUSTOM_A": "required"})
    found = explained(spec(flavor=wanted))
    assert parts(found) == [(("without requiring CUSTOM_A", "with 512 MEMORY_MB less"), 1)]
    assert found.verdict == "never"


def test_nothing_small_would_do(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", disabled=True)
    world.host("b", used={"VCPU": 16})
    wanted = flavor(memory_mb=2**20, **{"trait:CUSTOM_A": "required"})
    assert parts(explained(spec(flavor=wanted, availability_zone="west"))) == []
    assert explained(spec()).changes[0].parts == ("on a host that is down or disabled",)


def test_a_full_host_is_no_smaller_change(world: Any, spec: Any, flavor: Any, explained: Any) -> None:
    world.host("a", used={"VCPU": 16})
    assert explained(spec(flavor=flavor(vcpus=1))).changes == ()
    wanted = flavor(**{"resources:CUSTOM_FPGA": "2"})
    world.host("b")
    assert parts(explained(spec(flavor=wanted))) == [(("without any CUSTOM_FPGA",), 1)]


def test_groups_and_hints_are_changes_of_one_request(world: Any, spec: Any, group: Any, explained: Any) -> None:
    world.host("a")
    world.host("b")
    for host in ("a", "b"):
        world.member(host, f"on-{host}")
    wanted = spec(group=group("anti-affinity"))
    assert parts(explained(wanted)) == [(("without server group policy anti-affinity",), 2)]
    assert parts(explained(spec(same_host_names=()))) == [(("without hint same_host",), 2)]
    assert parts(explained(spec(), ignore=("node-a", "node-b"))) == [(("on a host that was tried",), 2)]
    of_move = explained(spec(), ignore=("node-a", "node-b"), home="node-a")
    assert parts(of_move) == [(("on a host that was tried",), 2)]
    assert explained(wanted).verdict == "not_now"


def test_the_host_that_a_move_leaves_is_not_said_to_have_been_tried(world: Any, explained: Any) -> None:
    world.host("a")
    found = explained(ignore=("node-a",), home="node-a")
    assert parts(found) == [(("on its own host, which is not taken",), 1)]


def test_closed_cells_are_said_to_be_so(world: Any, explained: Any) -> None:
    world.host("a")
    world.table.set_cell(CellUuid("cell-1"), disabled=True)
    found = explained()
    assert parts(found) == [(("in a cell that is closed to it",), 1)]
    assert found.verdict == "not_now"


def test_other_cells_of_a_request_that_is_limited_to_one_are_not_said_to_be_closed(world: Any, explained: Any) -> None:
    world.host("a")
    world.table.set_cell(CellUuid("cell-2"), known=True, disabled=False)
    assert parts(explained(cell=CellUuid("cell-2"))) == [(("in another cell",), 1)]


def test_the_cell_that_a_move_leaves_is_not_said_to_be_closed(world: Any, explained: Any) -> None:
    world.host("a")
    own, other = CellUuid("cell-1"), CellUuid("cell-2")
    world.table.set_cell(other, known=True, disabled=False)
    assert parts(explained(exclude_cells=(own,), source_cell=own)) == [(("in its own cell",), 1)]
    assert parts(explained(exclude_cells=(own,), source_cell=other)) == [(("in a cell that is closed to it",), 1)]


def test_changes_names_of_hosts_and_amounts_follow_what_happens(
    world: Any, spec: Any, flavor: Any, explained: Any
) -> None:
    for name in ("a", "b"):
        world.host(name, used={"VCPU": 4})
    wanted = spec(flavor=flavor(vcpus=13))
    assert parts(explained(wanted)) == [(("with 1 VCPU less",), 2)]
    take(world, "a", VCPU=2)
    found = explained(wanted)
    assert [(miss.host, miss.lacks) for miss in found.nearest] == [("b", {"VCPU": 1}), ("a", {"VCPU": 3})]
    take(world, "b", VCPU=5)
    assert parts(explained(wanted)) == [(("with 3 VCPU less",), 1)]
    world.host("c", vcpus=3)
    world.host("d", disabled=True)
    found = explained(wanted)
    assert parts(found) == [(("with 1 VCPU less",), 1), (("on a host that is down or disabled",), 1)]
    assert found.rejected == {"a": "capacity", "b": "capacity", "c": "capacity", "d": OFF}
    assert found.could_hold == 3
    world.table.drop_intent("node-d")
    assert explained(wanted).could_hold == 2


def test_which_cause_it_is_that_a_host_is_not_up_and_enabled(world: Any, explained: Any) -> None:
    silent, lost = "silent: its cell has not heard its agent lately", "no conductor of its cell is heard"
    world.host("a", disabled=True)
    world.host("b", forced_down=True)
    world.host("c", heard=False)
    world.host("d", cell="cell-2")
    world.host("e", disabled=True, forced_down=True, heard=False)
    world.table.set_cell("cell-2", living=False)
    world.table.set_intent(
        HostIntent(
            node=NodeUuid("node-a"), host="a", cell=CellUuid("cell-1"), disabled=True, disabled_reason="bad disk"
        )
    )
    forced = "forced down by an operator"
    causes = {
        "a": "disabled: bad disk",
        "b": forced,
        "c": silent,
        "d": lost,
        "e": f"disabled, no reason given; {forced}; {silent}",
    }
    found = explained()
    assert {miss.host: miss.cause for miss in found.nearest} == causes
    assert found.rejected == {host: f"being up and enabled ({cause})" for host, cause in causes.items()}
    assert not any(cause in f"{found.summary()} {found.advice()}" for cause in causes.values())
    world.table.set_intent(
        HostIntent(
            node=NodeUuid("node-a"), host="a", cell=CellUuid("cell-1"), disabled=True, disabled_reason="new disk"
        )
    )
    world.table.set_intent(HostIntent(node=NodeUuid("node-b"), host="b", cell=CellUuid("cell-1"), disabled=True))
    found = explained()
    assert found.rejected["a"] == "being up and enabled (disabled: new disk)"
    assert found.rejected["b"] == OFF
    assert {miss.cause for miss in found.nearest if miss.host in "ab"} == {
        "disabled: new disk",
        "disabled, no reason given",
    }


def test_no_hosts_have_no_verdict(explained: Any) -> None:
    found = explained()
    assert (found.verdict, found.advice()) == ("", "")


def inside(world: Any, name: str, **amounts: Any) -> NodeUuid:
    disabled = amounts.pop("disabled", False)
    usage = host_with_inside(name, **amounts)
    node: NodeUuid = world.host(name, inventory=usage.inventory, topology=usage.topology, disabled=disabled)
    return node


PINNED = {"hw:cpu_policy": "dedicated"}
SMALL = {"cells": 1, "cores": 4, "threads": 2, "nics": 0}


def test_a_device_that_is_missing_is_one_thing(world: Any, explained: Any) -> None:
    for name in ("a", "b"):
        inside(world, name, **SMALL, gpus=0)
    world.host("flat")
    found = explained(spec_for_parts(2, 256, PINNED, devices(GPU, 1, "required")))
    assert [(miss.host, miss.stage, miss.lacks) for miss in found.nearest] == [
        (name, "capacity", {GPU: 1}) for name in ("a", "b")
    ]
    assert parts(found) == [((f"without any {GPU} ({GPU.lower()})",), 2)]


def test_fewer_devices_and_fewer_pinned_cpus(world: Any, explained: Any) -> None:
    inside(world, "a", **SMALL, gpus=2)
    assert parts(explained(spec_for_parts(2, 256, PINNED, devices(GPU, 3)))) == [
        ((f"with 1 {GPU} ({GPU.lower()}) less",), 1)
    ]
    assert parts(explained(spec_for_parts(9, 256, PINNED))) == [(("with 1 PCPU less",), 1)]
    over_two = PINNED | {"hw:numa_nodes": "2"}
    inside(world, "b", cells=2, cores=2, threads=2)
    found = explained(spec_for_parts(10, 256, over_two))
    assert [(miss.host, miss.lacks) for miss in found.nearest] == [("b", {"PCPU": 2}), ("a", {"PCPU": 2})]
    assert parts(found) == [(("with 2 PCPU less",), 1), (("without pinned CPUs and NUMA cells",), 1)]


def test_a_group_of_resources_that_is_too_large(world: Any, explained: Any) -> None:
    inside(world, "a", **SMALL, vgpus=2)
    wanted = {"resources1:VGPU": "3", "trait1:CUSTOM_FIRST": "required"}
    found = explained(spec_for_parts(1, 256, wanted))
    assert parts(found) == [(("with 1 VGPU less",), 1)]
    none = explained(spec_for_parts(1, 256, {"resources1:CUSTOM_A": "1", "trait1:CUSTOM_B": "required"}))
    assert parts(none) == [(("without any CUSTOM_A",), 1)]


def test_what_is_missing_inside_alone_is_no_lack_of_capacity(world: Any, explained: Any) -> None:
    inside(world, "a", cells=2, cores=2, threads=2)
    found = explained(spec_for_parts(6, 256, PINNED))
    assert [(miss.host, miss.stage, miss.lacks) for miss in found.nearest] == [("a", "NUMA topology", {})]
    assert parts(found) == [(("without pinned CPUs and NUMA cells",), 1)]


def test_two_lacks_are_two_changes(world: Any, explained: Any) -> None:
    inside(world, "a", **SMALL, gpus=0)
    page = PINNED | {"hw:mem_page_size": "1048576"}
    found = explained(spec_for_parts(2, 1024, page, devices(GPU, 1)))
    assert found.nearest == ()
    assert parts(found) == []
    off = explained(spec_for_parts(33, 1024, page))
    assert parts(off) == [(("with 1 VCPU less", "without pinned CPUs and NUMA cells"), 1)]


def test_hosts_that_tell_of_no_cpus_to_pin_fail_on_one_thing(world: Any, explained: Any) -> None:
    world.host("flat")
    found = explained(spec_for_parts(2, 256, PINNED))
    assert [(miss.host, miss.stage, miss.lacks) for miss in found.nearest] == [("flat", "capacity", {"PCPU": 2})]
    assert parts(found) == [(("without pinned CPUs and NUMA cells",), 1)]
    world.host("flat", disabled=True)
    assert parts(explained(spec_for_parts(2, 256, PINNED))) == [
        (("on a host that is down or disabled", "without pinned CPUs and NUMA cells"), 1)
    ]


def test_a_stage_that_has_nobody_left_is_the_last(world: Any, spec: Any, group: Any, explained: Any) -> None:
    world.host("a", used={"VCPU": 16})
    world.host("b")
    world.member("b", "other")
    found = explained(spec(group=group("anti-affinity")))
    assert found.summary() == ("2 hosts considered; 1 left by capacity; 0 left by server group policy anti-affinity")
    world.host("b", used={"VCPU": 16})
    assert explained(spec(group=group("anti-affinity"))).summary() == (
        "2 hosts considered; 0 left by capacity (nearest miss lacks 1 VCPU)"
    )


def test_a_lack_inside_and_another_thing_are_two(world: Any, explained: Any) -> None:
    inside(world, "a", **SMALL, gpus=0, disabled=True)
    found = explained(spec_for_parts(2, 256, PINNED, devices(GPU, 1)))
    assert found.nearest == ()
    assert parts(found) == [(("on a host that is down or disabled", f"without any {GPU} ({GPU.lower()})"), 1)]


def test_less_memory_that_pages_do_not_divide_is_no_change(world: Any, explained: Any) -> None:
    node = inside(world, "a", **SMALL, gpus=0, memory_mb=4096, huge_mb=4096)
    world.claims.assume(Claim(instance=InstanceUuid("i"), attempt=1, node=node, resources={"MEMORY_MB": 2049}))
    huge = {"hw:mem_page_size": "2048"}
    found = explained(spec_for_parts(1, 2048, huge))
    assert parts(found) == []
    world.claims.assume(Claim(instance=InstanceUuid("i"), attempt=1, node=node, resources={"MEMORY_MB": 2050}))
    assert parts(explained(spec_for_parts(1, 2048, huge))) == [(("with 2 MEMORY_MB less",), 1)]


def test_equal_words_are_said_once(make_world: Any, spec: Any) -> None:
    options = PlacementOptions(max_instances_per_host=1)
    world = make_world(filters=("NumInstancesFilter", "AggregateNumInstancesFilter"), options=options)
    world.host("a", instances=1)
    world.host("b")
    world.table.set_aggregate(1, ["a"], {"max_instances_per_host": "5"})
    world.table.set_aggregate(2, ["b"], {"max_instances_per_host": "0"})
    found = world.choose(spec()).explanation
    assert parts(found) == [(("without servers per host",), 1)]
