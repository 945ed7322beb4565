"""The smallest changes that would fit: less of a resource, without a filter, with a host back; two of them if need be.

Words say what the owner would ask for instead, and name no host. Where very many hosts would do after a change, only
some are looked at to find the best words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from skep.domain.builds import SuggestedChange
from skep.domain.resources import Resources
from skep.placement.explain.amounts import lacking, nearest, shortage
from skep.placement.explain.failures import INSIDE, Failures, FilterSet, RowNumbers
from skep.placement.explain.less import (
    DEVICES,
    GROUPS,
    LOOKED_AT,
    aliases,
    enough,
    without,
    would_fit,
)
from skep.placement.filters.base import Filter
from skep.placement.filters.inside import has_room
from skep.placement.filters.traits import with_any
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

MOST_CHANGES = 3
_NEEDED = ("VCPU", "PCPU", "MEMORY_MB")
_MOST_PAIRS = 8


class Part(msgspec.Struct, frozen=True):
    """What must be changed about one filter, so that some of the hosts pass that it rejects."""

    words: tuple[str, ...]
    hosts: int


Relaxing = Callable[[HostTable, PlacementRequest, RowNumbers], Part | None]
"""From hosts that the filter rejects to the least change after which some pass. None: there is none."""


def smallest_changes(
    table: HostTable, request: PlacementRequest, failures: Failures, by_one: Sequence[RowNumbers]
) -> tuple[SuggestedChange, ...]:
    """Return what would fit if one thing were changed; where nothing would, the best of two things.

    `by_one`: of each filter, some of the hosts that it alone rejects; of capacity the nearest, nearest first.
    """
    found: dict[tuple[str, ...], tuple[tuple[object, ...], SuggestedChange]] = {}
    for number, entry in enumerate(failures.filters):
        is_capacity = 1 << number == failures.capacity
        rows = by_one[number]
        part = _relaxing(entry)(table, request, rows) if len(rows) else None
        if part is not None:
            is_known = is_capacity or entry.name in INSIDE or part.hosts < len(rows)
            of_all = part.hosts if is_known else failures.hosts(1 << number)
            order = (entry.name in _OF_OPERATOR, len(part.words), not is_capacity, -of_all)
            found.setdefault(part.words, (order, SuggestedChange(parts=part.words, hosts=of_all)))
    if found:
        best = sorted(found.values(), key=lambda item: item[0])
        return tuple(change for _, change in best[:MOST_CHANGES])
    pairs = [failed for failed, hosts in failures.counts.items() if hosts and _is_pair(failures, failed)]
    pairs.sort(key=lambda failed: (-failures.counts[failed], failed))
    both = (_both(table, request, failures, failed) for failed in pairs[:_MOST_PAIRS])
    return tuple(sorted((change for change in both if change), key=lambda change: len(change.parts))[:1])


def _is_pair(failures: Failures, failed: FilterSet) -> bool:
    return failed.bit_count() == 2 or failures.things(failed) == 2


def _both(table: HostTable, request: PlacementRequest, failures: Failures, failed: FilterSet) -> SuggestedChange | None:
    """Return what must be changed about two things for some of the hosts that fail on both."""
    rows = failures.some(failed)
    if failed & failures.capacity:
        rows = nearest(table, request, rows)
    part = failures.of_inside(failed)
    if failures.things(failed) == 1 and part is not None:
        return _less_of_the_rest(table, request, rows[:1], part)
    if failed.bit_count() > 2:
        # What is missing inside must be missing for want of capacity, or the other way round: then it is no third.
        short = np.array([row for row in rows[:LOOKED_AT].tolist() if enough(table, request, row)], dtype=np.intp)
        failed &= ~sum(failures.inside) if len(short) else ~failures.capacity
        rows = short if len(short) else rows
    words: list[str] = []
    for number, entry in enumerate(failures.filters):
        if failed >> number & 1:
            found = _relaxing(entry)(table, request, rows[:1]) if len(rows) else None
            if found is None:
                return None
            words += found.words
    return SuggestedChange(parts=tuple(words), hosts=1)


def _less_of_the_rest(
    table: HostTable, request: PlacementRequest, rows: RowNumbers, part: str
) -> SuggestedChange | None:
    """Leave out what the filter of this name judges, and ask for less of the rest."""
    rest = without(request, part)
    for row in rows.tolist():
        lacks = lacking(table, rest.resources, row)
        whole = any(lacks.get(name) == rest.resources.get(name) for name in _NEEDED if name in lacks)
        if lacks and not whole and (rest.inside is None or has_room(table, rest.inside, row)):
            words = _words(request, lacks, rest.resources)
            return SuggestedChange(parts=(*words, _without_part(request, part)), hosts=1)
    return None


def _relaxing(entry: Filter) -> Relaxing:
    return _RELAXING.get(entry.name) or _without(entry)


def _without(entry: Filter) -> Relaxing:
    """Leave the whole filter out."""
    return lambda _table, request, rows: Part((f"without {entry.stage(request)}",), len(rows))


def _said(words: str) -> Relaxing:
    return lambda _table, _request, rows: Part((words,), len(rows))


def _in_a_cell(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part:
    """Tell cells that were not asked from closed ones: all but one, or the one that a move between cells leaves."""
    home = table.cells.get(request.source_cell) if request.source_cell is not None else None
    words = "in a cell that is closed to it"
    if request.cell is not None:
        words = "in another cell"
    elif home is not None and (table.cell[rows] == home.code).all():
        words = "in its own cell"
    return Part((words,), len(rows))


def _left_out(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part:
    """Tell the host that a move leaves from hosts that were tried."""
    own = table.rows_of(() if request.home is None else (request.home,))
    is_own = own.issuperset(rows.tolist())
    return Part(("on its own host, which is not taken" if is_own else "on a host that was tried",), len(rows))


def _less(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for what the nearest host has, of those that are enough for a server then."""
    for row in rows.tolist():
        if request.nested is not None:
            smaller = enough(table, request, row)
            if smaller is not None:
                fit = sum(would_fit(table, smaller, other) for other in rows.tolist())
                return Part(_words(request, smaller.lacks, request.resources), fit)
            continue
        lacks = shortage(table, request, row)
        if lacks and not any(lacks.get(name) == request.resources.get(name) for name in _NEEDED if name in lacks):
            hosts = HostView(table, rows)
            fits = hosts.all()
            for name, amount in request.resources.items():
                fits &= hosts.free(name) >= amount - lacks.get(name, 0)
            return Part(_words(request, lacks, request.resources), int(np.count_nonzero(fits)))
    return None


