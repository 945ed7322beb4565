"""Amounts: what a node may give out, sums and differences."""

from __future__ import annotations

import pytest

from skep.domain.resources import Inventory, add, subtract


@pytest.mark.parametrize(
    ("inventory", "capacity"),
    [
        (Inventory(total=16), 16),
        (Inventory(total=16, allocation_ratio=4.0), 64),
        (Inventory(total=10, reserved=3, allocation_ratio=1.5), 10),
        (Inventory(total=1, allocation_ratio=0.5), 0),
        (Inventory(total=4, reserved=8), -4),
    ],
)
def test_capacity_is_what_is_not_reserved_times_the_ratio_rounded_down(inventory: Inventory, capacity: int) -> None:
    assert inventory.capacity == capacity


def test_sums_and_differences_keep_their_operands() -> None:
    left, right = {"VCPU": 2, "DISK_GB": 1}, {"VCPU": 3, "CUSTOM": 4}
    assert add(left, right) == {"VCPU": 5, "DISK_GB": 1, "CUSTOM": 4}
    assert subtract(left, right) == {"VCPU": -1, "DISK_GB": 1, "CUSTOM": -4}
    assert (left, right) == ({"VCPU": 2, "DISK_GB": 1}, {"VCPU": 3, "CUSTOM": 4})
