"""How many more servers fit, where, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.capacity import Capacity, PartRoom
from skep.domain.errors import BadRequest
from skep.domain.ids import CellUuid
from skep.placement.options import PlacementOptions
from skep.placement.request import placement_request


def count(world: Any, spec: Any, keep_free: int = 0, **limits: Any) -> Capacity:
    found: Capacity = world.placement.capacity(placement_request(spec, **limits), keep_free)
    return found


def test_servers_hosts_and_what_runs_out_first(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a")
    world.host("b", used={"VCPU": 14})
    world.host("c", used={"VCPU": 16})
    found = count(world, spec(flavor=flavor(vcpus=1, memory_mb=1024, root_gb=0)))
    assert (found.servers, found.hosts, found.suitable, found.considered) == (7 + 2, 2, 3, 3)
    assert found.asked == {"VCPU": 1, "MEMORY_MB": 1024}
    assert (found.runs_out_first, found.limits) == ("VCPU", {"VCPU": 2, "MEMORY_MB": 1})
    assert found.left_over == {"VCPU": 9, "MEMORY_MB": 512 + 5 * 1024 + 512 + 7 * 1024 + 512}
    assert found.sizes == {0: 1, 2: 1, 4: 1}
    assert found.not_counted == ()


def test_zones_cells_and_aggregates_have_their_own_room(world: Any, spec: Any, flavor: Any) -> None:
    other = CellUuid("cell-2")
    for name in ("a", "b"):
        world.host(name)
    world.host("c", cell=other)
    world.table.set_aggregate(7, ["b", "c"], {"availability_zone": "east"})
    world.table.set_aggregate(8, ["nobody"], {})
    found = count(world, spec(flavor=flavor(vcpus=8)))
    assert found.zones == (
        PartRoom(name="east", servers=4, hosts=2, suitable=2),
        PartRoom(name="nova", servers=2, hosts=1, suitable=1),
    )
    assert [(room.name, room.servers) for room in found.cells] == [("cell-1", 4), ("cell-2", 2)]
    assert [(room.name, room.servers) for room in found.aggregates] == [("7", 4)]
    narrowed = count(world, spec(flavor=flavor(vcpus=8), availability_zone="east"))
    assert (narrowed.servers, [room.name for room in narrowed.zones]) == (4, ["east"])
    assert [(stage.stage, stage.left) for stage in narrowed.stages] == [("availability zone east", 2)]
    assert count(world, spec(flavor=flavor(vcpus=8)), cell=other).servers == 2


def test_the_emptiest_hosts_are_kept_free(world: Any, spec: Any, flavor: Any) -> None:
    world.host("full", used={"VCPU": 12})
    world.host("half", used={"VCPU": 8})
    world.host("empty")
    wanted = spec(flavor=flavor(vcpus=4, memory_mb=64, root_gb=0))
    assert [count(world, wanted, kept).servers for kept in range(5)] == [7, 3, 1, 0, 0]
    assert count(world, wanted, 2).kept_free == ("empty", "half")
    assert (count(world, wanted, 4).runs_out_first, count(world, wanted, 4).limits) == ("", {})


def test_hosts_that_filters_reject_are_not_counted(world: Any, spec: Any, flavor: Any) -> None:
    world.host("down", heard=False)
    world.host("off", disabled=True)
    world.host("plain")
    world.host("gold", traits=("CUSTOM_GOLD",))
    world.host("silent")
    world.table.drop_report("node-silent")
    found = count(world, spec(flavor=flavor(vcpus=16, **{"trait:CUSTOM_GOLD": "required"})))
    assert (found.servers, found.suitable, found.considered, found.not_ready) == (1, 1, 5, 1)
    assert [stage.left for stage in found.stages] == [4, 2, 1]


def test_nobody_has_the_class(world: Any, spec: Any, flavor: Any) -> None:
    world.host("a")
    found = count(world, spec(flavor=flavor(**{"resources:CUSTOM_FPGA": "1"})))
    assert (found.servers, found.suitable, found.runs_out_first) == (0, 0, "")
    assert found.too_small == {"CUSTOM_FPGA": 1}
    assert [(stage.stage, stage.left) for stage in found.stages] == [("capacity, when empty", 0)]


def test_what_runs_out_is_said_in_the_words_of_explanations(make_world: Any, spec: Any, flavor: Any) -> None:
    filters = ("NumInstancesFilter", "AggregateNumInstancesFilter", "IoOpsFilter")
    world = make_world(filters=filters, options=PlacementOptions(max_instances_per_host=3))
    world.host("few", instances=2)
    world.host("one")
    world.host("none", instances=9)
    world.host("small", vcpus=0)
    world.table.set_aggregate(1, ["one"], {"max_instances_per_host": "1"})
    found = count(world, spec(flavor=flavor(vcpus=1, memory_mb=1024)))
    assert (found.servers, found.suitable, found.too_small) == (2, 3, {"VCPU": 1})
    assert found.limits == {"servers per host": 3}
    assert found.not_counted == ("operations under way per host",)


def test_a_cloud_without_hosts(world: Any, spec: Any) -> None:
    found = count(world, spec(), 3)
    assert (found.servers, found.considered, found.sizes, found.zones) == (0, 0, {}, ())


def test_a_flavor_that_takes_nothing_has_no_number(world: Any, spec: Any, flavor: Any) -> None:
    none = flavor(**{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"})
    with pytest.raises(BadRequest, match="any number"):
        count(world, spec(flavor=none))
