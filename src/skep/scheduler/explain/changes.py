"""The smallest changes that would fit: less of a resource, without a filter, with a host back; two of them if need be.

Words say what the owner would ask for instead, and name no host. Where very many hosts would do after a change, only
some are looked at to find the best words.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from skep.domain.builds import Change
from skep.domain.resources import Resources
from skep.scheduler.explain.failures import Failures, FilterSet, RowNumbers
from skep.scheduler.explain.less import LOOKED_AT, aliases, enough, would_fit
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

    `by_capacity`: the nearest of the hosts that lack nothing but capacity, nearest first.
    """
    found: dict[tuple[str, ...], tuple[tuple[object, ...], Change]] = {}
    for number, entry in enumerate(failures.filters):
        is_capacity = 1 << number == failures.capacity
        rows = by_capacity if is_capacity else failures.some(1 << number)
        part = _relaxing(entry)(table, request, rows) if len(rows) else None
        if part is not None:
            of_all = part.hosts if is_capacity or part.hosts < len(rows) else failures.hosts(1 << number)
            order = (entry.name in _OF_OPERATOR, len(part.words), not is_capacity, -of_all)
            found.setdefault(part.words, (order, Change(parts=part.words, hosts=of_all)))
    if found:
        best = sorted(found.values(), key=lambda item: item[0])
        return tuple(change for _, change in best[:MOST_CHANGES])
    pairs = [failed for failed, hosts in failures.counts.items() if hosts and _is_pair(failures, failed)]
    pairs.sort(key=lambda failed: (-failures.counts[failed], failed))
    both = (_both(table, request, failures, failed) for failed in pairs[:_MOST_PAIRS])
    return tuple(sorted((change for change in both if change), key=lambda change: len(change.parts))[:1])


def _is_pair(failures: Failures, failed: FilterSet) -> bool:
    return failed.bit_count() == 2 or failures.things(failed) == 2


def _both(table: HostTable, request: PlacementRequest, failures: Failures, failed: FilterSet) -> Change | None:
    """Return what must be changed about two things for some of the hosts that fail on both."""
    rows = failures.some(failed)
    if failed & failures.capacity:
        rows = nearest(table, request, rows)
    less = _less
    if failures.things(failed) == 1:
        if not failures.is_widest(failed):
            return None
        less = _less_of_all
    elif failed.bit_count() > 2:
        # What is missing inside must be missing for want of capacity: then it is no third thing.
        rows = np.array([row for row in rows[:LOOKED_AT].tolist() if enough(table, request, row)], dtype=np.intp)
        failed &= ~sum(failures.inside)
    words: list[str] = []
    for number, entry in enumerate(failures.filters):
        if failed >> number & 1:
            relaxing = less if 1 << number == failures.capacity else _relaxing(entry)
            part = relaxing(table, request, rows[:1]) if len(rows) else None
            if part is None:
                return None
            words += part.words
    return Change(parts=tuple(words), hosts=1)


def _relaxing(entry: Filter) -> Relaxing:
    return _RELAXING.get(entry.name) or _without(entry)


def _without(entry: Filter) -> Relaxing:
    """Leave the whole filter out."""
    return lambda _table, request, rows: Part((f"without {entry.stage(request)}",), len(rows))


def _said(words: str) -> Relaxing:
    return lambda _table, _request, rows: Part((words,), len(rows))


def _less(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for what the nearest host has, of those that are enough for a server then."""
    if request.nested is None:
        return _less_of_all(table, request, rows)
    for row in rows.tolist():
        smaller = enough(table, request, row)
        if smaller is not None:
            hosts = sum(would_fit(table, smaller, other) for other in rows.tolist())
            return Part(_words(request, smaller.lacks), hosts)
    return None


def _less_of_all(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for what the nearest host has, of those that have some of everything that no flavor can be without.

    Only what hosts have in all is looked at, not where inside of them.
    """
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
    return Part(_words(request, lacks), int(np.count_nonzero(fits)))


def _words(request: PlacementRequest, lacks: Resources) -> tuple[str, ...]:
    """Say by how much less is asked for; devices by the names that flavors give them."""
    alias_of = aliases(request)
    words = []
    for name, amount in sorted(lacks.items()):
        called = f"{name} ({alias_of[name]})" if name in alias_of else name
        words.append(f"without any {called}" if amount == request.resources[name] else f"with {amount} {called} less")
    return tuple(words)


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
