"""Numbered groups of resources (`resources1:CLASS`, `trait1:NAME`), and classes of which nested providers are asked."""

from __future__ import annotations

import numpy as np

from skep.placement.filters.base import PLENTY, Filter
from skep.placement.filters.inside import groups_asked, passes_row, passing, passing_if_empty, servers
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who can serve each group from one provider with its traits."""
    asked = groups_asked(request)
    return hosts.all() if asked is None else passing(hosts, asked)


def if_empty(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who would have room if nothing of it were taken."""
    asked = groups_asked(request)
    return hosts.all() if asked is None else passing_if_empty(hosts, asked)


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell the same of one row."""
    asked = groups_asked(request)
    return asked is None or passes_row(table, asked, row)


def room(hosts: HostView, request: PlacementRequest) -> Ints:
    """Return how many such servers each host has room for."""
    asked = groups_asked(request)
    return np.full(len(hosts), PLENTY) if asked is None else servers(hosts, asked)


FILTER = Filter(
    name="ResourceGroupsFilter",
    passes=passes,
    stage=lambda _: "groups of resources",
    applies=lambda request: groups_asked(request) is not None,
    asked=False,
    when_forced=True,
    fits=fits,
    room=room,
    if_empty=if_empty,
)
