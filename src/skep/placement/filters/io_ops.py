"""Not too much at once: hosts on which fewer than `max_io_ops_per_host` operations on whole disks are under way.

A claim is a build that will be one.
"""

from __future__ import annotations

from functools import partial

from skep.placement.filters.aggregate_values import least, least_of
from skep.placement.filters.base import Filter, Recorded
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest

KEY = "max_io_ops_per_host"


def _passes(hosts: HostView, _request: PlacementRequest, *, most: int) -> Mask:
    mask: Mask = hosts.io_ops < most
    return mask


def _fits(table: HostTable, _request: PlacementRequest, row: int, *, most: int) -> bool:
    return table.io_ops.item(row) + table.claimed_servers.item(row) < most


def _still(_table: HostTable, _request: PlacementRequest, record: Recorded, *, most: int) -> bool:
    return record.io_ops < most


def _passes_by_aggregate(hosts: HostView, _request: PlacementRequest, *, default: int) -> Mask:
    mask: Mask = hosts.io_ops < least(hosts, KEY, default)
    return mask


def _still_by_aggregate(table: HostTable, _request: PlacementRequest, record: Recorded, *, default: int) -> bool:
    return record.io_ops < least_of(table, record.row, KEY, default)


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter with one limit for all hosts."""
    most = options.max_io_ops_per_host
    return (
        Filter(
            name="IoOpsFilter",
            passes=partial(_passes, most=most),
            foreseeable=True,
            stage=lambda _: "operations under way per host",
            asked=False,
            fits=partial(_fits, most=most),
            if_empty=partial(_passes, most=most),
            still=partial(_still, most=most),
        ),
    )


def made_by_aggregate(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter whose limit metadata of aggregates set for their hosts."""
    return (
        Filter(
            name="AggregateIoOpsFilter",
            passes=partial(_passes_by_aggregate, default=options.max_io_ops_per_host),
            foreseeable=True,
            stage=lambda _: "operations under way per host",
            asked=False,
            if_empty=partial(_passes_by_aggregate, default=options.max_io_ops_per_host),
            still=partial(_still_by_aggregate, default=options.max_io_ops_per_host),
        ),
    )
