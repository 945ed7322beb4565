"""How many more servers fit, in words."""

from __future__ import annotations

from typing import Any

from skep.cli import capacity


def counted(**more: Any) -> dict[str, Any]:
    return {
        "flavor": "f",
        "servers": 0,
        "hosts": 0,
        "suitable": 0,
        "considered": 1,
        "asked": {"VCPU": 2},
        "stages": [],
        "kept_free": [],
        "not_ready": 0,
        "limits": {},
        "left_over": {"VCPU": 1},
        "too_small": {},
        "not_counted": [],
        **more,
    }


def test_hosts_that_are_too_small_are_said_to_be_so() -> None:
    stages = [{"stage": "capacity, when empty", "left": 0}]
    assert list(capacity.text(counted(stages=stages, too_small={"VCPU": 1}))) == [
        "0 more servers of f fit",
        "  each takes 2 VCPU",
        "  1 host considered",
        "      0 left by capacity, when empty",
        "  no host is suitable",
        "  too small even when empty: VCPU on 1 host",
    ]


def test_where_all_suitable_hosts_are_kept_free_no_other_is_suitable() -> None:
    assert list(capacity.text(counted(kept_free=["a"])))[3:] == ["  no other host is suitable", "  kept free: a"]


def test_what_runs_out_is_said_by_resource() -> None:
    found = counted(
        servers=4,
        hosts=1,
        suitable=3,
        limits={"MEMORY_MB": 1, "servers per host": 2},
        not_counted=["operations under way per host"],
    )
    assert list(capacity.text(found))[3:] == [
        "  1 of 3 suitable hosts has room",
        "  what runs out first on the suitable hosts:",
        "      2 servers per host",
        "      1 MEMORY_MB",
        "  free on them then: 1 VCPU",
        "  fewer may fit: how many operations under way per host would let through is not counted",
    ]
