"""Decisions: ties, subsets, configuration, explanations."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from skep.domain.claims import Claim
from skep.domain.errors import Misconfigured
from skep.domain.ids import InstanceUuid
from skep.placement.settings import SchedulerSettings


def test_equal_hosts_share_the_load(world: Any) -> None:
    for number in range(10):
        world.host(f"h{number}")
    unclaimed = Counter(world.choose(instance=f"i{number}").host for number in range(500))
    assert len(unclaimed) == 10
    chosen: Counter[str] = Counter()
    for number in range(80):
        choice = world.choose(instance=f"i{number}")
        chosen[choice.host] += 1
        claim = Claim(instance=InstanceUuid(f"i{number}"), attempt=1, node=choice.node, resources={"VCPU": 1})
        world.claims.assume(claim)
    assert set(chosen.values()) == {8}


def test_the_order_in_which_hosts_became_known_does_not_matter(make_world: Any) -> None:
    one, other = make_world(), make_world()
    names = [f"h{number}" for number in range(10)]
    for name in names:
        one.host(name)
    for name in reversed(names):
        other.host(name)
    for number in range(20):
        assert one.choose(instance=f"i{number}") == other.choose(instance=f"i{number}")


def test_a_subset_spreads_over_the_best_only(make_world: Any) -> None:
    world = make_world(host_subset_size=3)
    for number in range(6):
        world.host(f"h{number}", used={"VCPU": number})
    chosen = {world.choose(instance=f"i{number}").host for number in range(100)}
    assert chosen == {"h0", "h1", "h2"}


@pytest.mark.parametrize("settings", [{"filters": ("NoFilter",)}, {"weighers": {"NoWeigher": 1.0}}])
def test_an_unknown_name_is_a_misconfiguration(make_world: Any, settings: Any) -> None:
    with pytest.raises(Misconfigured, match="there are"):
        make_world(**settings)


def test_a_filter_that_is_left_out_does_not_run(make_world: Any) -> None:
    filters = tuple(name for name in SchedulerSettings().filters if name != "ComputeFilter")
    world = make_world(filters=filters)
    world.host("a", disabled=True)
    assert world.fitting() == {"a"}


def test_no_hosts_at_all(world: Any) -> None:
    assert world.why() == "0 hosts considered"


def test_near_misses_and_rejected_hosts_are_bounded_and_say_what_is_missing(
    make_world: Any, spec: Any, flavor: Any
) -> None:
    world = make_world(max_rejected_hosts=7, max_near_misses=3)
    for number in range(20):
        world.host(f"h{number:02}", used={"VCPU": number % 16})
    world.host("off", disabled=True)
    world.host("both", disabled=True, used={"VCPU": 16})
    explanation = world.choose(spec(flavor=flavor(vcpus=17))).explanation
    assert [(miss.stage, miss.lacks) for miss in explanation.nearest] == [
        ("capacity", {"VCPU": 1}),
        ("capacity", {"VCPU": 1}),
        ("capacity", {"VCPU": 2}),
    ]
    assert (explanation.near, len(explanation.rejected)) == (20, 7)
    assert set(explanation.rejected.values()) == {"capacity"}


def test_a_near_miss_of_another_stage_names_no_amount(world: Any) -> None:
    world.host("off", disabled=True)
    explanation = world.choose().explanation
    assert [(miss.host, miss.stage, miss.lacks) for miss in explanation.nearest] == [
        ("off", "being up and enabled", {})
    ]
    assert explanation.rejected == {"off": "being up and enabled (disabled, no reason given)"}
    assert explanation.summary() == "1 host considered; 0 left by being up and enabled"


def test_shapes_are_forgotten_when_there_are_too_many(make_world: Any, spec: Any, flavor: Any) -> None:
    world = make_world(cached_shapes=2)
    world.host("a")
    for vcpus in (1, 2, 3, 1, 17, 1):
        assert bool(world.fitting(spec(flavor=flavor(vcpus=vcpus)))) is (vcpus < 17)
