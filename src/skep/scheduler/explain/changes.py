"""The smallest changes that would fit: less of a resource, without a filter, with a host back; two of them if need be.

Words say what the owner would ask for instead, and name no host. Where very many hosts would do after a change, only
some are looked at to find the best words.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from skep.domain.builds import Change
from skep.scheduler.explain.failures import Failures, FilterSet, RowNumbers
from skep.scheduler.explain.misses import nearest, shortage
from skep.scheduler.filters.base import Filter
from skep.scheduler.filters.traits import with_any
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView

MOST_CHANGES = 3
_NEEDED = ("VCPU", "MEMORY_MB")
_MOST_PAIRS = 8


class Part(msgspec.Struct, frozen=True):
    """What must be changed about one filter, so that some of the hosts pass that it rejects."""

    words: tuple[str, ...]
    hosts: int


Relaxing = Callable[[HostTable, PlacementRequest, RowNumbers], Part | None]
"""From hosts that the filter rejects to the least change after which some pass. None: there is none."""


def smallest_changes(
    table: HostTable, request: PlacementRequest, failures: Failures, by_capacity: RowNumbers
) -> tuple[Change, ...]:
    """Return what would fit if one thing were changed; where nothing would, the best of two things.

    `by_capacity`: the nearest of the hosts that fail on capacity alone, nearest first.
    """
    found = []
    for number, entry in enumerate(failures.filters):
        hosts = failures.counts.get(1 << number, 0)
        if hosts:
            is_capacity = entry.name == "CapacityFilter"
            rows = by_capacity if is_capacity else failures.some(1 << number)
            part = _relaxing(entry)(table, request, rows)
            if part is not None:
                of_all = part.hosts if is_capacity or part.hosts < len(rows) else hosts
                order = (entry.name in _OF_OPERATOR, len(part.words), not is_capacity, -of_all)
                found.append((order, Change(parts=part.words, hosts=of_all)))
    if found:
        found.sort(key=lambda item: item[0])
        return tuple(change for _, change in found[:MOST_CHANGES])
    pairs = [failed for failed, hosts in failures.counts.items() if hosts and failed.bit_count() == 2]
    pairs.sort(key=lambda failed: (-failures.counts[failed], failed))
    both = (_both(table, request, failures, failed) for failed in pairs[:_MOST_PAIRS])
    return tuple(sorted((change for change in both if change), key=lambda change: len(change.parts))[:1])


def _both(table: HostTable, request: PlacementRequest, failures: Failures, failed: FilterSet) -> Change | None:
    """Return what must be changed about two filters for some of the hosts that fail on both."""
    rows = failures.some(failed)
    entries = [entry for number, entry in enumerate(failures.filters) if failed >> number & 1]
    if any(entry.name == "CapacityFilter" for entry in entries):
        rows = nearest(table, request, rows)
    rows = rows[:1]
    first = _relaxing(entries[0])(table, request, rows)
    second = _relaxing(entries[1])(table, request, rows)
    if first is None or second is None:
        return None
    return Change(parts=first.words + second.words, hosts=1)


def _relaxing(entry: Filter) -> Relaxing:
    return _RELAXING.get(entry.name) or _without(entry)


def _without(entry: Filter) -> Relaxing:
    """Leave the whole filter out."""
    return lambda _table, request, rows: Part((f"without {entry.stage(request)}",), len(rows))


def _said(words: str) -> Relaxing:
    return lambda _table, _request, rows: Part((words,), len(rows))


def _less(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for what the nearest host has, of those that have some of everything that no flavor can be without."""
    for row in rows.tolist():
        lacks = shortage(table, request, row)
        if lacks and not any(lacks.get(name) == request.resources.get(name) for name in _NEEDED if name in lacks):
            break
    else:
        return None
    hosts = HostView(table, rows)
    fits = hosts.all()
    for name, amount in request.resources.items():
        fits &= hosts.free(name) >= amount - lacks.get(name, 0)
    words = (
        f"without any {name}" if amount == request.resources[name] else f"with {amount} {name} less"
        for name, amount in sorted(lacks.items())
    )
    return Part(tuple(words), int(np.count_nonzero(fits)))


def _elsewhere(table: HostTable, _request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for the zone in which most of the hosts are."""
    zones = np.bincount(table.zone[rows])
    best = int(zones.argmax())
    return Part((f"in availability zone {table.zones[best]}",), int(zones[best]))


def _traits(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Leave out the fewest traits: those by which one host is rejected."""
    hosts = HostView(table, rows)
    wrong = {f"without requiring {trait}": ~hosts.with_trait(trait) for trait in request.required_traits}
    wrong |= {f"without forbidding {trait}": hosts.with_trait(trait) for trait in request.forbidden_traits}
    wrong |= {f"without requiring {' or '.join(choice)}": ~with_any(hosts, choice) for choice in request.any_of_traits}
    table_of = np.array(list(wrong.values()))
    best = int(table_of.sum(axis=0).argmin())
    chosen = table_of[:, best]
    if not chosen.any():
        return None
    alike = (table_of <= chosen[:, None]).all(axis=0)
    return Part(tuple(words for words, is_one in zip(wrong, chosen, strict=True) if is_one), int(alike.sum()))


_OF_OPERATOR = frozenset({"ComputeFilter", "CellFilter", "IgnoredHostsFilter"})
"""What they ask is not the owner's to change."""

_RELAXING: dict[str, Relaxing] = {
    "CapacityFilter": _less,
    "AvailabilityZoneFilter": _elsewhere,
    "TraitsFilter": _traits,
    "ComputeFilter": _said("on a host that is down or disabled"),
    "CellFilter": _said("in a cell that is closed to it"),
    "IgnoredHostsFilter": _said("on a host that was tried"),
    "ReportsFilter": lambda _table, _request, _rows: None,
}
"""By the filter's name; any other is left out as a whole. What a host would report is not known before it does."""
