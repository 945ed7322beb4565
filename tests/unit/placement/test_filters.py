"""Each filter: who passes, and the words of its stage."""

from __future__ import annotations

from typing import Any

import pytest

from skep.placement.filters.extra_spec_values import matches


def test_only_hosts_that_are_up_and_enabled(world: Any) -> None:
    world.host("good")
    world.host("disabled", disabled=True)
    world.host("down", forced_down=True)
    world.host("silent", heard=False)
    assert world.fitting() == {"good"}


def test_a_host_that_a_beat_omits_leaves_at_once_and_comes_back(world: Any) -> None:
    node = world.host("a")
    world.table.set_heard("cell-1", (), 2)
    assert world.fitting() == set()
    assert world.why() == "1 host considered; 0 left by being up and enabled"
    world.table.set_heard("cell-1", (node,), 3)
    assert world.fitting() == {"a"}


def test_a_cell_without_a_living_beat_has_no_candidates(world: Any) -> None:
    world.host("a")
    world.host("b", cell="cell-2")
    world.table.set_cell("cell-1", living=False)
    assert world.fitting() == {"b"}


def test_no_host_before_its_report_nor_before_its_cell_asserted(world: Any) -> None:
    node = world.host("a")
    world.host("b", cell="cell-2")
    world.table.drop_report(node)
    world.table.set_cell("cell-2", asserted=False)
    assert world.why() == "2 hosts considered; 0 left by host reports"


def test_a_host_that_nobody_mapped_is_not_considered(world: Any, usage: Any) -> None:
    world.host("a")
    world.table.set_cell("cell-1", known=True, asserted=True, living=True)
    world.table.set_report("node-stray", "cell-1", usage("stray"))
    world.table.set_heard("cell-1", ("node-a", "node-stray"), 2)
    chosen = world.choose()
    assert chosen.host == "a"
    assert chosen.explanation.considered == 1


@pytest.mark.parametrize(
    ("free", "vcpus", "fits"),
    [({}, 16, True), ({}, 17, False), ({"VCPU": 10}, 6, True), ({"VCPU": 10}, 7, False), ({"VCPU": 99}, 1, False)],
)
def test_capacity_counts_the_ratio_and_what_is_used(
    world: Any, spec: Any, flavor: Any, free: dict[str, int], vcpus: int, fits: bool
) -> None:
    world.host("a", used=free)
    assert bool(world.fitting(spec(flavor=flavor(vcpus=vcpus)))) is fits


