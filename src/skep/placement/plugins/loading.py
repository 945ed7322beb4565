"""Which filters and weighers other packages bring: entry points of the groups `skep.filters` and `skep.weighers`.

The entry point's name is what an operator writes; what it names is a `Filter` or a `Weigher`, as the functions of
`lifting.py` make them. Only what is chosen is loaded, and a name of Skep's own is never looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from skep.domain.errors import Misconfigured
from skep.placement.filters.base import Filter
from skep.placement.weighers.base import Weigher

FILTERS_GROUP = "skep.filters"
WEIGHERS_GROUP = "skep.weighers"


def load_filter(name: str, shipped: Iterable[str]) -> Filter:
    """Return another package's filter. Raises Misconfigured naming the entry point and what is wrong with it."""
    loaded = _load(FILTERS_GROUP, "filter", name, shipped)
    if not isinstance(loaded, Filter):
        raise _broken(FILTERS_GROUP, name, f"it is {type(loaded).__name__}, no Filter (docs/plugins.md)")
    return replace(loaded, name=name, plugin=True)


def load_weigher(name: str, shipped: Iterable[str]) -> Weigher:
    """Return another package's weigher. Raises Misconfigured as `load_filter` does."""
    loaded = _load(WEIGHERS_GROUP, "weigher", name, shipped)
    if not isinstance(loaded, Weigher):
        raise _broken(WEIGHERS_GROUP, name, f"it is {type(loaded).__name__}, no Weigher (docs/plugins.md)")
    return replace(loaded, name=name, plugin=True)


def _load(group: str, kind: str, name: str, shipped: Iterable[str]) -> Any:
    found = [entry for entry in entry_points(group=group) if entry.name == name]
    if not found:
        known = [*shipped, *sorted({entry.name for entry in entry_points(group=group)})]
        raise Misconfigured(f"scheduler: no {kind} is called {name}; there are {', '.join(known)}")
    if len({entry.value for entry in found}) > 1:
        raise Misconfigured(f"scheduler: {name} is the name of a {kind} in {' and in '.join(map(_package, found))}")
    try:
        loaded = found[0].load()
    except Exception as error:
        raise _broken(group, name, f"{type(error).__name__}: {error}") from error
    if getattr(loaded, "shaped_by", None) is not None:
        raise _broken(group, name, "shapes of requests are Skep's own; say per_request=True instead of shaped_by")
    return loaded


def _broken(group: str, name: str, why: str) -> Misconfigured:
    return Misconfigured(f"scheduler: entry point {name} of the group {group} cannot be used: {why}")


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist is not None else 'a package'} ({entry.value})"
