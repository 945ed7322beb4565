"""All hosts as columns: one row per node, changed in place, and a log of which rows changed.

Nothing here knows where the facts come from. Four kinds are kept apart, because different people state them: what a
host reported, what is claimed on it, what the operator wants, and whether its cell hears it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Resources
from skep.scheduler.columns import Amounts, BitSets, Ints, Mask, grown
from skep.scheduler.namespaces import JoinedStates

DEFAULT_ZONE = "nova"
ZONE_KEY = "availability_zone"
_NO_CELL = -1


@dataclass(slots=True)
class CellFlags:
    """What is known of one cell."""

    code: int
    known: bool = False
    """The operator has named it."""
    disabled: bool = False
    asserted: bool = False
    living: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: hosts by name, and its metadata."""

    hosts: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)


def stable_hash(text: str) -> int:
    """Return 64 bits that depend on `text` alone, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class HostTable:
    """The columns. Rows are never reused by another node."""

    def __init__(self) -> None:
        length = 16
        self.nodes: list[NodeUuid] = []
        self.hosts: list[str] = []
        self.row_of: dict[NodeUuid, int] = {}
        self.cells: dict[CellUuid, CellFlags] = {}
        self.cell_names: list[CellUuid] = []
        self.aggregates: dict[int, Aggregate] = {}
        self.resources: dict[str, Amounts] = {}
        self.zones: list[str] = [DEFAULT_ZONE]
        self.traits = BitSets(length)
        self.membership = BitSets(length)
        self.mapped: Mask = np.zeros(length, dtype=np.bool_)
        self.reported: Mask = np.zeros(length, dtype=np.bool_)
        self.disabled: Mask = np.zeros(length, dtype=np.bool_)
        self.forced_down: Mask = np.zeros(length, dtype=np.bool_)
        self.heard: Mask = np.zeros(length, dtype=np.bool_)
        self.ready: Mask = np.zeros(length, dtype=np.bool_)
        """Mapped, reported, and the cell has asserted its claims: what is free is known."""
        self.up: Mask = np.zeros(length, dtype=np.bool_)
        """A living beat of the cell names it, and the operator did not force it down."""
        self.cell: NDArray[np.int32] = np.zeros(length, dtype=np.int32)
        self.zone: NDArray[np.int32] = np.zeros(length, dtype=np.int32)
        self.failed_builds: Ints = np.zeros(length, dtype=np.int64)
        self.last_heard: Ints = np.zeros(length, dtype=np.int64)
        self.node_hash: NDArray[np.uint64] = np.zeros(length, dtype=np.uint64)
        self._length = length
        self._rows_of_host: dict[str, set[int]] = {}
        self._rows_of_hypervisor: dict[str, set[int]] = {}
        self._hypervisors: list[str] = []
        self._beats: dict[CellUuid, tuple[frozenset[NodeUuid], int]] = {}
        self._aggregates_of_host: dict[str, set[int]] = {}
        self._zone_codes: dict[str, int] = {DEFAULT_ZONE: 0}
        self._log: list[int] = []
        self._log_start = 0
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
        return self._log_start + len(self._log)

    def changed_since(self, position: int) -> set[int] | None:
        """Return the rows that changed after `position`; None: too many or too long ago, take all."""
        if position < self._log_start or self.position - position > max(16, self.size // 4):
            return None
        return set(self._log[position - self._log_start :])

    def mark_changed(self, rows: Iterable[int]) -> None:
        """Note that filters see these rows differently now, for a reason outside these columns."""
        self._log.extend(rows)

    def zone_of(self, row: int) -> str:
        """Return the name of the row's availability zone."""
        return self.zones[int(self.zone[row])]

    def aggregates_of(self, host: str) -> tuple[int, ...]:
        """Return the ids of the aggregates that name `host`."""
        return tuple(sorted(self._aggregates_of_host.get(host, ())))

    def cell_of(self, row: int) -> CellUuid:
        """Return the row's cell."""
        return self.cell_names[int(self.cell[row])]

    def rows_named(self, host: str) -> set[int]:
        """Return the rows whose host has this name."""
        return self._rows_of_host.get(host, set())

    def rows_of_hypervisor(self, name: str) -> set[int]:
        """Return the rows whose hypervisor reported this host name."""
        return self._rows_of_hypervisor.get(name, set())

    # --- what a host reported, and the claims on it ------------------------------------------------

    def set_report(self, node: NodeUuid, cell: CellUuid, usage: HostUsage) -> None:
        """Take what a host said of itself."""
        row = self._row(node)
        if not self.mapped[row]:
            self._place(row, usage.host, cell)
        self.reported[row] = True
        self._set_hypervisor(row, usage.hypervisor_hostname)
        self.failed_builds[row] = usage.failed_builds
        for name in usage.inventory.keys() | usage.used.keys():
            self._amounts(name)
        for name, amounts in self.resources.items():
            inventory = usage.inventory.get(name)
            amounts.set_usage(row, inventory.capacity if inventory else 0, usage.used.get(name, 0))
        self.traits.set_row(row, usage.traits)
        self._derive(row)

    def drop_report(self, node: NodeUuid) -> None:
        """Forget what a host said; it is no candidate until it speaks again."""
        row = self.row_of.get(node)
        if row is None:
            return
        self.reported[row] = False
        self._set_hypervisor(row, "")
        self.failed_builds[row] = 0
        for amounts in self.resources.values():
            amounts.set_usage(row, 0, 0)
        self.traits.set_row(row, ())
        self._derive(row)

    def set_claimed(self, node: NodeUuid, claimed: Resources) -> None:
        """Set the sum of all claims on a node."""
        row = self._row(node)
        for name in claimed:
            self._amounts(name)
        for name, amounts in self.resources.items():
            amounts.set_claimed(row, claimed.get(name, 0))
        self._log.append(row)

    # --- what the operator wants -------------------------------------------------------------------

    def set_wish(self, node: NodeUuid, host: str, cell: CellUuid, *, disabled: bool, forced_down: bool) -> None:
        """Map a node to its cell, with what the operator wants of it."""
        row = self._row(node)
        self._place(row, host, cell)
        self.mapped[row] = True
        self.disabled[row] = disabled
        self.forced_down[row] = forced_down
        self._derive(row)

    def drop_wish(self, node: NodeUuid) -> None:
        """Forget the mapping of a node."""
        row = self.row_of.get(node)
        if row is not None:
            self.mapped[row] = False
            self._derive(row)

    def set_aggregate(self, number: int, hosts: Iterable[str], metadata: Mapping[str, str]) -> None:
        """Set one aggregate; `availability_zone` in its metadata puts its hosts into that zone."""
        before = self.aggregates.get(number, Aggregate())
        after = self.aggregates[number] = Aggregate(frozenset(hosts), dict(metadata))
        self._regroup(number, before.hosts, after.hosts)

    def drop_aggregate(self, number: int) -> None:
        """Forget one aggregate."""
        before = self.aggregates.pop(number, None)
        if before is not None:
            self._regroup(number, before.hosts, frozenset())

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
            for row in np.flatnonzero(self.cell[: self.size] == flags.code).tolist():
                self._derive(row)

    # --- what the cells hear -----------------------------------------------------------------------

    def set_heard(self, cell: CellUuid, nodes: tuple[NodeUuid, ...], at: int) -> None:
        """Take which nodes a cell's latest beat names; `at`: when it was sent, microseconds since the epoch."""
        code = self._cell(cell).code
        self._beats[cell] = (frozenset(nodes), at)
        now: Mask = np.zeros(self._length, dtype=np.bool_)
        named = [row for node in nodes if (row := self.row_of.get(node)) is not None]
        now[named] = True
        mine = self.cell == code
        now &= mine
        self.last_heard[now] = at
        for changed in np.flatnonzero((now != self.heard) & mine).tolist():
            self.heard[changed] = now[changed]
            self._derive(changed)

    # --- inside ------------------------------------------------------------------------------------

    def _row(self, node: NodeUuid) -> int:
        row = self.row_of.get(node)
        if row is None:
            row = self.size
            if row == self._length:
                self._grow(self._length * 2)
            self.nodes.append(node)
            self.hosts.append("")
            self._hypervisors.append("")
            self.row_of[node] = row
            self.cell[row] = _NO_CELL
            self.node_hash[row] = stable_hash(node)
            self._log.append(row)
        return row

    def _grow(self, length: int) -> None:
        self._length = length
        for name, column in list(vars(self).items()):
            if isinstance(column, np.ndarray):
                setattr(self, name, grown(column, length))
        self.traits.grow(length)
        self.membership.grow(length)
        for amounts in self.resources.values():
            amounts.grow(length)

    def _place(self, row: int, host: str, cell: CellUuid) -> None:
        """Set a row's name and cell; a beat or an aggregate that was there before the row takes effect now."""
        if self.hosts[row] != host:
            self._rows_of_host.get(self.hosts[row], set()).discard(row)
            self._rows_of_host.setdefault(host, set()).add(row)
            self.hosts[row] = host
            self._set_membership(row)
        code = self._cell(cell).code
        if self.cell[row] != code:
            self.cell[row] = code
            named, at = self._beats.get(cell, (frozenset(), 0))
            self.heard[row] = self.nodes[row] in named
            self.last_heard[row] = at if self.heard[row] else 0

    def _set_hypervisor(self, row: int, name: str) -> None:
        if self._hypervisors[row] != name:
            self._rows_of_hypervisor.get(self._hypervisors[row], set()).discard(row)
            self._rows_of_hypervisor.setdefault(name, set()).add(row)
            self._hypervisors[row] = name

    def _cell(self, cell: CellUuid) -> CellFlags:
        flags = self.cells.get(cell)
        if flags is None:
            flags = self.cells[cell] = CellFlags(len(self.cell_names))
            self.cell_names.append(cell)
        return flags

    def _amounts(self, name: str) -> Amounts:
        amounts = self.resources.get(name)
        if amounts is None:
            amounts = self.resources[name] = Amounts(self._length)
        return amounts

    def _regroup(self, number: int, before: frozenset[str], after: frozenset[str]) -> None:
        for host in before - after:
            self._aggregates_of_host[host].discard(number)
        for host in after - before:
            self._aggregates_of_host.setdefault(host, set()).add(number)
        for host in before | after:
            for row in self.rows_named(host):
                self._set_membership(row)

    def _set_membership(self, row: int) -> None:
        numbers = self.aggregates_of(self.hosts[row])
        self.membership.set_row(row, numbers)
        named = (self.aggregates[number].metadata.get(ZONE_KEY) for number in numbers)
        zone = next((name for name in named if name), DEFAULT_ZONE)
        if zone not in self._zone_codes:
            self._zone_codes[zone] = len(self.zones)
            self.zones.append(zone)
        self.zone[row] = self._zone_codes[zone]
        self._log.append(row)

    def _derive(self, row: int) -> None:
        cell = int(self.cell[row])
        flags = self.cells[self.cell_names[cell]] if cell != _NO_CELL else CellFlags(_NO_CELL)
        self.ready[row] = self.mapped[row] and self.reported[row] and flags.asserted
        self.up[row] = self.heard[row] and flags.living and not self.forced_down[row]
        self._log.append(row)

    def forget_old_changes(self) -> None:
        """Shorten the log of changed rows; who has not read it takes all rows."""
        if len(self._log) > 4 * max(64, self.size):
            self._log_start += len(self._log)
            self._log.clear()
