"""What filters can do beyond their question is looked up once, when a pipeline is made."""

from __future__ import annotations

from typing import Any

import pytest

from skep.placement import registry
from skep.placement.choice import Choice
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Stage, stage_of
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings

ABILITIES = ("fits", "named", "domains", "room", "still", "cause")


def abilities(stage: Stage) -> set[str]:
    return {name for name in ABILITIES if getattr(stage, name) is not None}


def names_without_b(hosts: HostView, _: PlacementRequest) -> Mask:
    return ~hosts.named(("b",))


class NotB:
    """A question that answers for one row, too."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        return names_without_b(hosts, request)

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:  # noqa: ARG002  # the protocol
        return table.hosts[row] != "b"


def test_a_plain_function_can_nothing_more() -> None:
    entry = Filter(name="Mine", passes=names_without_b, stage=lambda _: "mine")
    assert abilities(stage_of(entry)) == set()


def test_a_question_with_methods_can_more() -> None:
    question = NotB()
    stage = stage_of(Filter(name="Mine", passes=question, stage=lambda _: "mine", steady=True))
    assert abilities(stage) == {"fits"}
    assert stage.passes is question
    assert (stage.name, stage.steady, stage.plugin) == ("Mine", True, False)


def test_each_ability_belongs_to_few_filters() -> None:
    stages = registry.pipeline(SchedulerSettings(filters=(*registry.FILTERS, *registry.CONFIGURED))).filters
    able = {name: {stage.name for stage in stages if name in abilities(stage)} for name in ABILITIES}
    assert all(able.values()), "an ability that no filter has"
    assert max(map(len, able.values())) < len(stages) / 3
    assert able["cause"] == {"ComputeFilter"}
    assert able["domains"] == {"TopologySpreadFilter"}
    assert able["still"] >= {"CapacityFilter", "NumInstancesFilter", "IoOpsFilter"}


def test_one_that_judges_rows_is_asked_for_rows(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[int] = []

    class Counted(NotB):
        def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
            masks.append(len(hosts))
            return super().__call__(hosts, request)

    monkeypatch.setitem(registry.FILTERS, "Mine", Filter(name="Mine", passes=Counted(), stage=lambda _: "mine"))
    world = make_world(filters=("ComputeFilter", "Mine"))
    for name in ("a", "b"):
        world.host(name)
    assert isinstance(world.choose(), Choice)
    before = len(masks)
    world.table.add_claimed(world.table.nodes[0], {"VCPU": 1})
    chosen = world.choose()
    assert isinstance(chosen, Choice)
    assert chosen.host == "a"
    assert len(masks) == before
