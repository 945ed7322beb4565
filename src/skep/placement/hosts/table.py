"""All hosts as columns: one row per node, changed in place, and a log of which rows changed.

Nothing here knows where the facts come from. Four kinds are kept apart, because different people state them: what a
host reported, what is claimed on it, what the operator wants, and whether its cell hears it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Resources
from skep.placement.hosts.aggregate_limits import AggregateLimits
from skep.placement.hosts.bounds import MOST_TRAITS
from skep.placement.hosts.changelog import HostLog
from skep.placement.hosts.columns import Amounts, BitSets, Ints, Mask, grown
from skep.placement.hosts.ends import ExpectedEnds
from skep.placement.hosts.heard_rows import HeardRows
from skep.placement.hosts.intake import Intake
from skep.placement.hosts.levels import Levels
from skep.placement.hosts.memberships import Memberships
from skep.placement.hosts.mix import Mix
from skep.placement.hosts.multipliers import Multipliers
from skep.placement.hosts.names import HypervisorNames, RowNames
from skep.placement.hosts.namespaces import JoinedStates
from skep.placement.hosts.published import DEFAULT_ZONE, Aggregate, CellFlags
from skep.placement.hosts.rooms import Rooms

_NO_CELL = -1


def stable_hash(text: str) -> int:
    """Return 64 bits that depend on `text` alone, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _classes(said: HostUsage | None) -> set[str]:
    """Return of which resource classes a host has or uses something."""
    return set() if said is None else {*said.inventory, *said.used}


