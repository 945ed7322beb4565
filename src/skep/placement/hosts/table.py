"""All hosts as columns: one row per node, changed in place, and a log of which rows changed.

Nothing here knows where the facts come from. Four kinds are kept apart, because different people state them: what a
host reported, what is claimed on it, what the operator wants, and whether its cell hears it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from skep.domain.cells import HostIntent
from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Inventory, Resources
from skep.placement.hosts.aggregate_limits import AggregateLimits
from skep.placement.hosts.bounds import no_room_for
from skep.placement.hosts.columns import MOST_AMOUNT
from skep.placement.hosts.heard_rows import HeardRows
from skep.placement.hosts.host_columns import NO_CELL, HostColumns
from skep.placement.hosts.memberships import Memberships
from skep.placement.hosts.namespaces import JoinedStates
from skep.placement.hosts.published import Aggregate, CellFlags

_MOST_INVENTORIES = 10_000
"""Different inventories whose capacities are remembered."""


def _classes(said: HostUsage | None) -> set[str]:
    """Return of which resource classes a host has or uses something."""
    return set() if said is None else {*said.inventory, *said.used}


class HostTable(HostColumns):
    """The columns, and all that changes them."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = AggregateLimits(self)
        self.joined = JoinedStates(self)
        """What other services say of these hosts."""
        self._heard_rows = HeardRows(self)
        self._memberships = Memberships(self, self._host_names, self.limits)

    def aggregates_of(self, host: str) -> tuple[int, ...]:
        """Return the ids of the aggregates that name `host`."""
        return self._memberships.of(host)

    # --- what a host reported, and the claims on it ------------------------------------------------

    def set_report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> None:
        """Take what a host said of itself. Of many hosts at once: `Intake`, which says what is raised."""
        intake = Intake(self)
        intake.report(node, cell, usage)
        intake.flush()

    def take_host(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> int:
        """Take what a report says beside numbers; return the node's row."""
        row = self._row(node)
        if not self.mapped[row]:
            self._place(row, usage.host, cell)
        self.traits.set_row(row, usage.traits)
        self.nested.set_usage(row, usage)
        self.ends.report(row, usage.expected_end)
        former, self.usages[row] = self.usages[row], usage
        if former is not None and (former.inventory is not usage.inventory or former.used.keys() != usage.used.keys()):
            self._drop_classes(row, former, _classes(usage))
        self._hypervisors.note(row)
        self.hypervisor_version[row] = usage.hypervisor_version
        return row

    def _drop_classes(self, row: int, said: HostUsage | None, kept: Container[str]) -> None:
        """Have a host nothing any more of what it said, but of the classes that are kept."""
        for name in _classes(said):
            if name not in kept and name in self.resources:
                self.resources[name].set_usage((row,), (0,), (0,))

    def set_reported(self, rows: NDArray[np.int64], failed_builds: Sequence[int]) -> None:
        """Note that these hosts have reported."""
        self.failed_builds[rows] = failed_builds
        self.reported[rows] = True
        self._derive(rows)

    def mark_amounts(self, rows: NDArray[np.int64]) -> None:
        """Note that something else is used on these hosts."""
        self.log.all_amounts(rows)

    def drop_report(self, node: NodeUuid) -> None:
        """Forget what a host said; it is no candidate until it speaks again."""
        row = self.row_of.get(node)
        if row is None:
            return
        self.reported[row] = False
        self._drop_classes(row, self.usages[row], ())
        self.usages[row] = None
        self.instances[row] = self.io_ops[row] = 0
        self._hypervisors.note(row)
        self.failed_builds[row] = 0
        self.traits.set_row(row, ())
        self.nested.drop(row)
        self._derive_row(row)

    def add_claimed(self, node: NodeUuid, amounts: Resources, sign: int = 1) -> None:
        """Count a claim on a node; with `sign` -1, count it no longer."""
        row = self.row_of.get(node)
        if row is None:
            row = self._row(node)
        self.claimed_servers.data[row] += sign
        crossed, highest, columns = False, self.levels.highest, self.resources
        for name, amount in amounts.items():
            column = columns.get(name) or self.amounts(name)
            change = sign * amount
            free = column.add_claimed(row, change)
            limit = highest.get(name)
            if limit is not None and (free < limit or free + change < limit):
                crossed = self.levels.cross(name, row, free + change, free) or crossed
        self.log.claimed(row, crossed=crossed)

    # --- what the operator wants -------------------------------------------------------------------

    def set_intent(self, intent: HostIntent) -> None:
        """Map a node to its cell, with the operator's intent for it."""
        row = self._row(intent.node)
        self._place(row, intent.host, intent.cell)
        self.mapped[row] = True
        self.disabled[row] = intent.disabled
        self.forced_down[row] = intent.forced_down
        if intent.disabled and intent.disabled_reason:
            self.disabled_reasons[row] = intent.disabled_reason
        else:
            self.disabled_reasons.pop(row, None)
        self._derive_row(row)

    def drop_intent(self, node: NodeUuid) -> None:
        """Forget the mapping of a node."""
        row = self.row_of.get(node)
        if row is not None:
            self.mapped[row] = False
            self._derive_row(row)

    def set_aggregate(self, number: int, hosts: Iterable[str], metadata: Mapping[str, str]) -> None:
        """Set one aggregate; `availability_zone` in its metadata puts its hosts into that zone."""
        before = self.aggregates.get(number, Aggregate())
        after = self.aggregates[number] = Aggregate(tuple(hosts), dict(metadata))
        self.multipliers.set_aggregate(number, metadata, self._length)
        self.limits.note(metadata)
        self._memberships.regroup(number, before.hosts, after.hosts)

    def drop_aggregate(self, number: int) -> None:
        """Forget one aggregate."""
        before = self.aggregates.pop(number, None)
        if before is not None:
            self.multipliers.set_aggregate(number, {}, self._length)
            self._memberships.regroup(number, before.hosts, ())

    def set_cell(
        self,
        cell: CellUuid,
        *,
        known: bool | None = None,
        disabled: bool | None = None,
        asserted: bool | None = None,
        living: bool | None = None,
    ) -> None:
        """Change what is known of a cell; None leaves a flag as it is."""
        flags = self._cell(cell)
        before = (flags.known, flags.disabled, flags.asserted, flags.living)
        flags.known = flags.known if known is None else known
        flags.disabled = flags.disabled if disabled is None else disabled
        flags.asserted = flags.asserted if asserted is None else asserted
        flags.living = flags.living if living is None else living
        if before != (flags.known, flags.disabled, flags.asserted, flags.living):
            self._derive(np.flatnonzero(self.cell[: self.size] == flags.code))

    # --- what the cells hear -----------------------------------------------------------------------

    def set_heard(self, cell: CellUuid, nodes: tuple[NodeUuid, ...], at: int) -> None:
        """Take which nodes a cell's latest beat names; `at`: when it was sent, microseconds since the epoch."""
        self._derive(self._heard_rows.set(cell, self._cell(cell).code, nodes, at))

    def touch_heard(self, cell: CellUuid, at: int) -> None:
        """Take that the nodes which the cell's beat named before are still heard; `at`: when that was said."""
        self._heard_rows.touch(cell, self._cell(cell).code, at)

    # --- inside ------------------------------------------------------------------------------------

    def _place(self, row: int, host: str, cell: CellUuid) -> None:
        """Set a row's name and cell; a beat or an aggregate that was there before the row takes effect now."""
        if self.hosts[row] != host:
            self._memberships.rename(row, host)
            self._hypervisors.note(row)
        code = self._cell(cell).code
        if self.cell[row] != code:
            former = None if self.cell[row] == NO_CELL else self.cell_of(row)
            self.cell[row] = code
            self._heard_rows.move(row, former, cell)

    def _cell(self, cell: CellUuid) -> CellFlags:
        flags = self.cells.get(cell)
        if flags is None:
            flags = self.cells[cell] = CellFlags(len(self.cell_names))
            self.cell_names.append(cell)
        return flags

    def _derive_row(self, row: int) -> None:
        cell = self.cell.item(row)
        flags = self.cells[self.cell_names[cell]] if cell != NO_CELL else CellFlags(NO_CELL)
        self.ready[row] = self.mapped[row] and self.reported[row] and flags.asserted
        self.up[row] = self.heard[row] and flags.living and not self.forced_down[row]
        self.log.facts(row)

    def _derive(self, rows: NDArray[np.int64]) -> None:
        """Work out who is ready and who is up; the row of no cell (-1) finds the False at the end."""
        flags = [self.cells[name] for name in self.cell_names]
        asserted = np.array([*(one.asserted for one in flags), False])
        living = np.array([*(one.living for one in flags), False])
        cell = self.cell[rows]
        self.ready[rows] = self.mapped[rows] & self.reported[rows] & asserted[cell]
        self.up[rows] = self.heard[rows] & living[cell] & ~self.forced_down[rows]
        self.log.all_facts(rows)


class _Noted:
    """Values of one resource class, by row."""

    __slots__ = ("capacity", "rows", "used")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.capacity: list[int] = []
        self.used: list[int] = []


class Intake:
    """Reports that wait to be put into the columns of one table: many at once cost little more than one.

    A report that cannot be true is refused before anything of it is noted: it touches neither its host nor the others.
    """

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
            if not all(-MOST_AMOUNT <= capacity <= MOST_AMOUNT for capacity in capacities):
                raise OverflowError(f"inventory: a capacity is not within {-MOST_AMOUNT} and {MOST_AMOUNT}")
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
    if usage.used and not -MOST_AMOUNT <= min(usage.used.values()) <= max(usage.used.values()) <= MOST_AMOUNT:
        raise OverflowError(f"used: an amount is not within {-MOST_AMOUNT} and {MOST_AMOUNT}")
    for name, count in (
        ("failed_builds", usage.failed_builds),
        ("servers", usage.servers),
        ("hypervisor_version", usage.hypervisor_version),
        ("instances", usage.instances),
        ("io_ops", usage.io_ops),
        ("expected_end", usage.expected_end or 0),
    ):
        if not -MOST_AMOUNT <= count <= MOST_AMOUNT:
            raise OverflowError(f"{name}: {count} is not within {-MOST_AMOUNT} and {MOST_AMOUNT}")
