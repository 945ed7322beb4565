"""Servers that tell how long they will live: hosts that are occupied anyway, and what is known of that."""

from __future__ import annotations

import math
from typing import Any

import pytest

from skep.domain.claims import Claim
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.lifetimes import Lifetime
from skep.placement.hosts.view import HostView
from skep.placement.settings import SchedulerSettings

NOW = 1_000_000
LIFETIME = Lifetime(begin=NOW, end=NOW + 100)


@pytest.fixture
def packed(make_world: Any) -> Any:
    return make_world(weighers={"LifetimeWeigher": 1.0})


def claimed(host: str, end: int | None, number: int = 1) -> Claim:
    return Claim(
        instance=InstanceUuid(f"{host}-{number}"),
        attempt=1,
        node=NodeUuid(f"node-{host}"),
        resources={},
        expected_end=end,
    )


def until(world: Any) -> dict[str, float]:
    return dict(zip(world.table.hosts, HostView(world.table).occupied_until.tolist(), strict=True))


def order(world: Any, spec: Any) -> list[str]:
    """Return the hosts, best first, and their scores."""
    chosen = world.choose(spec(lifetime=LIFETIME), alternates=10)
    return [f"{host} {parts['LifetimeWeigher']:g}" for host, parts in chosen.explanation.scores.items()]


def test_the_host_that_is_extended_least_comes_first(packed: Any, spec: Any) -> None:
    packed.host("empty")
    packed.host("half", instances=1, expected_end=NOW + 50)
    packed.host("longer", instances=1, expected_end=NOW + 75)
    packed.host("for-ever", instances=2)
    assert order(packed, spec) == ["for-ever 1", "longer 0.75", "half 0.5", "empty 0"]


def test_a_host_that_should_be_empty_by_now_counts_like_an_empty_one(packed: Any, spec: Any) -> None:
    packed.host("late", instances=1, expected_end=NOW - 50)
    packed.host("soon", instances=1, expected_end=NOW + 1)
    assert order(packed, spec) == ["soon 0.01", "late 0"]


def test_who_tells_no_lifetime_is_not_weighed(packed: Any, spec: Any) -> None:
    packed.host("a", instances=1, expected_end=NOW)
    packed.host("b")
    assert not any(packed.choose(spec()).explanation.scores.values())
    assert {packed.choose(spec(), f"i{number}").host for number in range(20)} == {"a", "b"}


def test_claims_and_reports_are_counted_together(packed: Any) -> None:
    packed.host("a")
    assert until(packed) == {"a": -math.inf}
    first, second = claimed("a", NOW + 10), claimed("a", NOW + 30, 2)
    packed.claims.assume(first)
    packed.claims.assume(second)
    assert until(packed) == {"a": NOW + 30}
    packed.host("a", instances=1, expected_end=NOW + 20)
    assert until(packed) == {"a": NOW + 30}
    packed.claims.drop(second)
    assert until(packed) == {"a": NOW + 20}
    packed.host("a", instances=1)
    assert until(packed) == {"a": math.inf}, "a server without an end is there for ever"
    packed.host("a")
    packed.claims.drop(first)
    assert until(packed) == {"a": -math.inf}


def test_a_claim_without_an_end_is_for_ever(packed: Any) -> None:
    packed.host("a", instances=1, expected_end=NOW)
    packed.host("b")
    endless = claimed("a", None)
    packed.claims.assume(endless)
    packed.claims.assume(claimed("b", NOW + 5))
    assert until(packed) == {"a": math.inf, "b": NOW + 5}
    packed.claims.drop(endless)
    assert until(packed) == {"a": NOW, "b": NOW + 5}


def test_a_stored_claim_counts_with_the_end_that_its_record_holds(packed: Any) -> None:
    node = packed.host("a")
    packed.claims.assume(claimed("a", NOW + 5))
    packed.claims.set_stored(node, (claimed("a", NOW + 9),))
    assert until(packed) == {"a": NOW + 9}
    packed.claims.set_stored(node, (claimed("a", None),))
    assert until(packed) == {"a": math.inf}, "a scheduler of before wrote the record, which knows of no ends"
    packed.claims.set_stored(node, ())
    assert until(packed) == {"a": -math.inf}


def test_an_end_that_no_column_holds_is_refused(packed: Any) -> None:
    node = packed.host("a")
    with pytest.raises(OverflowError, match="expected_end"):
        packed.claims.set_stored(node, (claimed("a", 2**80),))
    with pytest.raises(OverflowError, match="expected_end"):
        packed.host("b", instances=1, expected_end=2**80)


def test_a_host_that_reports_no_more_is_not_known_to_be_occupied(packed: Any) -> None:
    node = packed.host("a", instances=1, expected_end=NOW)
    packed.table.drop_report(node)
    assert until(packed) == {"a": -math.inf}


def test_the_hint_outweighs_how_full_hosts_are(world: Any, spec: Any) -> None:
    assert SchedulerSettings().weighers["LifetimeWeigher"] == 10.0
    world.host("empty")
    world.host("full", instances=9, used={"VCPU": 14, "MEMORY_MB": 7000, "DISK_GB": 90}, expected_end=NOW + 100)
    assert world.choose(spec()).host == "empty"
    assert world.choose(spec(lifetime=LIFETIME)).host == "full"
