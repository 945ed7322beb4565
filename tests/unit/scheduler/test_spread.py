"""Topology spread: members of a group evenly over hosts, racks and zones, hard and soft."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from skep.domain.errors import BadRequest
from skep.domain.groups import GroupRule, SpreadConstraint
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.spread import read_extra_specs, read_hint, spread_group
from skep.placement.choice import Choice, NoHost
from skep.placement.groups import GroupSlot
from skep.placement.request import placement_request
from skep.scheduler import changes
from skep.scheduler.records import GroupValue


def constraint(key: Any, max_skew: int = 1, *, hard: bool = True) -> SpreadConstraint:
    return SpreadConstraint(key=key, max_skew=max_skew, hard=hard)


@pytest.fixture
def spread(spec: Callable[..., Any], group: Callable[..., GroupRule]) -> Callable[..., Any]:
    def make(*constraints: SpreadConstraint, policy: str = "soft-affinity", most: int = 1, **changes: Any) -> Any:
        rule = spread_group(group(policy, most), constraints, {})
        return spec(group=rule, **changes)

    return make


@pytest.fixture
def three_zones(world: Any) -> Any:
    for number, zone in enumerate(("east", "north", "west")):
        names = [f"h{number}{letter}" for letter in "abc"]
        for name in names:
            world.host(name)
        world.table.set_aggregate(number, names, {"availability_zone": zone, "rack": f"r{number % 2}"})
    return world


def fill(world: Any, spec: Any, count: int) -> Counter[str]:
    zones: Counter[str] = Counter()
    for number in range(count):
        chosen = world.choose(spec, instance=f"i{number}")
        assert isinstance(chosen, Choice)
        world.member(chosen.host, instance=f"i{number}")
        zones[chosen.zone] += 1
        if all(one.hard for one in spec.group.spread):
            assert max(zones.values()) - min(zones[zone] for zone in ("east", "north", "west")) <= 1
    return zones


def test_members_stand_evenly_over_zones_whatever_their_policy(three_zones: Any, spread: Callable[..., Any]) -> None:
    assert set(fill(three_zones, spread(constraint("zone")), 9).values()) == {3}


def test_a_soft_constraint_spreads_as_long_as_it_can(three_zones: Any, spread: Callable[..., Any]) -> None:
    soft = spread(constraint("zone", hard=False), policy="soft-anti-affinity")
    assert set(fill(three_zones, soft, 6).values()) == {2}
    one_zone = spread(constraint("zone", hard=False), availability_zone="east")
    assert isinstance(three_zones.choose(one_zone, instance="last"), Choice)


def test_a_zone_that_cannot_be_had_does_not_hold_others_back_and_one_that_is_full_does(
    three_zones: Any, spread: Callable[..., Any]
) -> None:
    wish = spread(constraint("zone"))
    for host in ("h0a", "h1a"):
        three_zones.member(host, instance=f"on-{host}")
    for letter in "abc":
        three_zones.host(f"h2{letter}", used={"VCPU": 16})
    refused = three_zones.choose(wish)
    assert isinstance(refused, NoHost)
    assert "0 left by topology spread (zone 1)" in refused.explanation.summary()
    for letter in "abc":
        three_zones.host(f"h2{letter}", used={"VCPU": 16}, disabled=True)
    assert isinstance(three_zones.choose(wish), Choice)


def test_a_host_in_no_rack_is_refused_where_racks_are_asked_for(three_zones: Any, spread: Callable[..., Any]) -> None:
    three_zones.host("alone")
    assert "alone" not in three_zones.fitting(spread(constraint("rack")))
    assert "alone" in three_zones.fitting(spread(constraint("rack", hard=False)))
    three_zones.table.set_aggregate(7, ["alone"], {"rack": "r7"})
    assert "alone" in three_zones.fitting(spread(constraint("rack")))


def test_where_no_host_is_in_a_rack_the_stage_says_so(world: Any, spread: Callable[..., Any]) -> None:
    world.host("a")
    wish = spread(constraint("rack"))
    said = "1 host considered; 0 left by topology spread (rack 1; no host reports a rack)"
    assert world.choose(wish).explanation.summary() == said
    world.table.set_aggregate(7, ["a"], {"rack": "r7"})
    assert world.choose(wish).explanation.summary() == "1 host considered; 1 left by topology spread (rack 1)"
    world.table.drop_aggregate(7)
    assert world.choose(wish).explanation.summary() == said


def test_a_host_that_is_mapped_later_counts_though_all_others_pass_as_before(
    world: Any, spread: Callable[..., Any]
) -> None:
    for name in "abc":
        world.host(name)
    world.table.drop_intent(NodeUuid("node-c"))
    wish = spread(constraint("host"), policy="anti-affinity", most=9)
    world.member("a", instance="on-a")
    world.member("b", instance="on-b")
    assert world.fitting(wish) == {"a", "b"}
    world.host("c")
    assert world.fitting(wish) == {"c"}


def test_a_larger_skew_and_several_constraints(three_zones: Any, spread: Callable[..., Any]) -> None:
    three_zones.member("h0a", instance="one")
    assert {"h0b", "h0c"} <= three_zones.fitting(spread(constraint("zone", 2)))
    assert "h0b" not in three_zones.fitting(spread(constraint("zone", 2), constraint("rack", 1)))
    assert "h0a" not in three_zones.fitting(spread(constraint("host", 1)))


def test_a_move_does_not_count_its_own_slot(three_zones: Any, spread: Callable[..., Any]) -> None:
    three_zones.member("h0a", instance="i")
    assert "h0b" in three_zones.fitting(spread(constraint("zone")))


def test_it_is_judged_again_when_the_slot_is_stored(three_zones: Any, spread: Callable[..., Any]) -> None:
    request = placement_request(spread(constraint("zone")))
    rule = request.spec.group
    assert rule is not None
    assert rule.is_hard
    for host, answer in (("h0b", False), ("h1a", True)):
        slot = GroupSlot(InstanceUuid("second"), 1, NodeUuid(f"node-{host}"))
        spreads = partial(three_zones.placement.spreads, request, slot=slot)
        taking = changes.take_slot(rule, slot, spreads=spreads)
        theirs = GroupValue(slots=(GroupSlot(InstanceUuid("first"), 1, NodeUuid("node-h0a")),))
        assert taking(theirs).answer is answer


def test_hint_and_extra_specs_are_read(group: Callable[..., GroupRule]) -> None:
    assert read_hint("zone:1:hard, rack:2:soft") == (constraint("zone"), constraint("rack", 2, hard=False))
    assert read_extra_specs({"spread:host": "3", "other": "1"}) == (constraint("host", 3),)
    assert spread_group(None, read_hint("zone:1"), {}) is None
    both = spread_group(group("affinity"), read_hint("zone:2"), {"spread:zone": "1", "spread:rack": "1:soft"})
    assert both is not None
    assert both.spread == (constraint("rack", 1, hard=False), constraint("zone", 2))


@pytest.mark.parametrize("text", ["", "zone", "zone:0", "zone:1:maybe", "row:1", "zone:1,zone:2", 7, "zone:1:hard:x"])
def test_what_is_no_constraint_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"^KEY:MAX_SKEW"):
        read_hint(text)


def test_a_broken_extra_spec_is_named() -> None:
    with pytest.raises(BadRequest, match=r"extra spec spread:zone. Value: many. Expected: MAX_SKEW"):
        read_extra_specs({"spread:zone": "many"})
