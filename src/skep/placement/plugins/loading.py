"""Which filters and weighers other packages bring: entry points of the groups `skep.filters` and `skep.weighers`.

The entry point's name is what an operator writes; what it names is a `Filter` or a `Weigher`, as the functions of
`lifting.py` make them. Only what is chosen is loaded, and a name of Skep's own is never looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from skep.entry_points import EntryPointGroup
from skep.placement.filters.base import Filter
from skep.placement.weighers.base import Weigher

FILTERS = EntryPointGroup(name="skep.filters", setting="scheduler", noun="filter", page="docs/plugins.md")
WEIGHERS = EntryPointGroup(name="skep.weighers", setting="scheduler", noun="weigher", page="docs/plugins.md")


def load_filter(name: str, shipped: Iterable[str]) -> Filter:
    """Return another package's filter. Raises Misconfigured naming the entry point and what is wrong with it."""
    loaded = _load(FILTERS, name, shipped)
    if not isinstance(loaded, Filter):
        raise FILTERS.broken(name, f"it is {type(loaded).__name__}, no Filter ({FILTERS.page})")
    return replace(loaded, name=name, plugin=True)


def load_weigher(name: str, shipped: Iterable[str]) -> Weigher:
    """Return another package's weigher. Raises Misconfigured as `load_filter` does."""
    loaded = _load(WEIGHERS, name, shipped)
    if not isinstance(loaded, Weigher):
        raise WEIGHERS.broken(name, f"it is {type(loaded).__name__}, no Weigher ({WEIGHERS.page})")
    return replace(loaded, name=name, plugin=True)


def _load(group: EntryPointGroup, name: str, shipped: Iterable[str]) -> Any:
    loaded = group.load(name, shipped)
    if getattr(loaded, "shaped_by", None) is not None:
        raise group.broken(name, "shaped_by is for Skep's own filters; expected per_request=True instead")
    return loaded
