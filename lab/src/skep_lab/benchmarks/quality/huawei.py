"""Huawei-East-1 on a few servers, as SPANE (arXiv 2504.14946) measures it.

Servers have two NUMA nodes of 40 CPUs and 90 GB. A VM of more than 10 GB takes half of what it asks from each node.
Requests wait in a queue: when the first fits nowhere, time goes on to the next departure. An episode begins at one row
of the trace with empty servers; it has as many requests as First-Fit places until one does not fit, and 40 more.
What is measured is the sum of all waits; the score is the mean of many episodes without the least and largest tenth.
"""

from __future__ import annotations

import csv
import heapq
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CPUS, MEMORY_GB = 40, 90
"""Of one NUMA node."""
DOUBLE_ABOVE_GB = 10
FURTHER = 40
TRIMMED = 0.1

Free = tuple[int, int, int, int]
"""What is free on a server: CPUs and memory of node 0, then of node 1, in halves of a CPU and of a GB."""
WHOLE: Free = (2 * CPUS, 2 * MEMORY_GB, 2 * CPUS, 2 * MEMORY_GB)
BOTH = 2
"""Instead of a node's number: half from each."""


class Vm(NamedTuple):
    """One row of the trace; seconds."""

    cpus: int
    memory_gb: int
    arrival: int
    lifetime: int

    @property
    def is_double(self) -> bool:
        """Whether it takes half of everything from each node."""
        return self.memory_gb > DOUBLE_ABOVE_GB

    def after(self, free: Free, node: int) -> Free:
        """Return what is left of a server."""
        return self._moved(free, node, -1)

    def before(self, free: Free, node: int) -> Free:
        """Return what is there again when it is gone."""
        return self._moved(free, node, 1)

    def _moved(self, free: Free, node: int, sign: int) -> Free:
        cpus, memory = sign * self.cpus, sign * self.memory_gb
        if node == BOTH:
            return (free[0] + cpus, free[1] + memory, free[2] + cpus, free[3] + memory)
        if node == 0:
            return (free[0] + 2 * cpus, free[1] + 2 * memory, free[2], free[3])
        return (free[0], free[1], free[2] + 2 * cpus, free[3] + 2 * memory)

    def nodes(self, free: Free) -> list[int]:
        """Return where on a server it fits."""
        cpus, memory = self.cpus, self.memory_gb
        if self.is_double:
            return [BOTH] if min(free[0], free[2]) >= cpus and min(free[1], free[3]) >= memory else []
        return [node for node in (0, 1) if free[2 * node] >= 2 * cpus and free[2 * node + 1] >= 2 * memory]


Option = tuple[int, int]
"""Number of the server, and its node."""
Policy = Callable[[list[Free], Vm, list[Option]], Option]


def read_trace(path: Path, rows: int | None = None) -> list[Vm]:
    """Read the trace, or so many of its first rows."""
    vms: list[Vm] = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if rows is not None and len(vms) == rows:
                break
            vms.append(Vm(int(row["cpu"]), int(row["mem"]), int(float(row["at"])), int(float(row["lt"]))))
    return vms


class Episode:
    """A run from one row of the trace on."""

    def __init__(self, trace: list[Vm], start: int, servers: int) -> None:
        self._trace = trace
        self._start = self._next = start
        self._free: list[Free] = [WHOLE] * servers
        self._leaving: list[tuple[int, int, Option]] = []
        self._now = trace[start].arrival
        self.waited = 0
        """Seconds, of all that were placed."""

    def length(self, policy: Policy) -> int:
        """Return how many requests are placed until one does not fit when the one before it was placed."""
        while True:
            self._place(policy)
            if not self._options(self._trace[self._next]):
                return self._next - self._start
            self._advance()

    def run(self, policy: Policy, requests: int) -> int:
        """Place so many requests; return how long all of them waited, in seconds."""
        self._place(policy)
        for _ in range(requests - 1):
            self._advance()
            self._place(policy)
        return self.waited

    def _place(self, policy: Policy) -> None:
        vm = self._trace[self._next]
        options = self._options(vm)
        server, node = option = policy(self._free, vm, options) if len(options) > 1 else options[0]
        self._free[server] = vm.after(self._free[server], node)
        heapq.heappush(self._leaving, (self._now + vm.lifetime, self._next, option))
        self.waited += self._now - vm.arrival
        self._next += 1

    def _options(self, vm: Vm) -> list[Option]:
        return [(server, node) for server, free in enumerate(self._free) for node in vm.nodes(free)]

    def _advance(self) -> None:
        """Let time go on until the next request has come and fits."""
        vm = self._trace[self._next]
        while self._leaving and self._leaving[0][0] <= vm.arrival:
            self._leave()
        if self._options(vm):
            self._now = max(self._now, vm.arrival)
            return
        while not self._options(vm):
            end = self._leaving[0][0]
            while self._leaving and self._leaving[0][0] == end:
                self._leave()

    def _leave(self) -> None:
        self._now, index, (server, node) = heapq.heappop(self._leaving)
        self._free[server] = self._trace[index].before(self._free[server], node)


def trimmed_mean(waits: list[int]) -> float:
    """Return the mean without the least and the largest tenth."""
    cut = int(len(waits) * TRIMMED)
    kept = sorted(waits)[cut : len(waits) - cut]
    return sum(kept) / len(kept)
