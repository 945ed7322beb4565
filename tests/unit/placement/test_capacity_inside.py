"""How many more servers fit that ask for parts of a host's inside: counted as they are placed, one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.ids import NodeUuid
from skep.placement.request import placement_request
from skep.simulator.inside import GPU, devices, host_with_inside, spec_for_parts

PINNED = {"hw:cpu_policy": "dedicated"}


def inside(world: Any, name: str, **amounts: int) -> NodeUuid:
    usage = host_with_inside(name, **amounts)
    node: NodeUuid = world.host(name, inventory=usage.inventory, topology=usage.topology)
    return node


@pytest.mark.parametrize(
    "spec",
    [
        spec_for_parts(2, 256, PINNED),
        spec_for_parts(3, 256, PINNED),
        spec_for_parts(1, 256, {}, devices(GPU, 1)),
        spec_for_parts(2, 256, PINNED, devices(GPU, 1)),
    ],
)
def test_as_many_are_placed_as_were_counted(world: Any, spec: Any) -> None:
    world.host("flat")
    inside(world, "small", cells=1, cores=2, threads=2, gpus=1)
    for number in range(3):
        inside(world, f"large{number}", cells=2, cores=3, threads=2, gpus=2)
    counted = world.placement.capacity(placement_request(spec))
    assert counted.not_counted == ()
    assert counted.servers == world.fill(spec) > 0
    assert world.placement.capacity(placement_request(spec)).servers == 0


def test_hosts_whose_inside_never_holds_one_are_not_suitable(world: Any) -> None:
    world.host("flat")
    inside(world, "narrow", cells=2, cores=1, threads=2)
    inside(world, "wide", cells=1, cores=2, threads=2)
    spec = spec_for_parts(3, 256, PINNED)
    assert world.fill(spec) == 1
    counted = world.placement.capacity(placement_request(spec))
    assert (counted.servers, counted.suitable, counted.too_small) == (0, 1, {"PCPU": 1})
    assert [(stage.stage, stage.left) for stage in counted.stages] == [
        ("capacity, when empty", 2),
        ("NUMA topology, when empty", 1),
    ]


def test_what_is_not_counted_is_named(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.placement.filters.inside.MOST_COUNTED", 1)
    inside(world, "one", cells=2, cores=3, threads=2)
    counted = world.placement.capacity(placement_request(spec_for_parts(3, 256, PINNED)))
    assert counted.not_counted == ("NUMA topology",)
