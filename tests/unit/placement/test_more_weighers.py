"""Weighers beside those of free resources and groups, and multipliers that aggregates set."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.images import Image
from skep.domain.providers import Allocation, Provider, ProviderShare, Topology
from skep.domain.resources import Inventory
from skep.placement.hosts.table import HostTable
from skep.placement.options import PlacementOptions
from skep.placement.request import placement_request


def world_with(make_world: Any, weighers: dict[str, float], **options: Any) -> Any:
    return make_world(weighers=weighers, options=PlacementOptions(**options))


def first(world: Any, spec: Any = None, **limits: Any) -> str:
    """Return the host that is chosen whatever the server is called."""
    chosen = {world.choose(spec, f"i{number}", **limits).host for number in range(5)}
    assert len(chosen) == 1
    return str(chosen.pop())


def test_fewer_operations_under_way_come_first(make_world: Any) -> None:
    world = world_with(make_world, {"IoOpsWeigher": -1.0})
    world.host("a", io_ops=2)
    world.host("b", io_ops=1)
    assert first(world) == "b"
    for number in range(2):
        world.claims.assume(
            Claim(instance=InstanceUuid(f"x{number}"), attempt=1, node=NodeUuid("node-b"), resources={})
        )
    assert first(world) == "a"


@pytest.mark.parametrize(("multiplier", "host"), [(-1.0, "b"), (1.0, "a")])
def test_servers_are_spread_or_stacked(make_world: Any, multiplier: float, host: str) -> None:
    world = world_with(make_world, {"NumInstancesWeigher": multiplier})
    world.host("a", instances=3)
    world.host("b", instances=1)
    assert first(world) == host


@pytest.mark.parametrize(("multiplier", "host"), [(1.0, "new"), (-1.0, "old")])
def test_newer_hypervisors_come_first(make_world: Any, usage: Any, multiplier: float, host: str) -> None:
    world = world_with(make_world, {"HypervisorVersionWeigher": multiplier})
    world.host("old", hypervisor_version=6002000)
    world.host("new", hypervisor_version=8000001)
    assert first(world) == host
    world.table.set_report("node-old", "cell-1", usage("old", hypervisor_version=9000000))
    assert first(world) != host


def test_a_major_version_does_not_outweigh_a_full_host(world: Any) -> None:
    world.host("new", hypervisor_version=8000000, used={"VCPU": 15})
    world.host("old", hypervisor_version=7000000)
    assert first(world) == "old"


def test_a_move_stays_in_its_cell_if_it_can(world: Any) -> None:
    world.host("far", cell="cell-2", vcpus=64)
    world.host("near", used={"VCPU": 15})
    assert first(world) == "far"
    assert first(world, source_cell="cell-1") == "near"
    assert first(world, source_cell="cell-2") == "far"
    assert first(world, source_cell="cell-1", ignore=("node-near",)) == "far"
    assert first(world) == "far"
    scores = world.choose(source_cell="cell-1").explanation.scores["near"]
    assert scores["CrossCellWeigher"] == 1.0
    assert "CrossCellWeigher" not in world.choose().explanation.scores["far"]


def test_metrics_are_added_up_by_their_ratios(make_world: Any, usage: Any) -> None:
    world = world_with(make_world, {"MetricsWeigher": 1.0}, metrics_weight_setting={"cpu": -1.0, "disk": 0.5})
    world.host("a", metrics={"cpu": 0.5, "disk": 0.2})
    world.host("b", metrics={"cpu": 0.25, "disk": 0.2})
    world.host("c", metrics={"cpu": 0.1})
    assert first(world) == "b"
    assert world.fitting() == {"a", "b"}, "metrics are required by default"
    world.table.set_report("node-a", "cell-1", usage("a", metrics={"cpu": 0.0, "disk": 0.0}))
    assert first(world) == "a"
    assert world.why(ignore=("node-a", "node-b")).startswith("3 hosts considered; 2 left by reported metrics")


def test_a_host_without_a_metric_comes_last_where_none_is_required(make_world: Any) -> None:
    world = world_with(
        make_world, {"MetricsWeigher": 1.0}, metrics_weight_setting={"cpu": -1.0}, metrics_required=False
    )
    world.host("mute")
    world.host("busy", metrics={"cpu": 99.0})
    assert first(world) == "busy"
    assert world.fitting() == {"busy", "mute"}


def test_metrics_filter_may_be_chosen_alone(make_world: Any) -> None:
    world = make_world(
        filters=("MetricsFilter",),
        weighers={},
        options=PlacementOptions(metrics_weight_setting={"cpu": 1.0, "disk": 0.0}),
    )
    world.host("a", metrics={"cpu": 0.5, "disk": 1.0})
    world.host("b", metrics={"cpu": 0.5})
    assert world.fitting() == {"a"}


@pytest.mark.parametrize(
    ("setting", "multiplier", "host"),
    [
        ({}, 1.0, "both"),
        ({}, -1.0, "none"),
        ({"os_distro": 1.0}, 1.0, "distro"),
        ({"hw_machine_type": 1.0, "os_distro": 0.0}, 1.0, "both"),
    ],
)
def test_images_of_a_kind_come_together_or_apart(
    make_world: Any, spec: Any, setting: Any, multiplier: float, host: str
) -> None:
    world = world_with(make_world, {"ImagePropertiesWeigher": multiplier}, image_props_weight_setting=setting)
    world.host("both", image_properties={"os_distro=debian": 1, "hw_machine_type=q35": 2})
    world.host("distro", image_properties={"os_distro=debian": 2, "hw_machine_type=pc": 9})
    world.host("none", image_properties={"os_distro=windows": 5})
    wanted = spec(image=Image(id="i", properties={"os_distro": "debian", "hw_machine_type": "q35"}))
    assert first(world, wanted) == host


def test_other_images_are_not_weighed_by_those_properties(make_world: Any, spec: Any) -> None:
    world = world_with(make_world, {"CPUWeigher": 1.0, "ImagePropertiesWeigher": 100.0})
    world.host("full", used={"VCPU": 8}, image_properties={"os_distro=debian": 1})
    world.host("free")
    debian = spec(image=Image(id="i", properties={"os_distro": "debian"}))
    windows = spec(image=Image(id="j", properties={"os_distro": "windows"}))
    for _ in range(2):
        assert first(world, debian) == "full"
        assert first(world, windows) == "free"
        assert first(world) == "free"


def test_an_aggregate_sets_the_multiplier_for_its_hosts(make_world: Any) -> None:
    world = make_world(weighers={"CPUWeigher": 1.0})
    world.host("a", used={"VCPU": 4})
    world.host("b")
    assert first(world) == "b"
    world.table.set_aggregate(1, ["a"], {"cpu_weight_multiplier": "10"})
    assert first(world) == "a"
    world.table.add_claimed("node-a", {"VCPU": 11})
    assert first(world) == "b"
    world.table.add_claimed("node-a", {"VCPU": 11}, -1)
    assert first(world) == "a"
    world.table.set_aggregate(2, ["a", "b"], {"cpu_weight_multiplier": "-1"})
    assert first(world) == "a", "the least of several: both -1, and a is fuller"
    world.table.drop_aggregate(1)
    world.table.drop_aggregate(2)
    assert first(world) == "b"


def test_an_aggregate_calls_a_weigher_that_is_off(make_world: Any, spec: Any) -> None:
    world = make_world(weighers={"CPUWeigher": 1.0, "NumInstancesWeigher": 0.0, "ImagePropertiesWeigher": 0.0})
    world.host("a", instances=9, image_properties={"os_distro=debian": 9})
    world.host("b")
    world.host("c", used={"VCPU": 1}, instances=9, image_properties={"os_distro=debian": 9})
    assert first(world, ignore=("node-a",)) == "b"
    world.table.set_aggregate(1, ["c"], {"num_instances_weight_multiplier": "100"})
    assert first(world, ignore=("node-a",)) == "c"
    world.table.set_aggregate(1, ["c"], {"image_props_weight_multiplier": "100"})
    assert first(world, ignore=("node-a",)) == "b"
    debian = spec(image=Image(id="i", properties={"os_distro": "debian"}))
    assert first(world, debian) == "c"
    world.table.set_aggregate(1, ["c"], {})
    assert first(world, debian, ignore=("node-a",)) == "b"


def test_what_a_host_was_ranked_by_is_told_with_aggregates_multipliers(make_world: Any) -> None:
    world = world_with(make_world, {"CPUWeigher": 2.0, "RAMWeigher": 1.0})
    world.host("a", used={"VCPU": 4})
    world.host("b")
    world.table.set_aggregate(1, ["a"], {"cpu_weight_multiplier": "10"})
    chosen = world.choose(alternates=1).explanation
    assert chosen.multiplied == {"a": {"CPUWeigher": 10.0}}
    assert chosen.contributions() == {
        host: {"CPUWeigher": by * chosen.scores[host]["CPUWeigher"], "RAMWeigher": chosen.scores[host]["RAMWeigher"]}
        for host, by in (("a", 10.0), ("b", 2.0))
    }
    sums = [sum(parts.values()) for parts in chosen.contributions().values()]
    assert sums == sorted(sums, reverse=True)
    assert chosen.scores["a"] != chosen.scores["b"]


def test_members_that_are_decided_together_tell_multipliers_too(make_world: Any, spec: Any) -> None:
    world = world_with(make_world, {"CPUWeigher": 2.0})
    world.host("a")
    world.table.set_aggregate(1, ["a"], {"cpu_weight_multiplier": "10"})
    chosen = world.placement.choose_together(placement_request(spec()), 2, salt=0)[1].explanation
    alone = world.choose().explanation
    assert (chosen.multipliers, chosen.multiplied) == (alone.multipliers, alone.multiplied)
    assert chosen.multiplied == {"a": {"CPUWeigher": 10.0}}


def test_an_aggregate_sets_the_multiplier_of_a_groups_policy(make_world: Any, spec: Any, group: Any) -> None:
    world = make_world(weighers={"ServerGroupSoftAffinityWeigher": 1.0})
    world.host("a")
    world.host("b")
    world.member("b", "one")
    world.member("b", "two")
    world.member("a", "three")
    wanted = spec(group=group("soft-affinity"))
    assert first(world, wanted) == "b"
    world.table.set_aggregate(1, ["a"], {"soft_affinity_weight_multiplier": "3"})
    assert first(world, wanted) == "a"


@pytest.mark.parametrize(
    ("said", "multiplier"),
    [
        ([], 7.0),
        (["2"], 2.0),
        (["2", "1.5"], 1.5),
        (["2", "many"], 7.0),
        (["inf"], 7.0),
        (["1e300"], 7.0),
        (["-1e300"], 7.0),
        (["-3", "0"], -3.0),
    ],
)
def test_the_least_of_several_numbers_holds(said: list[str], multiplier: float) -> None:
    table = HostTable()
    table.set_intent(HostIntent(node=NodeUuid("node-a"), host="a", cell=CellUuid("cell-1")))
    for number, value in enumerate(said):
        table.set_aggregate(number, ["a"], {"ram_weight_multiplier": value, "other": "5"})
    assert table.multipliers.of_row("ram_weight_multiplier", 0, 7.0) == multiplier
    assert table.multipliers.of_row("cpu_weight_multiplier", 0, 7.0) == 7.0


def test_hosts_that_come_later_are_in_their_aggregates(make_world: Any) -> None:
    world = make_world(weighers={"CPUWeigher": 1.0})
    names = [f"h{number}" for number in range(40)]
    world.table.set_aggregate(1, names[30:], {"cpu_weight_multiplier": "2"})
    for name in names:
        world.host(name)
    assert {world.choose(instance=f"i{number}").host for number in range(40)} <= set(names[30:])


def test_devices_are_left_to_who_needs_many(make_world: Any) -> None:
    world = world_with(make_world, {"PCIWeigher": 1.0})
    cards = Provider(
        name="cards", inventory={"CUSTOM_CARD": Inventory(total=2)}, devices=("0000:01:00.0", "0000:02:00.0")
    )
    topology = Topology(providers=(cards,))
    world.host("free", topology=topology)
    world.host("half", topology=topology)
    held = Allocation(providers=(ProviderShare(provider="cards", resources={}, devices=("0000:01:00.0",)),))
    node = NodeUuid("node-half")
    world.claims.assume(
        Claim(instance=InstanceUuid("x"), attempt=1, node=node, resources={"CUSTOM_CARD": 1}, allocation=held)
    )
    assert first(world) == "half"
    world.host("plain")
    assert first(world) == "plain"
    scores = world.choose(alternates=2).explanation.scores
    assert {host: one["PCIWeigher"] for host, one in scores.items()} == {"plain": 1.0, "half": 0.5, "free": 0.0}


def test_of_novas_way_of_weighing_the_devices_are_counted(make_world: Any) -> None:
    world = make_world(weighers={"PCIWeigher": 1.0}, normalization="min-max")
    for name, count in (("one", 1), ("two", 2), ("none", 0)):
        devices = tuple(f"0000:0{number}:00.0" for number in range(count))
        pool = Provider(name="cards", inventory={"CUSTOM_CARD": Inventory(total=count)}, devices=devices)
        world.host(name, topology=Topology(providers=(pool,)))
    assert first(world) == "none"
    assert first(world, ignore=("node-none",)) == "one"
