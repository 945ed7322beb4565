"""The host's ledger: what is promised on this host against what it has. Pure; the last word on overcommitment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from skep.domain.assignments import Assignment
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
        self._held: dict[InstanceUuid, dict[int, Assignment]] = {}
        """Of each attempt that is counted, what it holds of the host."""
        self._instead: dict[tuple[InstanceUuid, int], int] = {}
        """Attempts that take the place of another one of their server, which alone is counted while it is here."""
        self._used: Resources = {}
        self._layout: Layout | None = None
        self.set_inventory(inventory)

    def set_inventory(self, inventory: Mapping[str, Inventory]) -> None:
        """Take new capacities. What is counted stays counted, also where it no longer fits."""
        self._capacity = {resource_class: one.capacity for resource_class, one in inventory.items()}

    def set_inside(self, usage: HostUsage) -> None:
        """Take which NUMA cells and nested providers the host has. What is counted stays counted."""
        self._layout = None if usage.topology is None else layout_of(usage)

    def claim(self, instance: InstanceUuid, attempt: int, assignment: Assignment) -> Accepted | Refused | Replaced:
        """Count the build if it fits. A repeat of what is counted is accepted and not counted again.

        What the allocation names must be free: no CPU, page or device is held twice.

        Raises ValueError for a negative amount.
        """
        if any(amount < 0 for amount in assignment.resources.values()):
            raise ValueError(f"a claim has a negative amount: {assignment.resources}")
        held = self._held.get(instance)
        if held:
            if attempt in held:
                return Accepted()
            newest = max(held)
            if attempt < newest:
                return Replaced(newest)
        lacks = self._lacks(assignment.resources)
        if lacks:
            return Refused(lacks=lacks)
        if assignment.allocation is not None and not self._is_free(assignment.allocation):
            return Refused(lacks={}, reason="CPUs, pages or devices that were promised are held by others")
        self.adopt(instance, attempt, assignment)
        return Accepted()

    def adopt(self, instance: InstanceUuid, attempt: int, assignment: Assignment) -> None:
        """Count what exists on the host or was accepted before a restart, without asking whether it fits."""
        held = self._held.setdefault(instance, {})
        if attempt in held:
            return
        held[attempt] = assignment
        self._add(assignment)

    def replace(self, instance: InstanceUuid, attempt: int, former: int, assignment: Assignment) -> None:
        """Hold for an attempt what another one of its server holds, with the same room: both are counted as one.

        Where the former is not here (any more), the attempt is counted as by `adopt`.
        """
        held = self._held.setdefault(instance, {})
        if attempt in held:
            return
        if former not in held:
            self.adopt(instance, attempt, assignment)
            return
        held[attempt] = assignment
        self._instead[instance, attempt] = former

    def release(self, instance: InstanceUuid, attempt: int) -> None:
        """Count it no more. What is not counted is no error."""
        held = self._held.get(instance)
        released = held.pop(attempt, None) if held is not None else None
        if held is None or released is None:
            return
        if self._instead.pop((instance, attempt), None) is None:
            for resource_class, amount in released.resources.items():
                self._used[resource_class] -= amount
        for successor, assignment in held.items():
            if self._instead.get((instance, successor)) == attempt:
                del self._instead[instance, successor]
                self._add(assignment)
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
        allocations = self._allocations()
        return total(allocations) if allocations else None

    def expected_end(self) -> int | None:
        """Return when the last of all that is counted is expected to be gone; None where one of them has no end."""
        latest: int | None = None
        for assignment in self._assignments():
            if assignment.end is None:
                return None
            latest = assignment.end if latest is None else max(latest, assignment.end)
        return latest

    def _add(self, assignment: Assignment) -> None:
        for resource_class, amount in assignment.resources.items():
            self._used[resource_class] = self._used.get(resource_class, 0) + amount

    def _assignments(self) -> Iterator[Assignment]:
        return (
            assignment
            for instance, held in self._held.items()
            for attempt, assignment in held.items()
            if (instance, attempt) not in self._instead
        )

    def _allocations(self) -> list[Allocation]:
        return [one.allocation for one in self._assignments() if one.allocation is not None]

    def _is_free(self, allocation: Allocation) -> bool:
        return self._layout is not None and Room(self._layout, self._allocations()).has(allocation)

    def _lacks(self, resources: Resources) -> dict[str, int]:
        lacks = {}
        for resource_class, amount in resources.items():
            missing = self._used.get(resource_class, 0) + amount - self._capacity.get(resource_class, 0)
            if amount and missing > 0:
                lacks[resource_class] = missing
        return lacks
