"""Ratios and reserves by aggregate: the least wins, never more than the host's own."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.resources import Inventory
from skep.placement.hosts.aggregate_limits import capacity_under


@pytest.mark.parametrize(
    ("metadata", "capacity"),
    [
        ([], 64),
        ([{"ssd": "true"}], 64),
        ([{"cpu_allocation_ratio": "2.0"}], 32),
        ([{"cpu_allocation_ratio": "2.0"}, {"cpu_allocation_ratio": "1"}], 16),
        ([{"cpu_allocation_ratio": "16"}], 64),
        ([{"reserved_host_cpus": "4"}], 48),
        ([{"reserved_host_cpus": "4", "cpu_allocation_ratio": "1.5"}], 18),
        ([{"reserved_host_cpus": "99"}], 0),
        ([{"cpu_allocation_ratio": "much"}], 64),
        ([{"cpu_allocation_ratio": "nan"}], 64),
        ([{"cpu_allocation_ratio": "1e308"}], 64),
        ([{"reserved_host_cpus": "1e308"}], 0),
    ],
)
def test_capacity(metadata: list[dict[str, str]], capacity: int) -> None:
    assert capacity_under("VCPU", Inventory(total=16, allocation_ratio=4.0), metadata) == capacity


def test_a_reserve_of_disk_is_in_mib() -> None:
    assert capacity_under("DISK_GB", Inventory(total=100), [{"reserved_host_disk_mb": "10241"}]) == 89


def test_hosts_follow_their_aggregates(world: Any) -> None:
    world.host("a", vcpus=4, cpu_ratio=4.0)
    row = world.table.row_of["node-a"]

    def free() -> int:
        return int(world.table.resources["VCPU"].free[row])

    assert free() == 16
    world.table.set_aggregate(1, ["a"], {"cpu_allocation_ratio": "2"})
    assert free() == 8
    world.host("a", vcpus=8, cpu_ratio=4.0, used={"VCPU": 3})
    assert free() == 13
    world.table.set_aggregate(2, ["a"], {"reserved_host_cpus": "6"})
    assert free() == 5
    world.table.set_aggregate(1, ["a"], {})
    assert free() == 5
    world.table.drop_aggregate(2)
    assert free() == 29
    world.host("b", vcpus=4)
    world.table.set_aggregate(1, ["b"], {"cpu_allocation_ratio": "1"})
    assert int(world.table.resources["VCPU"].free[world.table.row_of["node-b"]]) == 4
