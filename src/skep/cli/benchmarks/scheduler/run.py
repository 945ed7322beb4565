"""One run: one kind of load over so many hosts, and the figures that it comes to."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from skep.cli.benchmarks.scheduler import reference
from skep.cli.benchmarks.scheduler.deciding import LoadedCloud, MeasuredCounts
from skep.cli.benchmarks.scheduler.loading import load as load_snapshot
from skep.cli.benchmarks.scheduler.names import LOAD
from skep.cli.benchmarks.scheduler.workloads import WORKLOADS

Progress = Callable[[str], None]


class SchedulerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. A decision is one server, placed or refused; latencies are of whole requests."""

    workload: str
    hosts: int
    shapes: int
    seed: int
    decisions_per_s: float
    """By the clock on the wall, departures and reports of hosts counted."""
    decisions_per_cpu_s: float
    """The same by the CPU of this process, which other load on the machine disturbs less."""
    p50_us: float
    p99_us: float
    max_us: float
    p50_cpu_us: float
    p99_cpu_us: float
    """By the CPU of this process."""
    rss_mib: float
    """What the process holds after it was measured."""
    placed: int
    refused: int
    wall_s: float
    cpu_s: float
    load_s: float | None = None
    """Of the workload `load`: until all records of a snapshot are known."""
    load_cpu_s: float | None = None
    ratio_to_reference: float | None = None
    """Decisions for one second of CPU, to those of the reference scheduler over the same hosts."""


def run(
    *,
    workload: str,
    hosts: int,
    shapes: int,
    seed: int,
    seconds: float,
    reference_seconds: float,
    progress: Progress,
) -> SchedulerFigures:
    """Measure one kind of load for so many seconds; then the reference, where one is installed."""
    progress(f"{hosts} hosts")
    if workload == LOAD:
        loaded = load_snapshot(hosts, seed)
        return _figures(
            workload, hosts, shapes, seed, MeasuredCounts(), load_s=loaded.seconds, load_cpu_s=loaded.cpu_seconds
        )
    load = LoadedCloud(WORKLOADS[workload], hosts, shapes, seed)
    load.begin()
    progress("decisions")
    figures = _figures(workload, hosts, shapes, seed, load.measure(seconds))
    del load
    if not reference_seconds:
        return figures
    plain = reference.installed()
    if plain is None:
        progress("no reference is installed: scripts/bootstrap lab")
        return figures
    progress("the reference")
    naive = plain(WORKLOADS[workload], hosts, shapes, seed, reference_seconds)
    return figures if naive is None else replace(figures, ratio_to_reference=round(figures.decisions_per_cpu_s / naive))


def _figures(
    workload: str,
    hosts: int,
    shapes: int,
    seed: int,
    counted: MeasuredCounts,
    *,
    load_s: float | None = None,
    load_cpu_s: float | None = None,
) -> SchedulerFigures:
    decided = counted.placed + counted.refused
    ordered, by_cpu = sorted(counted.latencies), sorted(counted.cpu_latencies)
    return SchedulerFigures(
        workload=workload,
        hosts=hosts,
        shapes=shapes,
        seed=seed,
        decisions_per_s=_rate(decided, counted.seconds),
        decisions_per_cpu_s=_rate(decided, counted.cpu_seconds),
        p50_us=_microseconds(ordered, 0.5),
        p99_us=_microseconds(ordered, 0.99),
        max_us=_microseconds(ordered, 1.0),
        p50_cpu_us=_microseconds(by_cpu, 0.5),
        p99_cpu_us=_microseconds(by_cpu, 0.99),
        rss_mib=rss_mib(),
        placed=counted.placed,
        refused=counted.refused,
        wall_s=round(counted.seconds, 3),
        cpu_s=round(counted.cpu_seconds, 3),
        load_s=_rounded(load_s),
        load_cpu_s=_rounded(load_cpu_s),
    )


def rss_mib() -> float:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _microseconds(ordered: list[float], part: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1e6, 1) if ordered else 0.0
