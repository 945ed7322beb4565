"""What many hosts reported, into the columns at once: a value set in a column costs little among a thousand others.

A report that cannot be true is refused before anything of it is noted, so it touches neither its host nor the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Inventory
from skep.placement.hosts.bounds import no_room_for

if TYPE_CHECKING:
    from skep.placement.hosts.table import HostTable

MOST = 2**53
"""Largest amount that columns hold: beyond it shares would not be exact."""
_MOST_INVENTORIES = 10_000
"""Different inventories whose capacities are remembered."""


class _Noted:
    """Values of one resource class, by row."""

    __slots__ = ("capacity", "rows", "used")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.capacity: list[int] = []
        self.used: list[int] = []


class Intake:
    """Reports that wait to be put into the columns of one table."""

    def __init__(self, table: HostTable) -> None:
        self._table = table
        self._known: dict[tuple[tuple[str, Inventory], ...], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        """Classes and capacities by inventory."""
        self._begin()

    def _begin(self) -> None:
        self._nodes: set[NodeUuid] = set()
        self._told: dict[str, _Noted] = {}
        self._used: dict[str, _Noted] = {}
        self._told_rows: list[int] = []
        self._failed: list[int] = []
        self._used_rows: list[int] = []
        self._told_counts: tuple[list[int], list[int]] = ([], [])
        """Of the told rows: servers, and operations on whole disks."""
        self._used_counts: tuple[list[int], list[int]] = ([], [])

    def report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> None:
        """Take what a host said of itself.

        Raises ValueError or OverflowError where it cannot be true, or where there is no room for it.
        """
        table = self._table
        reason = no_room_for(table, usage)
        if reason is not None:
            raise ValueError(reason)
        classes, capacities = self._capacities_of(usage.inventory)
        _check(usage)
        if node in self._nodes:
            self.flush()
        self._nodes.add(node)
        row = table.take_host(node, cell, usage)
        if not usage.used.keys() <= usage.inventory.keys():
            classes = tuple({**usage.inventory, **usage.used})
        for number, name in enumerate(classes):
            noted = self._told.get(name)
            if noted is None:
                noted = self._told[name] = _Noted()
            noted.rows.append(row)
            noted.capacity.append(capacities[number] if number < len(capacities) else 0)
            noted.used.append(usage.used.get(name, 0))
        self._told_rows.append(row)
        self._failed.append(usage.failed_builds)
        _count(self._told_counts, usage)

    def used(self, node: NodeUuid, usage: HostUsage) -> None:
        """Take what a host uses that said nothing else anew, not even the names of other classes.

        Raises OverflowError where it cannot be true.
        """
        _check(usage)
        if node in self._nodes:
            self.flush()
        self._nodes.add(node)
        row = self._table.row_of[node]
        self._table.nested.set_usage(row, usage)
        self._table.ends.report(row, usage.expected_end)
        for name, amount in usage.used.items():
            noted = self._used.get(name)
            if noted is None:
                noted = self._used[name] = _Noted()
            noted.rows.append(row)
            noted.used.append(amount)
        self._table.usages[row] = usage
        self._used_rows.append(row)
        _count(self._used_counts, usage)

    def drop(self, node: NodeUuid) -> None:
        """Forget what a host said."""
        if node in self._nodes:
            self.flush()
        self._table.drop_report(node)

    def flush(self) -> None:
        """Put all that waits into the columns."""
        if not self._nodes:
            return
        table = self._table
        for name, noted in self._told.items():
            table.amounts(name).set_usage(noted.rows, noted.capacity, noted.used)
        for name, noted in self._used.items():
            table.amounts(name).set_used(noted.rows, noted.used)
        table.limits.limit(self._told_rows)
        if self._told_rows:
            told = np.array(self._told_rows, dtype=np.int64)
            table.instances[told], table.io_ops[told] = self._told_counts
            table.set_reported(told, self._failed)
        if self._used_rows:
            used = np.array(self._used_rows, dtype=np.int64)
            table.instances[used], table.io_ops[used] = self._used_counts
            table.mark_amounts(used)
        self._begin()

    def _capacities_of(self, inventory: dict[str, Inventory]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        told = tuple(inventory.items())
        known = self._known.get(told)
        if known is None:
            capacities = tuple(one.capacity for one in inventory.values())
            if not all(-MOST <= capacity <= MOST for capacity in capacities):
                raise OverflowError(f"inventory: a capacity is not within {-MOST} and {MOST}")
            if len(self._known) >= _MOST_INVENTORIES:
                self._known.clear()
            known = self._known[told] = (tuple(inventory), capacities)
        return known


def _count(counts: tuple[list[int], list[int]], usage: HostUsage) -> None:
    """Note how many servers a host counts: of an agent that says nothing of it, its guests."""
    instances, io_ops = counts
    instances.append(max(usage.instances, usage.servers))
    io_ops.append(usage.io_ops)


def _check(usage: HostUsage) -> None:
    """Raise OverflowError for a number that no column holds."""
    if usage.used and not -MOST <= min(usage.used.values()) <= max(usage.used.values()) <= MOST:
        raise OverflowError(f"used: an amount is not within {-MOST} and {MOST}")
    for name, count in (
        ("failed_builds", usage.failed_builds),
        ("servers", usage.servers),
        ("hypervisor_version", usage.hypervisor_version),
        ("instances", usage.instances),
        ("io_ops", usage.io_ops),
        ("expected_end", usage.expected_end or 0),
    ):
        if not -MOST <= count <= MOST:
            raise OverflowError(f"{name}: {count} is not within {-MOST} and {MOST}")
