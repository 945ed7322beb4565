"""One run: its phases in their order, and the figures that they come to."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from skep.cli.benchmarks.sync.crew import Crew
from skep.cli.benchmarks.sync.hosts import PLACES
from skep.cli.benchmarks.sync.phases import HeldComparison, OfferedSingles
from skep.cli.benchmarks.sync.server import running_server
from skep.domain.decoding import convert

RATES = (500, 1000, 2000, 3000, 4000, 5000, 7500, 10_000, 15_000, 20_000)
"""Reports a second that are offered, one after another, until readers see them too late."""
VISIBLE_MS = 100.0
STEP_SECONDS = 4.0
CLAIM_SECONDS = 5.0
IN_FLIGHT = 200
OFFER_SECONDS = 10.0
HOLD_SECONDS = 0.5
FULL = PLACES * 9 // 10
"""Servers on each host: 90 percent."""

Progress = Callable[[str], None]


class SyncFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    backend: str
    schedulers: int
    hosts: int
    requests_per_s: int
    """Offered in all while conflicts are counted."""
    updates_per_s: float
    """The highest rate of those tried at which all schedulers saw reports in time (`visible_p99_ms` at most 100)."""
    visible_p50_ms: float
    visible_p99_ms: float
    update_cpu_ms: float
    """CPU of all schedulers and of the backend's server for one changed record."""
    claims_per_s: float
    claim_p99_ms: float
    claim_cpu_ms: float
    conflict_share: float
    """Requests that met a refused compare-and-swap, of all requests, each scheduler preferring its share of hosts."""
    conflict_share_unpartitioned: float
    double_bookings: int
    wrongly_refused: int
    """"No valid host" while every host had room all the time."""
    failed: int
    ready_s: float
    """From nothing to a scheduler that knows all records."""
    audit_differences: int


