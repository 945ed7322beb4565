"""The host's ledger: what is promised on this host against what it has. Pure; the last word on overcommitment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.domain.builds import Accepted, Refused
from skep.domain.hosts import HostUsage
from skep.domain.ids import InstanceUuid
from skep.domain.nested.layout import Layout, layout_of
from skep.domain.nested.room import Room
from skep.domain.nested.summing import total
from skep.domain.providers import Allocation
from skep.domain.resources import Inventory, Resources


class Replaced(msgspec.Struct, frozen=True):
    """The attempt is older than one that the ledger counts for the same instance."""

    by: int


class Ledger:
    """Counts guests and accepted builds by (instance, attempt).

    `claim` asks and may be refused; `adopt` counts what is there already, whether it fits or not.
    """

    def __init__(self, inventory: Mapping[str, Inventory]) -> None:
        self._capacity: dict[str, int] = {}
        self._held: dict[InstanceUuid, dict[int, Resources]] = {}
        self._used: Resources = {}
        self._layout: Layout | None = None
        self._allocations: dict[tuple[InstanceUuid, int], Allocation] = {}
        self._ends: dict[tuple[InstanceUuid, int], int | None] = {}
        """Of each attempt that is counted, when its server is expected to be gone."""
        self.set_inventory(inventory)

    def set_inventory(self, inventory: Mapping[str, Inventory]) -> None:
        """Take new capacities. What is counted stays counted, also where it no longer fits."""
        self._capacity = {resource_class: one.capacity for resource_class, one in inventory.items()}

    def set_inside(self, usage: HostUsage) -> None:
        """Take which NUMA cells and nested providers the host has. What is counted stays counted."""
        self._layout = None if usage.topology is None else layout_of(usage)

    def claim(
        self,
        instance: InstanceUuid,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        expected_end: int | None = None,
    ) -> Accepted | Refused | Replaced:
        """Count the build if it fits. A repeat of what is counted is accepted and not counted again.

        What `allocation` names must be free: no CPU, page or device is held twice.

        Raises ValueError for a negative amount.
        """
        if any(amount < 0 for amount in resources.values()):
            raise ValueError(f"a claim has a negative amount: {resources}")
        held = self._held.get(instance)
        if held:
            if attempt in held:
                return Accepted()
            newest = max(held)
            if attempt < newest:
                return Replaced(newest)
        lacks = self._lacks(resources)
        if lacks:
            return Refused(lacks=lacks)
        if allocation is not None and not self._is_free(allocation):
            return Refused(lacks={}, reason="CPUs, pages or devices that were promised are held by others")
        self.adopt(instance, attempt, resources, allocation, expected_end)
        return Accepted()

    def adopt(
        self,
        instance: InstanceUuid,
        attempt: int,
        resources: Resources,
        allocation: Allocation | None = None,
        expected_end: int | None = None,
    ) -> None:
        """Count what exists on the host or was accepted before a restart, without asking whether it fits."""
        held = self._held.setdefault(instance, {})
        if attempt in held:
            return
        held[attempt] = resources
        self._ends[instance, attempt] = expected_end
        if allocation is not None:
            self._allocations[instance, attempt] = allocation
        for resource_class, amount in resources.items():
            self._used[resource_class] = self._used.get(resource_class, 0) + amount

    def release(self, instance: InstanceUuid, attempt: int) -> None:
        """Count it no more. What is not counted is no error."""
        held = self._held.get(instance)
        if held is None:
            return
        self._allocations.pop((instance, attempt), None)
        self._ends.pop((instance, attempt), None)
        for resource_class, amount in held.pop(attempt, {}).items():
            self._used[resource_class] -= amount
        if not held:
            del self._held[instance]

    def holds(self, instance: InstanceUuid, attempt: int) -> bool:
        """Tell whether this attempt is counted."""
        return attempt in self._held.get(instance, ())

    def attempts(self, instance: InstanceUuid) -> tuple[int, ...]:
        """Return the attempts counted for an instance, in ascending order."""
        return tuple(sorted(self._held.get(instance, ())))

    def usage(self) -> Resources:
        """Return the sum of all that is counted, with a zero for each class that the host has."""
        return {**dict.fromkeys(self._capacity, 0), **{name: amount for name, amount in self._used.items() if amount}}

    def taken(self) -> Allocation | None:
        """Return the sum of the parts of the host that are held; None where nobody holds any."""
        return total(self._allocations.values()) if self._allocations else None

    def expected_end(self) -> int | None:
        """Return when the last of all that is counted is expected to be gone; None where one of them has no end."""
        latest: int | None = None
        for end in self._ends.values():
            if end is None:
                return None
            latest = end if latest is None else max(latest, end)
        return latest

    def _is_free(self, allocation: Allocation) -> bool:
        return self._layout is not None and Room(self._layout, self._allocations.values()).has(allocation)

    def _lacks(self, resources: Resources) -> dict[str, int]:
        lacks = {}
        for resource_class, amount in resources.items():
            missing = self._used.get(resource_class, 0) + amount - self._capacity.get(resource_class, 0)
            if amount and missing > 0:
                lacks[resource_class] = missing
        return lacks
