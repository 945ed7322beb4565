"""The hosts as filters and weighers see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skep.domain.hosts import HostUsage
from skep.domain.ids import NodeUuid
from skep.placement.hosts.columns import Floats, Ints, Mask, Rows
from skep.placement.hosts.table import HostTable

T = TypeVar("T")


class HostView:
    """Some rows of the table, read-only: the `hosts` of filters and weighers. All columns have the view's length."""

    __slots__ = ("_rows", "table")

    def __init__(self, table: HostTable, rows: Rows | None = None) -> None:
        """Show `rows`, all of them by default."""
        self.table = table
        self._rows = slice(0, table.size) if rows is None else rows

    @property
    def selected(self) -> Rows:
        """Which rows of the table these are, as an index into its columns."""
        return self._rows

    def numbers(self, mask: Mask) -> list[int]:
        """Return the numbers of those rows of the table that `mask`, a value for each host of the view, names."""
        rows = self._rows
        chosen: NDArray[np.intp] = mask.nonzero()[0]
        found: list[int] = (chosen + rows.start if isinstance(rows, slice) else rows[chosen]).tolist()
        return found

    def __len__(self) -> int:
        rows = self._rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)

    @property
    def rows(self) -> NDArray[np.intp]:
        """The table's row of each host."""
        return np.arange(self.table.size)[self._rows]

    @property
    def mapped(self) -> Mask:
        """Nodes that the operator's mapping knows."""
        return self.table.mapped[self._rows]

    @property
    def reported(self) -> Mask:
        """Nodes whose report is known in this epoch."""
        return self.table.reported[self._rows]

    @property
    def ready(self) -> Mask:
        """Nodes whose free resources are known."""
        return self.table.ready[self._rows]

    @property
    def up(self) -> Mask:
        """Nodes that a living beat of their cell names."""
        return self.table.up[self._rows]

    @property
    def disabled(self) -> Mask:
        """Nodes that the operator has disabled."""
        return self.table.disabled[self._rows]

    @property
    def cell(self) -> NDArray[np.int32]:
        """Code of each node's cell."""
        return self.table.cell[self._rows]

    @property
    def failed_builds(self) -> Ints:
        """Builds failed since the last that succeeded."""
        return self.table.failed_builds[self._rows]

    @property
    def hypervisor_version(self) -> Ints:
        """Version of each host's hypervisor: three digits to a part."""
        return self.table.hypervisor_version[self._rows]

    @property
    def servers(self) -> Ints:
        """Servers that each host counts, and those that are only claimed yet."""
        return self.table.instances[self._rows] + self.table.claimed_servers[self._rows]

    @property
    def io_ops(self) -> Ints:
        """Operations on whole disks under way; each claim is a build that will be one."""
        return self.table.io_ops[self._rows] + self.table.claimed_servers[self._rows]

    @property
    def occupied_until(self) -> Floats:
        """When each host is expected to be empty, microseconds since the epoch: inf where a server has no known end.

        -inf of a host that is empty now.
        """
        table = self.table
        return table.ends.occupied_until(self._rows, table.instances, table.claimed_servers)

    def usages(self) -> list[HostUsage | None]:
        """Return what each host said last; None of one that said nothing."""
        return self._of_each(self.table.usages)

    def nodes(self) -> list[NodeUuid]:
        """Return the node of each row."""
        return self._of_each(self.table.nodes)

    def telling_of_their_inside(self) -> Iterator[tuple[int, int]]:
        """Give the rows that have told of NUMA cells or devices, each with its number in this view."""
        told = self.table.nested.told(self.table.size)[self._rows].nonzero()[0].tolist()
        rows = self._rows
        for number in told:
            yield number, number + rows.start if isinstance(rows, slice) else int(rows[number])

    def _of_each(self, column: list[T]) -> list[T]:
        rows = self._rows
        return column[rows] if isinstance(rows, slice) else [column[row] for row in rows.tolist()]

    def taken(self, resource_class: str) -> Ints:
        """Return what is used and claimed of a resource class."""
        amounts = self.table.resources.get(resource_class)
        if amounts is None:
            return np.zeros(len(self), dtype=np.int64)
        return amounts.capacity[self._rows] - amounts.free[self._rows]

    def multipliers(self, key: str) -> Floats | None:
        """Return what aggregates set for their hosts, NaN where they set nothing; None where no aggregate does."""
        column = self.table.multipliers.columns.get(key)
        return None if column is None else column[self._rows]

    def none(self) -> Mask:
        """Return a mask that lets nobody through."""
        return np.zeros(len(self), dtype=np.bool_)

    def all(self) -> Mask:
        """Return a mask that lets everybody through."""
        return np.ones(len(self), dtype=np.bool_)

    def free(self, resource_class: str) -> Ints:
        """Return (total - reserved) x ratio - used - claimed; 0 where nobody has the class."""
        amounts = self.table.resources.get(resource_class)
        return amounts.free[self._rows] if amounts else np.zeros(len(self), dtype=np.int64)

    def capacity(self, resource_class: str) -> Ints:
        """Return (total - reserved) x ratio; 0 where nobody has the class."""
        amounts = self.table.resources.get(resource_class)
        return amounts.capacity[self._rows] if amounts else np.zeros(len(self), dtype=np.int64)

    def free_share(self, resource_class: str) -> Floats:
        """Return the free part of each host's own capacity."""
        amounts = self.table.resources.get(resource_class)
        return amounts.share[self._rows] if amounts else np.zeros(len(self), dtype=np.float64)

    def with_trait(self, trait: str) -> Mask:
        """Return who has the trait."""
        return self.table.traits.having(trait, self._rows)

    def in_aggregate(self, number: int) -> Mask:
        """Return who is in the aggregate."""
        return self.table.membership.having(number, self._rows)

    def in_zone(self, zone: str) -> Mask:
        """Return who is in the availability zone."""
        if zone not in self.table.zones:
            return self.none()
        mask: Mask = self.table.zone[self._rows] == self.table.zones.index(zone)
        return mask

    def named(self, hosts: Iterable[str]) -> Mask:
        """Return whose host has one of these names."""
        return self._among(row for host in hosts for row in self.table.rows_named(host))

    def having_nodes(self, nodes: Iterable[NodeUuid]) -> Mask:
        """Return who is one of these nodes."""
        row_of = self.table.row_of
        return self._among(row for node in nodes if (row := row_of.get(node)) is not None)

    def called(self, hypervisor: str) -> Mask:
        """Return whose hypervisor has this host name."""
        return self._among(self.table.rows_of_hypervisor(hypervisor))

    def counted(self, counts: Mapping[NodeUuid, int]) -> Ints:
        """Return a number for each node, 0 for those that are not in `counts`."""
        column = np.zeros(self.table.size, dtype=np.int64)
        for node, count in counts.items():
            row = self.table.row_of.get(node)
            if row is not None:
                column[row] = count
        return column[self._rows]

    def told(self, namespace: str) -> Mask:
        """Return of whom another service's namespace has a state."""
        return self.table.joined.told(namespace)[self._rows]

    def number(self, namespace: str, field: str) -> Floats:
        """Return the number in a field of another service's states, the largest where several join a host; else NaN."""
        return self.table.joined.number(namespace, field)[self._rows]

    def having(self, namespace: str, field: str, value: str | bool) -> Mask:
        """Return of whom a state of the namespace has `value` in its field, or holds it."""
        return self.table.joined.having(namespace, field, value)[self._rows]

    def _among(self, rows: Iterable[int]) -> Mask:
        mask = np.zeros(self.table.size, dtype=np.bool_)
        mask[list(rows)] = True
        return mask[self._rows]