def _words(request: PlacementRequest, lacks: Resources, asked: Resources) -> tuple[str, ...]:
    """Say by how much less is asked for; devices by the names that flavors give them."""
    alias_of = aliases(request)
    words = []
    for name, amount in sorted(lacks.items()):
        called = f"{name} ({alias_of[name]})" if name in alias_of else name
        words.append(f"without any {called}" if amount == asked[name] else f"with {amount} {called} less")
    return tuple(words)


def _leaving_out(part: str) -> Relaxing:
    """Leave out what a filter judges that looks inside; hosts must hold the rest."""

    def relaxed(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Part | None:
        rest = without(request, part)
        hosts = sum(would_fit(table, rest, row) for row in rows[:LOOKED_AT].tolist())
        return Part((_without_part(request, part),), hosts) if hosts else None

    return relaxed


def _without_part(request: PlacementRequest, part: str) -> str:
    """Say what is left out as flavors ask for it."""
    asked = request.nested
    if part == GROUPS:
        of_ports = asked is not None and not asked.groups and not asked.loose
        return "without ports that ask for resources" if of_ports else "without groups of resources"
    if part == DEVICES:
        names = dict.fromkeys(one.alias for one in request.spec.devices)
        return f"without PCI devices ({', '.join(names)})" if names else "without PCI devices"
    if asked is not None and asked.numa is not None and any(cell.dedicated for cell in asked.numa.cells):
        return "without pinned CPUs and NUMA cells"
    return "without NUMA cells and page sizes"


def _elsewhere(table: HostTable, _request: PlacementRequest, rows: RowNumbers) -> Part | None:
    """Ask for the zone in which most of the hosts are; of several the first by name, so that schedulers agree."""
    zones = np.bincount(table.zone[rows])
    most = int(zones.max())
    best = min(table.zones[code] for code in np.flatnonzero(zones == most).tolist())
    return Part((f"in availability zone {best}",), most)


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
    "CellFilter": _in_a_cell,
    "IgnoredHostsFilter": _left_out,
    **{part: _leaving_out(part) for part in INSIDE},
    "ReportsFilter": lambda _table, _request, _rows: None,
}
"""By the filter's name; any other is left out as a whole. What a host would report is not known before it does."""