def test_capacity_counts_what_is_reserved(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a", memory_mb=2048)
    assert world.fitting(spec(flavor=flavor(memory_mb=1536))) == {"a"}
    reason = world.why(spec(flavor=flavor(memory_mb=2048)))
    assert reason == "1 host considered; 0 left by capacity (nearest miss lacks 512 MEMORY_MB)"


def test_capacity_of_a_class_that_no_host_has(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a")
    wanted = spec(flavor=flavor(**{"resources:CUSTOM_FPGA": "2"}))
    assert world.why(wanted) == "1 host considered; 0 left by capacity (nearest miss lacks 2 CUSTOM_FPGA)"


def test_the_stages_read_as_users_know_them(world: Any, spec: Any, flavor: Any) -> None:
    for number in range(6):
        world.host(f"h{number}", memory_mb=1024 + 512)
    world.table.set_aggregate(1, ["h4", "h5"], {"availability_zone": "other"})
    reason = world.why(spec(flavor=flavor(memory_mb=2048), availability_zone="nova"))
    assert reason == (
        "6 hosts considered; 4 left by availability zone nova; 0 left by capacity (nearest miss lacks 1024 MEMORY_MB)"
    )


def test_zones_follow_the_aggregates(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b")
    world.table.set_aggregate(7, ["b", "not-there-yet"], {"availability_zone": "east"})
    world.host("not-there-yet")
    assert world.fitting(spec(availability_zone="east")) == {"b", "not-there-yet"}
    assert world.fitting(spec(availability_zone="nova")) == {"a"}
    assert world.fitting(spec(availability_zone="west")) == set()
    assert world.choose(spec(availability_zone="east")).zone == "east"
    world.table.drop_aggregate(7)
    assert world.fitting(spec(availability_zone="nova")) == {"a", "b", "not-there-yet"}


def test_a_zone_that_was_asked_for_is_shown_though_it_removed_nobody(world: Any, spec: Any) -> None:
    world.host("a")
    stages = world.choose(spec(availability_zone="nova")).explanation.stages
    assert [(stage.stage, stage.left) for stage in stages] == [("availability zone nova", 1)]
    assert world.choose().explanation.stages == ()


def test_required_aggregates_must_all_hold_the_host(world: Any, spec: Any) -> None:
    for name in "abc":
        world.host(name)
    world.table.set_aggregate(1, ["a", "b"], {})
    world.table.set_aggregate(2, ["b", "c"], {})
    assert world.fitting(spec(required_aggregates=(1,))) == {"a", "b"}
    assert world.fitting(spec(required_aggregates=(1, 2))) == {"b"}
    assert world.why(spec(required_aggregates=(3,))) == "3 hosts considered; 0 left by required aggregates"


def test_scoped_extra_specs_are_compared_with_the_metadata_of_aggregates(world: Any, spec: Any, flavor: Any) -> None:
    for name in "abc":
        world.host(name)
    world.table.set_aggregate(1, ["a"], {"disk": "ssd, nvme", "tier": "3"})
    world.table.set_aggregate(2, ["b"], {"disk": "rust"})

    def who(**wanted: str) -> set[str]:
        scoped = {f"aggregate_instance_extra_specs:{key}": value for key, value in wanted.items()}
        names: set[str] = world.fitting(spec(flavor=flavor(**scoped)))
        return names

    assert who(disk="nvme") == {"a"}
    assert who(disk="<or> rust <or> ssd") == {"a", "b"}
    assert who(tier=">= 2") == {"a"}
    assert who(tier=">= 4") == set()
    assert who(disk="ssd", tier="3") == {"a"}
    assert who(nothing="x") == set()
    refused = spec(flavor=flavor(**{"aggregate_instance_extra_specs:tier": ">= 4"}))
    assert world.why(refused) == "3 hosts considered; 0 left by aggregate metadata (tier >= 4)"


@pytest.mark.parametrize(
    ("value", "wanted", "result"),
    [
        ("4", "= 3", True),
        ("2", "= 3", False),
        ("3.0", "== 3", True),
        ("3", "!= 3", False),
        ("2", "<= 3", True),
        ("abc", "s== abc", True),
        ("abc", "s!= abc", False),
        ("a", "s< b", True),
        ("c", "s>= b", True),
        ("avx avx2", "<in> avx2", True),
        ("avx avx2", "<all-in> avx sse", False),
        ("b", "<or> a <or> b", True),
        ("ssd", "ssd", True),
        ("ssd", "hdd", False),
        ("word", ">= 3", False),
    ],
)
def test_values_of_extra_specs(value: str, wanted: str, result: bool) -> None:
    assert matches(value, wanted) is result


def test_traits_required_and_forbidden(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a", traits=("HW_CPU_X86_AVX", "CUSTOM_GOLD"))
    world.host("b", traits=("HW_CPU_X86_AVX",))
    world.host("c")
    avx = {"trait:HW_CPU_X86_AVX": "required"}
    assert world.fitting(spec(flavor=flavor(**avx))) == {"a", "b"}
    assert world.fitting(spec(flavor=flavor(**avx, **{"trait:CUSTOM_GOLD": "forbidden"}))) == {"b"}
    reason = world.why(spec(flavor=flavor(**{"trait:CUSTOM_NONE": "required", "trait:CUSTOM_GOLD": "forbidden"})))
    assert reason == "3 hosts considered; 0 left by traits (CUSTOM_NONE, no CUSTOM_GOLD)"


def test_more_traits_than_one_word_of_bits(world: Any, spec: Any, flavor: Any) -> None:
    many = tuple(f"CUSTOM_T{number}" for number in range(200))
    world.host("a", traits=many)
    world.host("b", traits=many[:150])
    assert world.fitting(spec(flavor=flavor(**{"trait:CUSTOM_T150": "required"}))) == {"a"}
    assert world.fitting(spec(flavor=flavor(**{"trait:CUSTOM_T149": "required"}))) == {"a", "b"}


def test_affinity_keeps_members_together(world: Any, spec: Any, group: Any) -> None:
    world.host("a")
    world.host("b")
    wanted = spec(group=group("affinity"))
    assert world.fitting(wanted) == {"a", "b"}
    world.member("b")
    assert world.fitting(wanted) == {"b"}


def test_affinity_follows_the_latest_attempt_of_a_member_and_not_ones_own(world: Any, spec: Any, group: Any) -> None:
    world.host("a")
    world.host("b")
    world.member("a", attempt=1)
    world.member("b", attempt=2)
    assert world.fitting(spec(group=group("affinity"))) == {"b"}
    world.member("a", instance="i", attempt=1)
    assert world.choose(spec(group=group("affinity")), "i").host == "b"


@pytest.mark.parametrize(("most", "left"), [(1, {"c"}), (2, {"b", "c"}), (3, {"a", "b", "c"})])
def test_anti_affinity_counts_members(world: Any, spec: Any, group: Any, most: int, left: set[str]) -> None:
    for name in "abc":
        world.host(name)
    for host, instance in (("a", "x"), ("a", "y"), ("b", "z")):
        world.member(host, instance)
    assert world.fitting(spec(group=group("anti-affinity", most))) == left


def test_anti_affinity_counts_every_attempt_that_may_still_be_a_guest(world: Any, spec: Any, group: Any) -> None:
    world.host("a")
    world.host("b")
    world.member("a", "x", 1)
    world.member("b", "x", 2)
    reason = world.why(spec(group=group("anti-affinity")))
    assert reason == "2 hosts considered; 0 left by server group policy anti-affinity"


def test_same_host(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b")
    assert world.fitting(spec(same_host_names=("b",))) == {"b"}
    assert world.fitting(spec(same_host_names=None)) == {"a", "b"}
    assert world.why(spec(same_host_names=())) == "2 hosts considered; 0 left by hint same_host"


def test_different_host(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b")
    assert world.fitting(spec(different_host_names=("b",))) == {"a"}
    assert world.fitting(spec(different_host_names=("a", "b", "gone"))) == set()


def test_hosts_that_were_tried_are_never_chosen(world: Any, spec: Any) -> None:
    for name in "abc":
        world.host(name)
    assert world.fitting(spec(ignore_hosts=("b",)), ignore=("node-a",)) == {"c"}
    assert world.why(ignore=("node-a", "node-b", "node-c")) == "3 hosts considered; 0 left by not having been tried"
    both = world.why(ignore=("node-a", "node-b", "node-c"), home="node-b")
    assert both == "3 hosts considered; 0 left by not being its own host or having been tried"


def test_the_host_that_a_move_leaves_is_said_to_be_that(world: Any) -> None:
    world.host("a")
    assert world.why(ignore=("node-a",), home="node-a") == "1 host considered; 0 left by not being its own host"


def test_preferred_hosts_come_first_if_they_fit(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b", used={"VCPU": 1})
    world.host("full", used={"VCPU": 16})
    assert world.choose().host == "a"
    assert world.choose(prefer=("node-full", "node-b", "node-a")).host == "b"


def test_cells(world: Any) -> None:
    world.host("a")
    world.host("b", cell="cell-2")
    world.table.set_cell("cell-2", disabled=True)
    assert world.fitting() == {"a"}
    assert world.fitting(cell="cell-2") == {"b"}
    assert world.why(exclude_cells=("cell-1",)) == "2 hosts considered; 0 left by cells open to it"
    assert world.why(cell="cell-9") == "2 hosts considered; 0 left by cell"


def test_alternates_are_of_the_same_cell(world: Any) -> None:
    for number in range(6):
        world.host(f"h{number}", cell=f"cell-{number % 2}")
    chosen = world.choose(alternates=5)
    assert len(chosen.alternates) == 2
    assert {int(other.host[1]) % 2 for other in chosen.alternates} == {int(chosen.host[1]) % 2}


def test_a_forced_host_skips_suitability_but_not_capacity(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a", disabled=True, forced_down=True)
    world.host("b")
    picky = flavor(**{"trait:CUSTOM_NONE": "required"})
    assert world.fitting(spec(forced_host="a", availability_zone="east", flavor=picky)) == {"a"}
    assert world.fitting(spec(forced_host="a", flavor=flavor(vcpus=17))) == set()
    assert world.why(spec(forced_host="nobody")) == "2 hosts considered; 0 left by the forced host"


def test_a_forced_node_is_the_hypervisors_name(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b")
    assert world.fitting(spec(forced_host="a", forced_node="a.example")) == {"a"}
    assert world.fitting(spec(forced_host="a", forced_node="b.example")) == set()


def test_a_forced_host_keeps_hard_group_policies(world: Any, spec: Any, group: Any) -> None:
    world.host("a")
    world.host("b")
    world.member("a")
    assert world.fitting(spec(forced_host="a", group=group("anti-affinity"))) == set()


def test_a_requested_host_is_judged_by_all_filters(world: Any, spec: Any) -> None:
    world.host("a")
    world.host("b", disabled=True)
    assert world.fitting(spec(requested_host="a")) == {"a"}
    assert world.fitting(spec(requested_node="a.example")) == {"a"}
    assert world.why(spec(requested_host="b")) == (
        "2 hosts considered; 1 left by the requested host; 0 left by being up and enabled"
    )
