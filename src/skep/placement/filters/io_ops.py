"""Not too much at once: hosts on which fewer than `max_io_ops_per_host` operations on whole disks are under way.

A claim is a build that will be one.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.placement.filters.abilities import Recorded
from skep.placement.filters.aggregate_values import least, least_of
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest

KEY = "max_io_ops_per_host"


@dataclass(frozen=True, slots=True)
class AtMost:
    """The question whether fewer than so many operations on whole disks are under way."""

    most: int

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG002  # the signature of filters
        """Let through hosts below the limit."""
        mask: Mask = hosts.io_ops < self.most
        return mask

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:  # noqa: ARG002
        """Tell whether one row is below the limit."""
        return table.io_ops.item(row) + table.claimed_servers.item(row) < self.most

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:  # noqa: ARG002
        """Tell whether the record is below the limit."""
        return record.io_ops < self.most


@dataclass(frozen=True, slots=True)
class AtMostByAggregate:
    """The same question where metadata of aggregates set the limit; a default holds for hosts of none that does."""

    default: int

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG002
        """Let through hosts below their limit."""
        mask: Mask = hosts.io_ops < least(hosts, KEY, self.default)
        return mask

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:  # noqa: ARG002
        """Tell whether the record is below the limit of its host."""
        return record.io_ops < least_of(table, record.row, KEY, self.default)


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter with one limit for all hosts."""
    below = AtMost(options.max_io_ops_per_host)
    return (
        Filter(
            name="IoOpsFilter",
            passes=below,
            foreseeable=True,
            stage=lambda _: "operations under way per host",
            asked=False,
            if_empty=below,
        ),
    )


def made_by_aggregate(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter whose limit metadata of aggregates set for their hosts."""
    below = AtMostByAggregate(options.max_io_ops_per_host)
    return (
        Filter(
            name="AggregateIoOpsFilter",
            passes=below,
            foreseeable=True,
            stage=lambda _: "operations under way per host",
            asked=False,
            if_empty=below,
        ),
    )
