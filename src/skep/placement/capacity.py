"""How many more servers of one kind fit, and which resource class runs out first. Pure arithmetic over columns.

Servers of one kind are placed one after the other until none fits, and nothing else changes meanwhile. Then the order
does not matter: each host takes what it can hold, and the sum of it is what the cloud can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from skep.domain.builds import StageCount
from skep.domain.capacity import Capacity, PartRoom
from skep.domain.errors import BadRequest
from skep.domain.resources import Resources
from skep.placement.emptied import EmptyHosts, passing
from skep.placement.explain.stages import runs, stage_counts
from skep.placement.filters.abilities import PLENTY, UNCOUNTED
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Pipeline, Stage
from skep.placement.request import PlacementRequest

MOST_PARTS = 1000
"""Zones, cells and aggregates that are told of, those with the most room."""
_CAPACITY = "CapacityFilter"


def capacity(table: HostTable, pipeline: Pipeline, request: PlacementRequest, keep_free: int = 0) -> Capacity:
    """Count how many more servers fit that ask for what `request` does.

    `keep_free`: so many of the emptiest suitable hosts get none. Raises BadRequest for a request that takes nothing.
    """
    asked = {name: amount for name, amount in request.resources.items() if amount > 0}
    hosts = HostView(table)
    running = [entry for entry in pipeline.filters if runs(entry, request)]
    rows, stages, too_small = _suitable(hosts, running, request)
    chosen = HostView(table, rows)
    rooms = [(entry.stage(request), entry.room(chosen, request)) for entry in running if entry.room is not None]
    blind = (entry.stage(request) for entry in running if not (entry.steady or _looks_at_what_is_free(entry)))
    ends = _ends(chosen, asked, rooms)
    by_end = np.array(list(ends.values())).reshape(len(ends), len(rows))
    room: Ints = np.minimum.reduce(by_end, initial=PLENTY)
    if not ends or (room == PLENTY).any():
        raise BadRequest("flavor: it asks for no amount of any resource, so any number of servers fits.")
    kept = _emptiest(table, asked, rows, keep_free)
    taken = np.delete(np.arange(len(rows)), kept)
    limiting = by_end[:, taken].argmin(axis=0)
    limits = dict(zip(ends, np.bincount(limiting, minlength=len(ends)).tolist(), strict=True))
    whole = np.zeros(table.size, dtype=np.int64)
    whole[rows[taken]] = room[taken]
    counted = np.zeros(table.size, dtype=np.bool_)
    counted[rows[taken]] = True
    return Capacity(
        servers=int(whole.sum()),
        hosts=int(np.count_nonzero(whole)),
        considered=int(np.count_nonzero(hosts.mapped)),
        stages=stages,
        suitable=len(taken),
        too_small=too_small,
        not_ready=int(np.count_nonzero(hosts.mapped & ~hosts.ready)),
        kept_free=tuple(table.hosts[row] for row in rows[kept].tolist()),
        asked=asked,
        runs_out_first=max(limits, key=lambda name: limits[name]) if len(taken) else "",
        limits={name: count for name, count in limits.items() if count},
        left_over={
            name: int((np.maximum(hosts.free(name), 0) - whole * amount)[counted].sum())
            for name, amount in asked.items()
        },
        sizes=_sizes(room[taken]),
        zones=_parts(_by_code(table.zone[: table.size], table.zones), whole, counted),
        cells=_parts(_by_code(table.cell[: table.size], table.cell_names), whole, counted),
        aggregates=_parts(((str(one), hosts.in_aggregate(one)) for one in table.aggregates), whole, counted),
        not_counted=tuple(dict.fromkeys([*blind, *(stage for stage, room in rooms if UNCOUNTED in room)])),
    )


def _looks_at_what_is_free(entry: Stage) -> bool:
    """Tell whether it is counted for how many servers a filter goes on saying yes."""
    return entry.room is not None or entry.name == _CAPACITY


def _ends(hosts: HostView, asked: Resources, rooms: Iterable[tuple[str, Ints]]) -> dict[str, Ints]:
    """Return by what may end it, a resource class or a stage, how many servers each host has room for."""
    ends: dict[str, Ints] = {name: np.maximum(hosts.free(name), 0) // amount for name, amount in asked.items()}
    for stage, room in rooms:
        ends[stage] = np.minimum(ends[stage], room) if stage in ends else room
    return ends


def _suitable(
    hosts: HostView, running: list[Stage], request: PlacementRequest
) -> tuple[Ints, tuple[StageCount, ...], dict[str, int]]:
    """Return the rows of hosts that hold such a server, now or when they are emptier, and how many each stage left.

    And how many hosts have too little of a resource class, whatever is free.
    """
    table, rows = hosts.table, np.flatnonzero(hosts.mapped)
    considered, left = len(rows), []
    for entry in running:
        if not _looks_at_what_is_free(entry):
            rows = rows[entry.passes(HostView(table, rows), request)]
            left.append((entry, len(rows)))
    stages = stage_counts(request, considered, left)
    whole = EmptyHosts(table, rows)
    small = {name: int(np.count_nonzero(whole.free(name) < amount)) for name, amount in request.resources.items()}
    for entry in filter(_looks_at_what_is_free, running):
        passed = passing(entry, EmptyHosts(table, rows), request)
        if passed is not None and not passed.all():
            rows = rows[passed]
            stages = (*stages, StageCount(f"{entry.stage(request)}, when empty", len(rows)))
    return rows, stages, {name: count for name, count in small.items() if count}


def _emptiest(table: HostTable, asked: Iterable[str], rows: Ints, most: int) -> Ints:
    """Return the places in `rows` of so many hosts with the largest free share of whatever they are shortest of."""
    if most <= 0 or not len(rows):
        return np.zeros(0, dtype=np.int64)
    hosts = HostView(table, rows)
    share = np.minimum.reduce([hosts.free_share(name) for name in asked] or [np.ones(len(rows))])
    return np.lexsort((table.node_hash[rows], -share))[:most]


def _sizes(room: Ints) -> dict[int, int]:
    """Return how many hosts have room for so many: 0, 1, 2 or 3, 4 to 7, and so on, by the least of each."""
    least = np.where(room > 0, 1 << np.log2(np.maximum(room, 1)).astype(np.int64), 0)
    sizes, counts = np.unique(least, return_counts=True)
    return dict(zip(sizes.tolist(), counts.tolist(), strict=True))


def _by_code(codes: NDArray[np.int32], names: Sequence[str]) -> Iterator[tuple[str, Mask]]:
    for code, name in enumerate(names):
        yield name, codes == code


def _parts(parts: Iterable[tuple[str, Mask]], room: Ints, counted: Mask) -> tuple[PartRoom, ...]:
    """Return the room of each part that has a suitable host, the most first."""
    found = []
    for name, mask in parts:
        suitable = int(np.count_nonzero(counted & mask))
        if suitable:
            mine = room[mask]
            found.append(
                PartRoom(name=name, servers=int(mine.sum()), hosts=int(np.count_nonzero(mine)), suitable=suitable)
            )
    found.sort(key=lambda one: (-one.servers, one.name))
    return tuple(found[:MOST_PARTS])
