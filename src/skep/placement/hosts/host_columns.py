"""What is held of each host: one row per node, columns that grow, and a log of which rows changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.placement.hosts.changelog import HostLog
from skep.placement.hosts.columns import Amounts, BitSets, Ints, Mask, grown
from skep.placement.hosts.ends import ExpectedEnds
from skep.placement.hosts.levels import Levels
from skep.placement.hosts.mix import Mix
from skep.placement.hosts.multipliers import Multipliers
from skep.placement.hosts.names import HypervisorNames, RowNames
from skep.placement.hosts.published import DEFAULT_ZONE, Aggregate, CellFlags
from skep.placement.hosts.rooms import Rooms

NO_CELL = -1
"""The code of a cell, of rows that are in none."""
MOST_TRAITS = 4_000
"""Different traits that all hosts together may have at one moment; each costs a bit of every row."""


def stable_hash(text: str) -> int:
    """Return 64 bits that depend on `text` alone, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class HostColumns:
    """The rows and their columns. Rows are never reused by another node."""

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
        self.usages: list[HostUsage | None] = []
        """What each host said last, with all that has no column."""
        self._hypervisors = HypervisorNames(self._host_names, self.usages)
        self.multipliers = Multipliers()
        """What aggregates say of the multipliers of weighers."""
        self.log, self.levels = HostLog(), Levels()
        self.nested = Rooms()
        """The inside of hosts: NUMA cells, devices and other nested providers."""
        self.ends = ExpectedEnds()
        """When hosts are expected to be empty."""
        self.mix = Mix()
        """What is asked for lately, if a weigher wants to know."""

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
        return cell != NO_CELL and self.cells[self.cell_names[cell]].living

    def zone_of(self, row: int) -> str:
        """Return the name of the row's availability zone."""
        return self.zones[self.zone.item(row)]

    def aggregates_of_row(self, row: int) -> tuple[int, ...]:
        """Return the ids of the aggregates that name the row's host."""
        return cast("tuple[int, ...]", self.membership.names_of(row))

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

    # --- growing --------------------------------------------------------------------------------

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
            self.cell[row] = NO_CELL
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

    def amounts(self, name: str) -> Amounts:
        """Return the columns of a resource class, made where there are none."""
        amounts = self.resources.get(name)
        if amounts is None:
            amounts = self.resources[name] = Amounts(self._length)
            self.moved += 1
        return amounts
