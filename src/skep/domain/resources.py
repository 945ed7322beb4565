"""Amounts of resource classes, named as `os_resource_classes` names them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

VCPU = "VCPU"
MEMORY_MB = "MEMORY_MB"
DISK_GB = "DISK_GB"

Resources = dict[str, int]
"""Amount by resource class. Units are the class's own: cores, MiB, GiB."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has of one resource class."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """How much may be given out: `(total - reserved) * allocation_ratio`, rounded down (Placement's rule)."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Return the sum, class by class."""
    total = dict(left)
    for resource_class, amount in right.items():
        total[resource_class] = total.get(resource_class, 0) + amount
    return total


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Return the difference, class by class; it may be negative."""
    return add(left, {resource_class: -amount for resource_class, amount in right.items()})
