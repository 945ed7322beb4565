"""How many different traits and resource classes all hosts together may have at one moment."""

from __future__ import annotations

from skep.domain.hosts import HostUsage
from skep.placement.hosts.host_columns import MOST_TRAITS, HostColumns

MOST_CLASSES = 200
"""Different resource classes, likewise; each costs 40 bytes of every row."""


def no_room_for(table: HostColumns, usage: HostUsage) -> str | None:
    """Return why a report cannot be held beside those of all other hosts, beginning with the field; None if it can.

    Names that nobody has cost nothing: their place is given to others.
    """
    traits = table.traits.new_names(usage.traits)
    if traits and table.traits.names + traits > MOST_TRAITS:
        return f"usage.traits: {traits} that no other host has; there is room for {MOST_TRAITS} different ones"
    classes = len((usage.inventory.keys() | usage.used.keys()) - table.resources.keys())
    if classes and len(table.resources) + classes > MOST_CLASSES:
        _forget_classes(table)
        if len(table.resources) + classes > MOST_CLASSES:
            return (
                f"usage.inventory: {classes} classes that no other host has; "
                f"there is room for {MOST_CLASSES} different ones"
            )
    return None


def _forget_classes(table: HostColumns) -> None:
    """Forget the classes that no host has any more."""
    for name in [name for name, amounts in table.resources.items() if amounts.is_empty]:
        del table.resources[name]
        table.moved += 1
