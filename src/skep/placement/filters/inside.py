"""What the stages that look into hosts have in common: which of the hosts have room for a part of the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from skep.domain.nested.layout import Layout
from skep.domain.nested.room import RoomKey
from skep.domain.nested.wanted import Group, Wanted
from skep.placement.filters.abilities import PLENTY, UNCOUNTED
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

MOST_COUNTED = 5_000
"""Different conditions of hosts from which servers are counted: each costs about as much as a decision."""


def groups_asked(request: PlacementRequest) -> Wanted | None:
    """Return what is asked of nested providers, without devices by alias and NUMA cells."""
    asked = request.nested
    return None if asked is None or not (asked.all_groups or asked.loose) else replace(asked, numa=None, devices=())


def devices_asked(request: PlacementRequest) -> Wanted | None:
    """Return the devices that are asked for, beside the groups: both may want the same pool."""
    asked = request.nested
    return None if asked is None or not asked.devices else replace(asked, numa=None)


def numa_asked(request: PlacementRequest) -> Wanted | None:
    """Return all that is asked, where NUMA cells are: devices must be near to them."""
    asked = request.nested
    return None if asked is None or asked.numa is None else asked


@dataclass(frozen=True, slots=True)
class RoomInside:
    """The question whether there is room inside of hosts for a part of the request: let through if it asks for none."""

    asked: Callable[[PlacementRequest], Wanted | None]

    def applies(self, request: PlacementRequest) -> bool:
        """Tell whether the request asks for any of it."""
        return self.asked(request) is not None

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through hosts that have room now."""
        asked = self.asked(request)
        return hosts.all() if asked is None else passing(hosts, asked)

    def if_empty(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through hosts that would have room if nothing of it were taken."""
        asked = self.asked(request)
        return hosts.all() if asked is None else passing_if_empty(hosts, asked)

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:
        """Tell whether one row has room."""
        asked = self.asked(request)
        return asked is None or passes_row(table, asked, row)

    def room(self, hosts: HostView, request: PlacementRequest) -> Ints:
        """Return how many such servers each host has room for."""
        asked = self.asked(request)
        return np.full(len(hosts), PLENTY) if asked is None else servers(hosts, asked)


def passing(hosts: HostView, asked: Wanted) -> Mask:
    """Return which hosts have room, each for itself."""
    table = hosts.table
    rooms = table.nested
    told = rooms.told(table.size)[hosts.selected]
    mask = _flat(hosts, asked) & ~told
    answers = rooms.answers(asked)
    for place, row in zip(told.nonzero()[0].tolist(), hosts.numbers(told), strict=True):
        if rooms.fits(row, answers):
            mask[place] = True
    return mask


def passing_if_empty(hosts: HostView, asked: Wanted) -> Mask:
    """Return which hosts would have room if nothing of their inside were taken."""
    table = hosts.table
    rooms = table.nested
    told = rooms.told(table.size)[hosts.selected]
    mask = _flat(hosts, asked) & ~told
    answers = rooms.answers(asked)
    for place, row in zip(told.nonzero()[0].tolist(), hosts.numbers(told), strict=True):
        mask[place] = rooms.fits_if_empty(row, answers)
    return mask


def servers(hosts: HostView, asked: Wanted) -> Ints:
    """Return how many such servers each host has room for inside, one after the other.

    PLENTY on hosts without an inside, where flat amounts end it. Where hosts are in very many different conditions not
    all are counted: UNCOUNTED.
    """
    table = hosts.table
    rooms = table.nested
    told = rooms.told(table.size)[hosts.selected]
    room: Ints = np.where(_flat(hosts, asked), PLENTY, 0)
    counted: dict[tuple[Layout, RoomKey], int] = {}
    for place, row in zip(told.nonzero()[0].tolist(), hosts.numbers(told), strict=True):
        found = rooms.servers(row, asked, counted, MOST_COUNTED)
        room[place] = UNCOUNTED if found is None else found
    return room


def passes_row(table: HostTable, asked: Wanted, row: int) -> bool:
    """Give the same answer for one row."""
    rooms = table.nested
    if row < len(rooms.told(table.size)) and rooms.told(table.size)[row]:
        return rooms.fits(row, rooms.answers(asked))
    return bool(_flat(HostView(table, slice(row, row + 1)), asked)[0])


def has_room(table: HostTable, asked: Wanted, row: int) -> bool:
    """Give the same answer for one row and a request that nobody makes."""
    if row < len(table.nested.told(table.size)) and table.nested.told(table.size)[row]:
        return table.nested.fits(row, table.nested.imagined(asked))
    return bool(_flat(HostView(table, slice(row, row + 1)), asked)[0])


def _flat(hosts: HostView, asked: Wanted) -> Mask:
    """Return who serves it without any inside: how much is free the flat inventory says."""
    mask = hosts.all()
    several = asked.isolated and len(asked.groups) > 1
    if asked.numa is not None or asked.devices or asked.ports.groups or several:
        return hosts.none()
    for group in asked.groups:
        mask &= _has(hosts, group)
    return mask


def _has(hosts: HostView, group: Group) -> Mask:
    mask = hosts.all()
    for name, _ in group.resources:
        amounts = hosts.table.resources.get(name)
        mask &= amounts.capacity[hosts.selected] > 0 if amounts is not None else False
    for trait in group.required:
        mask &= hosts.with_trait(trait)
    for trait in group.forbidden:
        mask &= ~hosts.with_trait(trait)
    for choice in group.any_of:
        any_of = hosts.none()
        for trait in choice:
            any_of |= hosts.with_trait(trait)
        mask &= any_of
    return mask
