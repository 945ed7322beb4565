"""Not too many at once: hosts on which fewer than `max_instances_per_host` servers are there or claimed."""

from __future__ import annotations

from functools import partial

import numpy as np

from skep.placement.filters.aggregate_values import least, least_of
from skep.placement.filters.base import PLENTY, Filter, Recorded
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest

KEY = "max_instances_per_host"


def _passes(hosts: HostView, _request: PlacementRequest, *, most: int) -> Mask:
    mask: Mask = hosts.servers < most
    return mask


def _fits(table: HostTable, _request: PlacementRequest, row: int, *, most: int) -> bool:
    return table.instances.item(row) + table.claimed_servers.item(row) < most


def _room(hosts: HostView, _request: PlacementRequest, *, most: int) -> Ints:
    room: Ints = np.maximum(most - hosts.servers, 0)
    return room


def _still(_table: HostTable, _request: PlacementRequest, record: Recorded, *, most: int) -> bool:
    return record.servers < most


def _passes_by_aggregate(hosts: HostView, _request: PlacementRequest, *, default: int) -> Mask:
    mask: Mask = hosts.servers < least(hosts, KEY, default)
    return mask


def _room_by_aggregate(hosts: HostView, _request: PlacementRequest, *, default: int) -> Ints:
    room: Ints = np.clip(least(hosts, KEY, default) - hosts.servers, 0, PLENTY).astype(np.int64)
    return room


def _still_by_aggregate(table: HostTable, _request: PlacementRequest, record: Recorded, *, default: int) -> bool:
    return record.servers < least_of(table, record.row, KEY, default)


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter with one limit for all hosts."""
    most = options.max_instances_per_host
    return (
        Filter(
            name="NumInstancesFilter",
            passes=partial(_passes, most=most),
            foreseeable=True,
            stage=lambda _: "servers per host",
            asked=False,
            fits=partial(_fits, most=most),
            room=partial(_room, most=most),
            if_empty=partial(_passes, most=most),
            still=partial(_still, most=most),
        ),
    )


def made_by_aggregate(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter whose limit metadata of aggregates set for their hosts."""
    return (
        Filter(
            name="AggregateNumInstancesFilter",
            passes=partial(_passes_by_aggregate, default=options.max_instances_per_host),
            foreseeable=True,
            stage=lambda _: "servers per host",
            asked=False,
            room=partial(_room_by_aggregate, default=options.max_instances_per_host),
            if_empty=partial(_passes_by_aggregate, default=options.max_instances_per_host),
            still=partial(_still_by_aggregate, default=options.max_instances_per_host),
        ),
    )
