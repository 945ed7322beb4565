"""Not too many at once: hosts on which fewer than `max_instances_per_host` servers are there or claimed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skep.placement.filters.abilities import PLENTY, Recorded
from skep.placement.filters.aggregate_values import least, least_of
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest

KEY = "max_instances_per_host"


@dataclass(frozen=True, slots=True)
class AtMostServers:
    """The question whether fewer than so many servers are there or claimed."""

    most: int

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG002  # the signature of filters
        """Let through hosts below the limit."""
        mask: Mask = hosts.servers < self.most
        return mask

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:  # noqa: ARG002
        """Tell whether one row is below the limit."""
        return table.instances.item(row) + table.claimed_servers.item(row) < self.most

    def room(self, hosts: HostView, request: PlacementRequest) -> Ints:  # noqa: ARG002  # the signature of `room`
        """Return how many more servers each host may get."""
        room: Ints = np.maximum(self.most - hosts.servers, 0)
        return room

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:  # noqa: ARG002
        """Tell whether the record is below the limit."""
        return record.servers < self.most


@dataclass(frozen=True, slots=True)
class AtMostServersByAggregate:
    """The same question where metadata of aggregates set the limit; a default holds for hosts of none that does."""

    default: int

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG002
        """Let through hosts below their limit."""
        mask: Mask = hosts.servers < least(hosts, KEY, self.default)
        return mask

    def room(self, hosts: HostView, request: PlacementRequest) -> Ints:  # noqa: ARG002
        """Return how many more servers each host may get."""
        room: Ints = np.clip(least(hosts, KEY, self.default) - hosts.servers, 0, PLENTY).astype(np.int64)
        return room

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:  # noqa: ARG002
        """Tell whether the record is below the limit of its host."""
        return record.servers < least_of(table, record.row, KEY, self.default)


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter with one limit for all hosts."""
    below = AtMostServers(options.max_instances_per_host)
    return (
        Filter(
            name="NumInstancesFilter",
            passes=below,
            foreseeable=True,
            stage=lambda _: "servers per host",
            asked=False,
            if_empty=below,
        ),
    )


def made_by_aggregate(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter whose limit metadata of aggregates set for their hosts."""
    below = AtMostServersByAggregate(options.max_instances_per_host)
    return (
        Filter(
            name="AggregateNumInstancesFilter",
            passes=below,
            foreseeable=True,
            stage=lambda _: "servers per host",
            asked=False,
            if_empty=below,
        ),
    )
