"""Numbered groups of resources (`resources1:CLASS`, `trait1:NAME`), and classes of which nested providers are asked."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.filters.inside import RoomInside, groups_asked

ROOM = RoomInside(groups_asked)
"""Lets through hosts that can serve each group from one provider with its traits."""

FILTER = Filter(
    name="ResourceGroupsFilter",
    passes=ROOM,
    stage=lambda _: "groups of resources",
    applies=ROOM.applies,
    asked=False,
    when_forced=True,
    if_empty=ROOM.if_empty,
)
