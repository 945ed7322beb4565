"""Numbered groups of resources (`resources1:CLASS`, `trait1:NAME`), those of ports, and classes of nested providers."""

from __future__ import annotations

from skep.domain.nested.wanted import Group
from skep.placement.filters.base import Filter
from skep.placement.filters.inside import RoomInside, groups_asked
from skep.placement.request import PlacementRequest

ROOM = RoomInside(groups_asked)
"""Lets through hosts that can serve each group from one provider with its traits."""

MOST_NAMED = 4
"""Groups of ports that a stage names."""


def _stage(request: PlacementRequest) -> str:
    """Name what ports ask for: their users see no flavor that says it."""
    groups = request.nested.ports.groups if request.nested is not None else ()
    if not groups:
        return "groups of resources"
    named = [_words(one) for one in groups[:MOST_NAMED]]
    more = [f"{len(groups) - MOST_NAMED} more"] if len(groups) > MOST_NAMED else []
    return f"groups of resources (ports: {', '.join(named + more)})"


def _words(group: Group) -> str:
    amounts = " and ".join(f"{name}={amount}" for name, amount in group.resources)
    return f"{amounts} with {' and '.join(group.required)}" if group.required else amounts


FILTER = Filter(
    name="ResourceGroupsFilter",
    passes=ROOM,
    stage=_stage,
    applies=ROOM.applies,
    asked=False,
    when_forced=True,
    if_empty=ROOM.if_empty,
)
