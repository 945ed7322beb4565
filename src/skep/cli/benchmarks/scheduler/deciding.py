"""Whole decisions, one after another in one thread: each is claimed before the next starts."""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from skep.cli.benchmarks.scheduler.hosts import MadeUpCloud
from skep.cli.benchmarks.scheduler.requests import BenchmarkRequest
from skep.cli.benchmarks.scheduler.workloads import REPORTING_PART, Workload
from skep.domain.claims import Claim
from skep.domain.ids import GroupUuid, InstanceUuid
from skep.placement.deciding import Deciding, Seat
from skep.placement.groups import GroupSlot
from skep.placement.hosts.table import Intake
from skep.placement.knowledge import Knowledge
from skep.placement.request import placement_request
from skep.scheduler.memory import give_back

MOST_FILLED = 20_000
"""So many servers are placed at most before it is measured; what hosts report beside is in use as well."""
FILL_SECONDS = 20.0
"""No longer is spent on that."""
CPU_TIMED_PART = 8
"""The CPU of one request in so many is read: two readings cost up to 3 microseconds where the kernel is asked."""
MOST_SHAPES = 64
"""Kinds of requests whose evaluated columns are kept, where the load has fewer."""


@dataclass(slots=True)
class MeasuredCounts:
    """What came of the requests that were measured."""

    placed: int = 0
    refused: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    """Seconds by the clock on the wall, of each request."""
    cpu_latencies: list[float] = field(default_factory=list)
    """Seconds of CPU, of one request in `CPU_TIMED_PART`, and of each that is for many servers."""


class LoadedCloud:
    """A cloud under one kind of load."""

    def __init__(self, workload: Workload, hosts: int, shapes: int, seed: int) -> None:
        self.cloud = MadeUpCloud(hosts, seed, workload.report)
        self.known = Knowledge(replace(workload.settings, cached_shapes=max(MOST_SHAPES, 2 * shapes)))
        self._intake = Intake(self.known.table)
        self._workload = workload
        self._dice = random.Random(seed + 1)  # noqa: S311 - chosen so that it can be repeated
        self._asking = workload.asking(shapes, self._dice)
        self._living: deque[tuple[Claim, GroupUuid | None, GroupSlot | None]] = deque()
        """Servers that run, the oldest first: the claim of each, and its place in a group."""
        self._number = 0
        self._reports = 0

    def begin(self) -> None:
        """Make the hosts known, and place servers until there are as many as will be kept."""
        self.known.epoch = "epoch"
        self.cloud.tell(self.known)
        ends = time.monotonic() + FILL_SECONDS
        most = min(MOST_FILLED, 2 * self.cloud.hosts)
        while self._number < most and time.monotonic() < ends:
            self._ask(next(self._asking))
        gc.collect()
        give_back()
        gc.freeze()  # as a scheduler does when it is ready

    def measure(self, seconds: float) -> MeasuredCounts:
        """Ask for so long; each arrival is followed by a departure."""
        counted, most = MeasuredCounts(), len(self._living)
        cpu, began = time.process_time(), time.perf_counter()
        now, ends = began, began + seconds
        while now < ends:
            request = next(self._asking)
            is_timed = request.members > 1 or len(counted.latencies) % CPU_TIMED_PART == 0
            starts, spent = time.perf_counter(), time.thread_time() if is_timed else 0.0
            placed = self._ask(request)
            now = time.perf_counter()
            if is_timed:
                counted.cpu_latencies.append(time.thread_time() - spent)
            counted.latencies.append(now - starts)
            counted.placed += placed
            counted.refused += request.members - placed
            self._leave(len(self._living) - most)
            if self._workload.reporting:
                self._report(now - began)
        counted.seconds = time.perf_counter() - began
        counted.cpu_seconds = time.process_time() - cpu
        return counted

    def _ask(self, request: BenchmarkRequest) -> int:
        """Decide for all members of a request, as `select_destinations` does; return how many got a host."""
        first = self._number
        self._number += request.members
        asked = placement_request(request.spec)
        seats = [
            Seat(InstanceUuid(f"00000000-0000-4000-8000-{number:012x}"), 1, asked)
            for number in range(first, self._number)
        ]
        deciding = Deciding(self.known, seats, min_count=1, seed=0)
        deciding.decide_all()
        deciding.answers()
        group = request.spec.group.uuid if request.spec.group is not None else None
        living = [(seat.claim, group, seat.slot) for seat in seats if seat.claim is not None]
        self._living.extend(living)
        return len(living)

    def _leave(self, servers: int) -> None:
        """Let so many servers go, the oldest first."""
        leaving = [self._living.popleft() for _ in range(servers)]
        self.known.claims.drop_all([claim for claim, _, _ in leaving])
        for _, group, slot in leaving:
            if group is not None and slot is not None:
                self.known.groups.drop(group, slot)

    def _report(self, elapsed: float) -> None:
        """Have as many hosts report as should have by now: each uses something else than before."""
        due = int(elapsed * self.cloud.hosts / REPORTING_PART) - self._reports
        if due <= 0:
            return
        self._reports += due
        for _ in range(due):
            number = self._dice.randrange(self.cloud.hosts)
            self._intake.used(self.cloud.node(number), self.cloud.usage(number, self._dice))
        self._intake.flush()
