"""Filters that name their rows: the same answer as their masks, and counts by subtraction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from skep.domain.groups import SpreadConstraint
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.placement.filters.abilities import Named
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Stage, stage_of
from skep.placement.ranking.narrowing import Narrowing
from skep.placement.registry import FILTERS, LAST
from skep.placement.request import PlacementRequest, placement_request
from skep.placement.spreading import Domains

NAMING = [stage for entry in (*FILTERS.values(), *LAST) if (stage := stage_of(entry)).named is not None]


@pytest.fixture
def cloud(world: Any) -> Any:
    for name in ("a", "b", "c", "d"):
        world.host(name)
    world.member("a", "first")
    world.member("b", "second")
    return world


def asked(cloud: Any, spec: Callable[..., Any], group: Callable[..., Any], policy: str) -> PlacementRequest:
    """Return a request that every one of these filters has something to say about."""
    wish = spec(
        group=group(policy),
        same_host_names=("a", "c", "unknown"),
        different_host_names=("b",),
        ignore_hosts=("d",),
    )
    request = placement_request(wish, ignore=(NodeUuid("node-a"), NodeUuid("node-unknown")))
    for_member: PlacementRequest = cloud.placement.for_member(request, InstanceUuid("i"))
    return for_member


def test_some_filters_name_their_rows() -> None:
    assert {entry.name for entry in NAMING} >= {
        "ServerGroupAffinityFilter",
        "ServerGroupAntiAffinityFilter",
        "SameHostFilter",
        "DifferentHostFilter",
        "IgnoredHostsFilter",
    }


@pytest.mark.parametrize("policy", ["affinity", "anti-affinity"])
@pytest.mark.parametrize("entry", NAMING, ids=lambda entry: entry.name)
def test_the_named_rows_say_what_the_mask_says(
    cloud: Any, spec: Callable[..., Any], group: Callable[..., Any], entry: Stage, policy: str
) -> None:
    request = asked(cloud, spec, group, policy)
    for one in (request, replace(request, group_nodes={})):
        assert entry.named is not None
        named = entry.named(cloud.table, one)
        mask = entry.passes(HostView(cloud.table), one).tolist()
        assert mask == [(row in named.rows) == named.only for row in range(cloud.table.size)]


def test_what_is_left_is_counted_without_looking_at_others() -> None:
    fits = memoryview(bytes([1, 1, 0, 1, 1, 1]))
    narrowing = Narrowing(fits, 1, 5)
    narrowing.take(Named({0, 2}))
    assert (narrowing.left, narrowing.only) == (4, None)
    narrowing.take(Named({0, 1}))
    assert (narrowing.left, set(narrowing.barred)) == (3, {0, 1})
    narrowing.take(Named({1, 2, 3, 4}, only=True))
    assert (narrowing.left, narrowing.only) == (2, {3, 4})
    narrowing.take(Named({4}))
    assert (narrowing.left, narrowing.only) == (1, {3})
    narrowing.take(Named({5}, only=True))
    assert (narrowing.left, narrowing.only) == (0, set())


def test_who_is_outside_of_the_domains_is_counted_out_by_domain() -> None:
    fits = np.array([1, 1, 0, 1, 1, 1, 1], dtype=np.uint8)
    codes = np.array([1, 1, 1, 2, 2, 3, 0], dtype=np.int32)
    fitting = np.bincount(codes[fits == 1], minlength=4)
    zone = Domains(SpreadConstraint(key="zone", max_skew=1), codes, np.array([0, 0, 1, -1]), fitting)
    for barred in (set[int](), {0}, {0, 3}, {5, 6}):
        narrowing = Narrowing(fits.data, 1, 6)
        narrowing.take(Named(barred))
        narrowing.stay_within(zone)
        left = {0, 1, 5} - barred
        assert narrowing.left == len(left)
        assert set(narrowing.of(fits == 1).nonzero()[0].tolist()) == left
        assert set(narrowing.those_left(iter([0, 1, 3, 4, 5, 6]))) == left
        assert {row for row in (0, 1, 3, 4, 5, 6) if narrowing.lets(row)} == left
        narrowing.take(Named({1, 3, 4}, only=True))
        assert (narrowing.left, narrowing.only) == (1, {1})
        narrowing.stay_within(zone)
        assert narrowing.only == {1}
