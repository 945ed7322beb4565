"""The host's ledger: what is promised on this host against what it has. Pure; the last word on overcommitment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.domain.builds import Accepted, Refused
from skep.domain.ids import InstanceUuid
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
        self.set_inventory(inventory)

    def set_inventory(self, inventory: Mapping[str, Inventory]) -> None:
        """Take new capacities. What is counted stays counted, also where it no longer fits."""
        self._capacity = {resource_class: one.capacity for resource_class, one in inventory.items()}

    def claim(self, instance: InstanceUuid, attempt: int, resources: Resources) -> Accepted | Refused | Replaced:
        """Count the build if it fits. A repeat of what is counted is accepted and not counted again.

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
        self.adopt(instance, attempt, resources)
        return Accepted()

    def adopt(self, instance: InstanceUuid, attempt: int, resources: Resources) -> None:
        """Count what exists on the host or was accepted before a restart, without asking whether it fits."""
        held = self._held.setdefault(instance, {})
        if attempt in held:
            return
        held[attempt] = resources
        for resource_class, amount in resources.items():
            self._used[resource_class] = self._used.get(resource_class, 0) + amount

    def release(self, instance: InstanceUuid, attempt: int) -> None:
        """Count it no more. What is not counted is no error."""
        held = self._held.get(instance)
        if held is None:
            return
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

    def _lacks(self, resources: Resources) -> dict[str, int]:
        lacks = {}
        for resource_class, amount in resources.items():
            missing = self._used.get(resource_class, 0) + amount - self._capacity.get(resource_class, 0)
            if amount and missing > 0:
                lacks[resource_class] = missing
        return lacks