class HostTable:
    """The columns. Rows are never reused by another node."""

    moved = 0
    """How often columns took another place in memory, or came, or went: who holds one asks for it again."""

    def __init__(self) -> None:
        length = 16
        self.nodes: list[NodeUuid] = []
        self._host_names = RowNames()
        self.hosts = self._host_names.names
        self.row_of: dict[NodeUuid, int] = {}
        self.cells: dict[CellUuid, CellFlags] = {}
        self.cell_names: list[CellUuid] = []
        self.aggregates: dict[int, Aggregate] = {}
        self.resources: dict[str, Amounts] = {}
        self.zones: list[str] = [DEFAULT_ZONE]
        self.traits = BitSets(length, MOST_TRAITS)
        self.membership = BitSets(length)
        self.mapped: Mask = np.zeros(length, dtype=np.bool_)
        self.reported: Mask = np.zeros(length, dtype=np.bool_)
        self.disabled: Mask = np.zeros(length, dtype=np.bool_)
        self.disabled_reasons: dict[int, str] = {}  # by row, where the operator said so
        self.forced_down: Mask = np.zeros(length, dtype=np.bool_)
        self.heard: Mask = np.zeros(length, dtype=np.bool_)
        self.ready: Mask = np.zeros(length, dtype=np.bool_)
        """Mapped, reported, and the cell has asserted its claims: what is free is known."""
        self.up: Mask = np.zeros(length, dtype=np.bool_)
        """A living beat of the cell names it, and the operator did not force it down."""
        self.cell: NDArray[np.int32] = np.zeros(length, dtype=np.int32)
        self.zone: NDArray[np.int32] = np.zeros(length, dtype=np.int32)
        self.failed_builds: Ints = np.zeros(length, dtype=np.int64)
        self.instances: Ints = np.zeros(length, dtype=np.int64)
        self.hypervisor_version: Ints = np.zeros(length, dtype=np.int64)
        self.io_ops: Ints = np.zeros(length, dtype=np.int64)
        self.claimed_servers: Ints = np.zeros(length, dtype=np.int64)
        """Claims on each host, which it does not count yet."""
        self.last_heard: Ints = np.zeros(length, dtype=np.int64)
        self.node_hash: NDArray[np.uint64] = np.zeros(length, dtype=np.uint64)
        self._length = length
        self._heard_rows = HeardRows(self)
        self._memberships = Memberships(self, self._host_names)
        self.usages: list[HostUsage | None] = []
        """What each host said last, with all that has no column."""
        self._hypervisors = HypervisorNames(self._host_names, self.usages)
        self.multipliers = Multipliers()
        """What aggregates say of the multipliers of weighers."""
        self.limits = AggregateLimits(self)
        self.log, self.levels = HostLog(), Levels()
        self.nested = Rooms()
        """The inside of hosts: NUMA cells, devices and other nested providers."""
        self.ends = ExpectedEnds()
        """When hosts are expected to be empty."""
        self.mix = Mix()
        """What is asked for lately, if a weigher wants to know."""
        self.joined = JoinedStates(self)
        """What other services say of these hosts."""

    # --- reading --------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.nodes)

    @property
    def position(self) -> int:
        """Where the log of changed rows ends."""
        return self.log.position

    def changed_since(self, position: int) -> set[int] | None:
        """Return the rows that changed after `position` in any way; None: too many or too long ago, take all."""
        changed = self.log.since(position, max(16, self.size // 4))
        return None if changed is None else {*changed.facts.tolist(), *changed.amounts.tolist()}

    def mark_changed(self, rows: Iterable[int]) -> None:
        """Note that filters see these rows differently now, for a reason outside these columns."""
        for row in rows:
            self.log.facts(row)

    def is_living(self, row: int) -> bool:
        """Tell whether a living beat of the row's cell is heard, whomever it names."""
        cell = self.cell.item(row)
        return cell != _NO_CELL and self.cells[self.cell_names[cell]].living

    def zone_of(self, row: int) -> str:
        """Return the name of the row's availability zone."""
        return self.zones[self.zone.item(row)]

    def aggregates_of(self, host: str) -> tuple[int, ...]:
        """Return the ids of the aggregates that name `host`."""
        return self._memberships.of(host)

    def aggregates_of_row(self, row: int) -> tuple[int, ...]:
        """Return the ids of the aggregates that name the row's host."""
        return self._memberships.of_row(row)

    def cell_of(self, row: int) -> CellUuid:
        """Return the row's cell."""
        return self.cell_names[self.cell.item(row)]

    def rows_named(self, host: str) -> set[int]:
        """Return the rows whose host has this name."""
        return self._host_names.rows(host)

    def rows_of_hypervisor(self, name: str) -> set[int]:
        """Return the rows whose hypervisor reported this host name."""
        return self._hypervisors.rows(name)

    def rows_of(self, nodes: Iterable[NodeUuid]) -> set[int]:
        """Return the rows of those of the nodes that are known."""
        row_of = self.row_of
        return {row_of[node] for node in nodes if node in row_of}

    # --- what a host reported, and the claims on it ------------------------------------------------

    def set_report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> None:
        """Take what a host said of itself. Of many hosts at once: `intake.py`, which says what is raised."""
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

    def set_wish(
        self,
        node: NodeUuid,
        host: str,
        cell: CellUuid,
        *,
        disabled: bool,
        forced_down: bool,
        disabled_reason: str | None = None,
    ) -> None:
        """Map a node to its cell, with what the operator wants of it."""
        row = self._row(node)
        self._place(row, host, cell)
        self.mapped[row] = True
        self.disabled[row] = disabled
        self.forced_down[row] = forced_down
        if disabled and disabled_reason:
            self.disabled_reasons[row] = disabled_reason
        else:
            self.disabled_reasons.pop(row, None)
        self._derive_row(row)

    def drop_wish(self, node: NodeUuid) -> None:
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

    def _row(self, node: NodeUuid) -> int:
        row = self.row_of.get(node)
        if row is None:
            row = self.size
            if row == self._length:
                self._grow(self._length * 2)
            self.nodes.append(node)
            self._host_names.append()
            self.usages.append(None)
            self.row_of[node] = row
            self.cell[row] = _NO_CELL
            self.node_hash[row] = stable_hash(node)
            self.log.facts(row)
        return row

    def _grow(self, length: int) -> None:
        self._length = length
        self.moved += 1
        self.log.grow(length)
        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                setattr(self, name, grown(column, length))
        self.traits.grow(length)
        self.membership.grow(length)
        self.multipliers.grow(length)
        for amounts in self.resources.values():
            amounts.grow(length)

    def _place(self, row: int, host: str, cell: CellUuid) -> None:
        """Set a row's name and cell; a beat or an aggregate that was there before the row takes effect now."""
        if self.hosts[row] != host:
            self._memberships.rename(row, host)
            self._hypervisors.note(row)
        code = self._cell(cell).code
        if self.cell[row] != code:
            former = None if self.cell[row] == _NO_CELL else self.cell_of(row)
            self.cell[row] = code
            self._heard_rows.move(row, former, cell)

    def _cell(self, cell: CellUuid) -> CellFlags:
        flags = self.cells.get(cell)
        if flags is None:
            flags = self.cells[cell] = CellFlags(len(self.cell_names))
            self.cell_names.append(cell)
        return flags

    def amounts(self, name: str) -> Amounts:
        """Return the columns of a resource class, made where there are none."""
        amounts = self.resources.get(name)
        if amounts is None:
            amounts = self.resources[name] = Amounts(self._length)
            self.moved += 1
        return amounts

    def _derive_row(self, row: int) -> None:
        cell = self.cell.item(row)
        flags = self.cells[self.cell_names[cell]] if cell != _NO_CELL else CellFlags(_NO_CELL)
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
