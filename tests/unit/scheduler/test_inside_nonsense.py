"""Reports of the inside of hosts that make no sense are refused with the field's name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.providers import Allocation, CellShare, NumaCell, Provider, Topology
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import HostReport
from skep.scheduler.nonsense import nonsense
from skep.simulator.inside import host_with_inside

GOOD = {"CUSTOM_A": Inventory(total=1)}


def report(topology: Topology | None, taken: Allocation | None = None) -> HostReport:
    known = host_with_inside("h", vgpus=2)
    usage = type(known)(
        host="h",
        inventory=known.inventory,
        used={},
        hypervisor_hostname="h",
        topology=topology or known.topology,
        taken=taken,
    )
    return HostReport(node=NodeUuid("n"), cell=CellUuid("c"), incarnation=1, seq=1, usage=usage)


def test_what_makes_sense() -> None:
    assert nonsense(report(None)) is None


@pytest.mark.parametrize(
    ("topology", "field"),
    [
        (Topology(cells=(NumaCell(number=0, cores=((-1,),)),)), "usage.topology.cells"),
        (Topology(cells=(NumaCell(number=0, cores=((10**9,),)),)), "usage.topology.cells"),
        (Topology(cells=(NumaCell(number=0, cores=((1,), (1,))),)), "usage.topology.cells"),
        (Topology(cells=(NumaCell(number=0), NumaCell(number=0))), "usage.topology.cells"),
        (Topology(cells=(NumaCell(number=0, pages={0: 1}),)), "usage.topology.cells"),
        (Topology(cells=(NumaCell(number=0, pages={4: -1}),)), "usage.topology.cells"),
        (Topology(providers=(Provider(name="", inventory=GOOD),)), "usage.topology.providers"),
        (Topology(providers=(Provider(name="a", inventory={}),)), "usage.topology.providers"),
        (Topology(providers=(Provider(name="a", inventory={"gpu": Inventory(total=1)}),)), "usage.topology.providers"),
        (
            Topology(providers=(Provider(name="a", inventory={"VGPU": Inventory(total=-1)}),)),
            "usage.topology.providers.a",
        ),
        (Topology(providers=(Provider(name="a", inventory=GOOD, devices=("x", "x")),)), "usage.topology.providers"),
        (Topology(providers=(Provider(name="a", inventory=GOOD, traits=("what",)),)), "usage.traits"),
    ],
)
def test_nonsense_is_named(topology: Topology, field: str) -> None:
    found = nonsense(report(topology))
    assert found is not None
    assert found.startswith(field)


def test_measured_amounts_can_be_added() -> None:
    good = report(None)
    for value, field in ((1e15, None), (-1e300, "usage.metrics.cpu"), (float("nan"), "usage.metrics.cpu")):
        found = nonsense(replace(good, usage=replace(good.usage, metrics={"cpu": value})))
        assert (found is None) if field is None else (found or "").startswith(field)


def test_nonsense_of_what_is_held() -> None:
    found = nonsense(report(None, Allocation(cells=(CellShare(cell=0, cpus=(-3,)),))))
    assert found is not None
    assert found.startswith("usage.taken")
