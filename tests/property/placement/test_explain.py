"""An explanation that is brought up to date says what one says that is worked out anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.domain.builds import Explanation, NearMiss
from skep.domain.cells import HostIntent
from skep.domain.claims import Claim
from skep.domain.flavors import Flavor
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid, ProjectId, UserId
from skep.domain.request_specs import RequestSpec
from skep.domain.resources import Inventory, Resources
from skep.placement.choice import NoHost
from skep.placement.claims import ClaimIndex
from skep.placement.explain import failures, misses
from skep.placement.groups import GroupIndex
from skep.placement.hosts.table import HostTable
from skep.placement.placement import Placement
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from tests.support.samples import examples

CELL = CellUuid("cell-1")
HOSTS = 14
SETTINGS = SchedulerSettings(max_near_misses=2, max_rejected_hosts=5)
FLAVORS: list[dict[str, Any]] = [
    {"vcpus": 4, "memory_mb": 512},
    {"vcpus": 9, "memory_mb": 64},
    {"vcpus": 2, "memory_mb": 512, "extra_specs": {"trait:CUSTOM_A": "required"}},
    {"vcpus": 5, "memory_mb": 768, "extra_specs": {"trait:CUSTOM_A": "forbidden"}},
]
SPECS = [
    RequestSpec(
        project_id=ProjectId("p"),
        user_id=UserId("u"),
        flavor=Flavor(flavorid="1", name="f", **chosen),
        availability_zone=zone,
    )
    for chosen in FLAVORS
    for zone in (None, "nova", "east")
]
numbers = st.integers(0, HOSTS - 1)
events = st.one_of(
    st.tuples(st.just("claim"), numbers, st.integers(1, 4), st.sampled_from([64, 128, 256])),
    st.tuples(st.just("drop"), numbers),
    st.tuples(st.just("report"), numbers, st.integers(1, 8), st.sampled_from([256, 512, 1024]), st.booleans()),
    st.tuples(st.just("wish"), numbers, st.booleans()),
    st.tuples(st.just("unmap"), numbers),
    st.tuples(st.just("zone"), st.sets(numbers, max_size=4)),
    st.tuples(st.just("cell"), st.booleans()),
)


@pytest.fixture(autouse=True)
def few_are_kept_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(misses, "_LEAST_POOL", 3)
    monkeypatch.setattr(failures, "SOME", 100)


class World:
    def __init__(self) -> None:
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.groups = GroupIndex()
        self.placement = Placement(self.table, self.groups, SETTINGS)
        self.claimed: dict[int, list[Claim]] = {number: [] for number in range(HOSTS)}
        self.table.set_cell(CELL, known=True, asserted=True, living=True)
        for number in range(HOSTS):
            self.wish(number, False)
            self.report(number, 1 + number % 8, 512, number % 3 == 0)
        self.table.set_heard(CELL, tuple(NodeUuid(f"n{number}") for number in range(HOSTS)), 1)

    def claim(self, number: int, vcpus: int, memory: int) -> None:
        amounts: Resources = {"VCPU": vcpus, "MEMORY_MB": memory}
        name = InstanceUuid(f"i{number}-{len(self.claimed[number])}")
        claim = Claim(instance=name, attempt=1, node=NodeUuid(f"n{number}"), resources=amounts)
        self.claimed[number].append(claim)
        self.claims.assume(claim)

    def drop(self, number: int) -> None:
        if self.claimed[number]:
            self.claims.drop(self.claimed[number].pop())

    def report(self, number: int, vcpus: int, memory: int, has_trait: bool) -> None:
        usage = HostUsage(
            host=f"h{number}",
            inventory={"VCPU": Inventory(total=vcpus), "MEMORY_MB": Inventory(total=memory)},
            used={},
            traits=("CUSTOM_A",) if has_trait else (),
        )
        self.table.set_report(NodeUuid(f"n{number}"), CELL, usage)

    def wish(self, number: int, disabled: bool) -> None:
        self.table.set_intent(HostIntent(node=NodeUuid(f"n{number}"), host=f"h{number}", cell=CELL, disabled=disabled))

    def unmap(self, number: int) -> None:
        self.table.drop_intent(NodeUuid(f"n{number}"))

    def zone(self, members: set[int]) -> None:
        self.table.set_aggregate(1, [f"h{number}" for number in members], {"availability_zone": "east"})

    def cell(self, disabled: bool) -> None:
        self.table.set_cell(CELL, disabled=disabled)

    def explain(self, placement: Placement, spec: RequestSpec, **limits: Any) -> Explanation | None:
        choice = placement.choose(placement_request(spec, **limits), InstanceUuid("i"), seed=0)
        return choice.explanation if isinstance(choice, NoHost) else None


def distance(miss: NearMiss, spec: RequestSpec) -> tuple[str, int, float]:
    asked = spec.resources()
    return miss.stage, len(miss.lacks), round(sum(amount / asked[name] for name, amount in miss.lacks.items()), 9)


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(events, st.sampled_from(SPECS), st.sets(numbers, max_size=2)), min_size=1, max_size=25),
)
def test_kept_explanations_are_what_new_ones_are(steps: list[tuple[tuple[Any, ...], RequestSpec, set[int]]]) -> None:
    world = World()
    for (event, *arguments), spec, tried in steps:
        getattr(world, event)(*arguments)
        for limits in ({}, {"ignore": tuple(NodeUuid(f"n{number}") for number in sorted(tried))}):
            kept = world.explain(world.placement, spec, **limits)
            anew = world.explain(Placement(world.table, world.groups, SETTINGS), spec, **limits)
            if kept is None or anew is None:
                assert kept is anew
                continue
            for field in ("considered", "stages", "rejected", "verdict", "could_hold"):
                assert getattr(kept, field) == getattr(anew, field)
            assert [distance(miss, spec) for miss in kept.nearest] == [distance(miss, spec) for miss in anew.nearest]
            assert [len(change.parts) for change in kept.changes] == [len(change.parts) for change in anew.changes]


@given(st.sampled_from(SPECS), st.lists(events, max_size=12))
@settings(max_examples=examples(40))
def test_a_change_that_is_named_does_fit(spec: RequestSpec, steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for event, *arguments in steps:
        getattr(world, event)(*arguments)
    found = world.explain(world.placement, spec)
    if found is None:
        return
    asked = spec.resources()
    for change in found.changes:
        if all(part.endswith("less") for part in change.parts):
            less = {name: int(amount) for _, amount, name, _ in (part.split() for part in change.parts)}
            extra = {f"resources:{name}": str(amount - less.get(name, 0)) for name, amount in asked.items()}
            flavor = Flavor(
                **{
                    field: getattr(spec.flavor, field)
                    for field in ("flavorid", "name", "vcpus", "memory_mb", "root_gb")
                }
                | {"extra_specs": {**spec.flavor.extra_specs, **extra}}
            )
            changed = RequestSpec(
                project_id=spec.project_id,
                user_id=spec.user_id,
                flavor=flavor,
                availability_zone=spec.availability_zone,
            )
            request = placement_request(changed, alternates=HOSTS)
            fits = world.placement.might_fit(request, InstanceUuid("i"))
            usable = world.table.ready & world.table.up & ~world.table.disabled
            assert int(np.count_nonzero(fits & usable[: world.table.size])) >= change.hosts >= 1
    assert (found.verdict == "never") is (found.could_hold == 0)
