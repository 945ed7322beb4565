"""Why a decision was what it was: counts for users, hosts for admins."""

from __future__ import annotations

import numpy as np

from skep.domain.builds import Explanation, NearMiss, StageCount
from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.registry import Pipeline
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView


def runs(entry: Filter, request: PlacementRequest) -> bool:
    """Tell whether a filter judges this request at all."""
    return entry.applies(request) and (not request.is_forced or entry.when_forced)


def stage_counts(
    request: PlacementRequest, considered: int, left_after: list[tuple[Filter, int]]
) -> tuple[StageCount, ...]:
    """Return the stages worth showing: those that removed somebody, or that the user asked for."""
    counts = []
    before = considered
    for entry, left in left_after:
        if left != before or (entry.asked and runs(entry, request)):
            counts.append(StageCount(entry.stage(request), left))
        before = left
    return tuple(counts)


def no_valid_host(
    table: HostTable,
    pipeline: Pipeline,
    request: PlacementRequest,
    stages: tuple[StageCount, ...],
    considered: int,
    *,
    max_rejected: int,
    max_near: int,
) -> Explanation:
    """Explain that no host fits: who was rejected by what, and who failed on one thing only."""
    hosts = HostView(table)
    running = [entry for entry in pipeline.filters if runs(entry, request)]
    masks = [entry.passes(hosts, request) for entry in running]
    failed = np.zeros((len(running), len(hosts)), dtype=np.bool_)
    for number, mask in enumerate(masks):
        failed[number] = ~mask
    mapped = np.flatnonzero(hosts.mapped)
    first = failed.argmax(axis=0) if running else np.zeros(len(hosts), dtype=np.intp)
    rejected = {
        table.hosts[row]: running[first[row]].stage(request)
        for row in mapped[:max_rejected].tolist()
        if failed[:, row].any()
    }
    return Explanation(
        considered=considered,
        stages=stages,
        nearest=_near_misses(table, request, running, failed, hosts.mapped, stages, max_near),
        rejected=rejected,
    )


def _near_misses(
    table: HostTable,
    request: PlacementRequest,
    running: list[Filter],
    failed: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    mapped: Mask,
    stages: tuple[StageCount, ...],
    most: int,
) -> tuple[NearMiss, ...]:
    """Return hosts that failed one filter only: those of the last stage first, then by how little is missing."""
    last = stages[-1].stage if stages else ""
    rows = np.flatnonzero(mapped & (failed.sum(axis=0) == 1))
    ranked: list[tuple[bool, float, NearMiss]] = []
    for row in _least_short(table, request, rows, 10 * most):
        entry = running[int(failed[:, row].argmax())]
        lacks = shortage(table, request, row) if entry.name == "CapacityFilter" else {}
        size = sum(amount / request.resources[name] for name, amount in lacks.items())
        miss = NearMiss(node=table.nodes[row], host=table.hosts[row], stage=entry.stage(request), lacks=lacks)
        ranked.append((miss.stage != last, size, miss))
    ranked.sort(key=lambda item: item[:2])
    return tuple(miss for _, _, miss in ranked[:most])


def _least_short(
    table: HostTable, request: PlacementRequest, rows: np.ndarray[tuple[int], np.dtype[np.intp]], most: int
) -> list[int]:
    """Return at most so many of `rows`, those that lack least; the arithmetic is done on whole columns."""
    missing = np.zeros(len(rows), dtype=np.float64)
    hosts = HostView(table, rows)
    for name, amount in request.resources.items():
        missing += np.maximum(amount - hosts.free(name), 0) / amount
    return [int(row) for row in rows[np.argsort(missing, kind="stable")[:most]]]


def shortage(table: HostTable, request: PlacementRequest, row: int) -> dict[str, int]:
    """Return what a host lacks for the request, by resource class."""
    lacks = {}
    for name, amount in request.resources.items():
        amounts = table.resources.get(name)
        free = int(amounts.free[row]) if amounts else 0
        if free < amount:
            lacks[name] = amount - max(free, 0)
    return lacks