class _Run:
    def __init__(self, crew: Crew, server_cpu: Callable[[], float], hosts: int, rate: int, progress: Progress) -> None:
        self.crew = crew
        self.hosts = hosts
        self.rate = rate
        self._server_cpu = server_cpu
        self._progress = progress
        self.figures: dict[str, Any] = {"double_bookings": 0, "audit_differences": 0, "wrongly_refused": 0, "failed": 0}

    async def whole(self) -> None:
        """Do all phases."""
        await self.crew.open(partition=True)
        self._progress(f"{self.hosts} hosts report")
        await self.crew.first("fill", hosts=self.hosts, servers=FULL)
        await self.crew.all("wait_ready", hosts=self.hosts)
        await self._updates()
        await self._claims()
        share = await self._conflicts(self.crew)
        self.figures["conflict_share"] = share
        await self._compare()
        await self._joins()

    async def _updates(self) -> None:
        """Offer more and more until it is seen too late; the last rate that was not is the figure."""
        self.figures.update(updates_per_s=0.0, visible_p50_ms=0.0, visible_p99_ms=0.0, update_cpu_ms=0.0)
        for rate in RATES:
            self._progress(f"{rate} reports a second")
            before = self._server_cpu()
            send = {"servers": FULL, "rate": rate}
            first = self.crew.one(0, "watch", hosts=self.hosts, seconds=STEP_SECONDS, send=send)
            others = (
                self.crew.one(number, "watch", hosts=self.hosts, seconds=STEP_SECONDS, send=None)
                for number in range(1, self.crew.count)
            )
            done = await asyncio.gather(first, *others)
            achieved, *seen = self.crew.results(done)
            late = max(_quantile(ages, 0.99) for ages in seen)
            cpu = sum(one.cpu_seconds for one in done) + self._server_cpu() - before
            if not self.figures["updates_per_s"] or (late <= VISIBLE_MS and achieved > 0.9 * rate):
                self.figures.update(
                    updates_per_s=round(achieved),
                    visible_p50_ms=round(max(_quantile(ages, 0.5) for ages in seen), 2),
                    visible_p99_ms=round(late, 2),
                    update_cpu_ms=round(cpu * 1000 / (achieved * STEP_SECONDS), 4),
                )
            if late > VISIBLE_MS or achieved <= 0.9 * rate:
                return

    async def _claims(self) -> None:
        self._progress("claims")
        before = self._server_cpu()
        done = await self.crew.first("claim", in_flight=IN_FLIGHT, seconds=CLAIM_SECONDS)
        came = convert(done.results[0], OfferedSingles)
        cpu = done.cpu_seconds + self._server_cpu() - before
        self.figures.update(
            claims_per_s=round(came.placed / came.seconds),
            claim_p99_ms=round(_quantile(list(came.latencies_ms), 0.99), 2),
            claim_cpu_ms=round(cpu * 1000 / max(1, came.placed), 4),
        )
        self._count(came)

    async def _conflicts(self, crew: Crew) -> float:
        """Offer requests to all schedulers at once; return which part of them met a refusal."""
        self._progress(f"{self.rate} requests a second in all")
        done = await crew.all(
            "offer",
            rate=self.rate / crew.schedulers,
            seconds=OFFER_SECONDS,
            hold=HOLD_SECONDS,
            seed=1,
            at=time.monotonic() + 0.5,
        )
        came = [convert(one, OfferedSingles) for one in crew.results(done)]
        for one in came:
            self._count(one)
        return round(sum(one.conflicts for one in came) / max(1, sum(one.requests for one in came)), 5)

    def _count(self, came: OfferedSingles) -> None:
        self.figures["wrongly_refused"] += came.refused + came.not_ready
        self.figures["failed"] += came.failed

    async def _compare(self) -> None:
        self._progress("comparison")
        for one in self.crew.results(await self.crew.all("compare", hosts=self.hosts)):
            found = convert(one, HeldComparison)
            self.figures["double_bookings"] += found.overbooked
            self.figures["audit_differences"] += found.differences

    async def _joins(self) -> None:
        """Have one more scheduler begin from nothing."""
        self._progress("one more scheduler")
        number = 0 if self.crew.backend["backend"] == "memory" else await self.crew.hire()
        done = await self.crew.one(number, "open", backend=self.crew.backend, schedulers=1, partition=True)
        self.figures["ready_s"] = round(done.results[0], 3)

    async def unpartitioned(self) -> None:
        """Count conflicts again, of schedulers that all want the same hosts."""
        await self.crew.open(partition=False)
        await self.crew.first("fill", hosts=self.hosts, servers=FULL)
        await self.crew.all("wait_ready", hosts=self.hosts)
        self.figures["conflict_share_unpartitioned"] = await self._conflicts(self.crew)
        await self._compare()


async def _measure(backend: str, url: str, schedulers: int, hosts: int, rate: int, progress: Progress) -> SyncFigures:
    figures: dict[str, Any] = {}
    for phase in ("whole", "unpartitioned"):
        with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
            async with running_server(backend, url, Path(name), hosts) as server:
                crew = Crew(server.settings, schedulers)
                run = _Run(crew, server.cpu_seconds, hosts, rate, progress)
                try:
                    await crew.start()
                    await getattr(run, phase)()
                finally:
                    await crew.stop()
        for key, value in run.figures.items():
            figures[key] = figures.get(key, 0) + value
    return SyncFigures(backend=backend, schedulers=schedulers, hosts=hosts, requests_per_s=rate, **figures)


def run(*, backend: str, url: str, schedulers: int, hosts: int, rate: int, progress: Progress) -> SyncFigures:
    """Measure one backend. Without a `url` its server is started for the run.

    Raises Misconfigured when the server cannot be had, or a part of the benchmark fails.
    """
    return asyncio.run(_measure(backend, url, schedulers, hosts, rate, progress))


def _quantile(values: list[float], part: float) -> float:
    if len(values) < 2:
        return values[0] if values else float("inf")
    return statistics.quantiles(values, n=1000, method="inclusive")[min(998, int(part * 1000) - 1)]
