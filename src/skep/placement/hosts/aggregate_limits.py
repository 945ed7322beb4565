"""Ratios and reserves that the metadata of aggregates set for their hosts.

A host in several aggregates gets the least of what each would leave it, and never more than it offers itself: its own
ledger has the last word, and counts with the host's own ratio. (Nova's Aggregate*Filters, while there were some, could
raise a ratio too.) Both hold when a claim is decided, and again when it is stored: on the record that will hold it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from skep.domain.claims import Claim
from skep.domain.hosts import HostUsage
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory, Resources
from skep.placement.hosts.host_columns import HostColumns

KEYS = {
    VCPU: ("cpu_allocation_ratio", "reserved_host_cpus", 1),
    MEMORY_MB: ("ram_allocation_ratio", "reserved_host_memory_mb", 1),
    DISK_GB: ("disk_allocation_ratio", "reserved_host_disk_mb", 1024),
}
"""Of each class: the key of its ratio, the key of its reserve, and units of the reserve in one of the class."""
_NAMES = frozenset(key for ratio, reserve, _ in KEYS.values() for key in (ratio, reserve))


class AggregateLimits:
    """Whether any aggregate has ever set a limit: until then rows are not looked at."""

    __slots__ = ("_table", "used")

    def __init__(self, table: HostColumns) -> None:
        self._table = table
        self.used = False

    def note(self, metadata: Mapping[str, str]) -> None:
        """Take the metadata of an aggregate; its hosts are limited anew by `limit`."""
        self.used = self.used or not _NAMES.isdisjoint(metadata)

    def limit(self, rows: Iterable[int]) -> None:
        """Set the capacities of hosts that have reported, as their own inventory and their aggregates say."""
        if not self.used:
            return
        table = self._table
        for row in rows:
            usage = table.usages[row]
            if usage is None:
                continue
            told = self._told(row)
            for name in KEYS:
                inventory, amounts = usage.inventory.get(name), table.resources.get(name)
                if inventory is not None and amounts is not None:
                    capacity = capacity_under(name, inventory, told)
                    amounts.set_usage((row,), (capacity,), (amounts.used.item(row),))

    def allow(self, row: int, usage: HostUsage, claims: Iterable[Claim], asked: Resources) -> bool:
        """Tell whether a host's aggregates leave it enough for what is asked, beside what is used and claimed."""
        names = [name for name in KEYS if name in asked and name in usage.inventory]
        told = self._told(row) if self.used else ()
        if not names or all(_NAMES.isdisjoint(metadata) for metadata in told):
            return True
        taken = {name: usage.used.get(name, 0) + asked[name] for name in names}
        for claim in claims:
            for name in names:
                taken[name] += claim.resources.get(name, 0)
        return all(taken[name] <= capacity_under(name, usage.inventory[name], told) for name in names)

    def _told(self, row: int) -> list[Mapping[str, str]]:
        table = self._table
        return [table.aggregates[number].metadata for number in table.aggregates_of_row(row)]


def capacity_under(name: str, inventory: Inventory, told: Iterable[Mapping[str, str]]) -> int:
    """Return how much of a class may be given out on a host whose aggregates have this metadata."""
    ratio_key, reserve_key, unit = KEYS[name]
    capacity = inventory.capacity
    for metadata in told:
        ratio, reserve = _number(metadata.get(ratio_key)), _number(metadata.get(reserve_key))
        if ratio is not None or reserve is not None:
            kept = inventory.reserved if reserve is None else math.ceil(reserve / unit)
            by_ratio = inventory.allocation_ratio if ratio is None else ratio
            # The least first: a ratio may be so large that the product is no number that can be rounded.
            capacity = math.floor(min(capacity, max(inventory.total - kept, 0) * by_ratio))
    return capacity


def _number(text: str | None) -> float | None:
    """Return a number from 0 on; what is none counts as not said."""
    try:
        number = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
