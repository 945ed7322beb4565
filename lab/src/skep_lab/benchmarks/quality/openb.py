"""openb (Alibaba's GPU cluster of 2023) as the artefact of "Beware of Fragmentation" (USENIX ATC 2023) measures it.

All pods of the trace arrive in an order that a seed gives; then pods drawn from it, until 130 % of the cluster's GPUs
are asked for. Nobody leaves; who fits nowhere is turned away. What is measured is the share of all GPUs that is given
out at the end. A pod asks for CPU, memory and GPUs: a share of one in thousandths, or some whole ones, of models that
it may name. The artefact draws with Go's generator, so single seeds differ from its own; means over ten agree.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

GPU = 1000
"""Thousandths of one GPU."""
ARRIVING = 1.3
NOWHERE = -float("inf")


class NodeState(NamedTuple):
    """What is free on a node; of its GPUs in thousandths, ascending, so that alike nodes are equal."""

    cpu: int
    memory: int
    gpus: tuple[int, ...]


class Node(NamedTuple):
    """One row of the list of nodes."""

    model: str
    whole: NodeState


class Pod(NamedTuple):
    """What a pod asks for: thousandths of a CPU, MiB, GPUs and thousandths of each."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str]
    """Empty: any."""

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.milli

    def after(self, free: NodeState, *, devices: Literal["each", "best"]) -> list[NodeState]:
        """Return what may be left of a node: with any of the GPUs that a share fits on, or with the fullest of them."""
        cpu, memory, gpus = free.cpu - self.cpu, free.memory - self.memory, free.gpus
        if cpu < 0 or memory < 0:
            return []
        if not self.gpus:
            return [NodeState(cpu, memory, gpus)]
        if self.milli == GPU:
            unused = gpus.count(GPU)
            if unused < self.gpus:
                return []
            used = (*(0,) * self.gpus, *gpus[: len(gpus) - self.gpus])
            return [NodeState(cpu, memory, tuple(sorted(used)))]
        fitting = sorted({left for left in gpus if left >= self.milli})
        states = []
        for left in fitting[:1] if devices == "best" else fitting:
            others = list(gpus)
            others[others.index(left)] -= self.milli
            states.append(NodeState(cpu, memory, tuple(sorted(others))))
        return states


def read_nodes(path: Path) -> list[Node]:
    """Read the list of nodes."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Node(row["model"], NodeState(int(row["cpu_milli"]), int(row["memory_mib"]), (GPU,) * int(row["gpu"])))
            for row in csv.DictReader(file)
        ]


def read_pods(path: Path) -> list[Pod]:
    """Read the list of pods."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Pod(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]),
                int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
                frozenset(model for model in row["gpu_spec"].split("|") if model),
            )
            for row in csv.DictReader(file)
        ]


def arrivals(pods: list[Pod], capacity_milli: int, seed: int) -> list[Pod]:
    """Return who arrives, in order: the whole trace, shuffled, then pods drawn from it until enough is asked for."""
    dice = random.Random(seed)
    arriving = pods.copy()
    dice.shuffle(arriving)
    asked = sum(pod.gpu_milli for pod in pods)
    while True:
        pod = dice.choice(pods)
        # The artefact compares with one GPU's share of the pod and counts all of them.
        if asked + pod.milli > ARRIVING * capacity_milli:
            return arriving
        asked += pod.gpu_milli
        arriving.append(pod)


@dataclass(frozen=True)
class NodePolicy:
    """How a node is chosen: the highest score of what is left of it, against what was."""

    score: Callable[[NodeState, NodeState, Pod, Node], float]
    devices: Literal["each", "best"] = "best"
    """Which GPU of a node a share is put on: the fullest that fits, or that which scores best."""
    ties: Literal["first", "any"] = "first"
    """Of nodes that score alike: the first in an order that the seed gives once, or any."""
    prepare: Callable[[Iterable[NodeState]], None] | None = None
    """Told which states are about to be scored."""


class Cluster:
    """The nodes, and for each kind of pod what they score; after a placement one node is scored again."""

    def __init__(self, nodes: list[Node], policy: NodePolicy, seed: int) -> None:
        self._dice = random.Random(f"nodes/{seed}")
        self._nodes = nodes.copy()
        self._dice.shuffle(self._nodes)
        self._free = [node.whole for node in self._nodes]
        self._policy = policy
        self._changed: list[int] = []
        self._scored: dict[Pod, list[tuple[float, NodeState]]] = {}
        self._up_to: dict[Pod, int] = {}

    def place(self, pod: Pod) -> bool:
        """Place a pod, if it fits."""
        scored = self._scores(pod)
        best = max(score for score, _ in scored)
        if best == NOWHERE:
            return False
        rows = [row for row, (score, _) in enumerate(scored) if score == best]
        row = self._dice.choice(rows) if self._policy.ties == "any" else rows[0]
        self._free[row] = scored[row][1]
        self._changed.append(row)
        return True

    def _scores(self, pod: Pod) -> list[tuple[float, NodeState]]:
        known = self._scored.get(pod)
        rows: Iterable[int] = range(len(self._nodes))
        if known is None:
            known = self._scored[pod] = [(NOWHERE, node.whole) for node in self._nodes]
        else:
            rows = set(self._changed[self._up_to[pod] :])
        self._up_to[pod] = len(self._changed)
        ways = {row: self._ways(row, pod) for row in rows}
        if self._policy.prepare is not None:
            self._policy.prepare(state for row, after in ways.items() if after for state in (self._free[row], *after))
        for row, after in ways.items():
            before, node = self._free[row], self._nodes[row]
            scored = [(self._policy.score(before, state, pod, node), state) for state in after]
            known[row] = max(scored, key=lambda one: one[0], default=(NOWHERE, before))
        return known

    def _ways(self, row: int, pod: Pod) -> list[NodeState]:
        if pod.models and self._nodes[row].model not in pod.models:
            return []
        return pod.after(self._free[row], devices=self._policy.devices)


def capacity(nodes: list[Node]) -> int:
    """Return thousandths of GPUs in the cluster."""
    return sum(sum(node.whole.gpus) for node in nodes)


def allocated(nodes: list[Node], pods: list[Pod], policy: NodePolicy, seed: int) -> float:
    """Return the percentage of the GPUs that is given out when all have arrived."""
    whole = capacity(nodes)
    cluster = Cluster(nodes, policy, seed)
    given = sum(pod.gpu_milli for pod in arrivals(pods, whole, seed) if cluster.place(pod))
    return 100 * given / whole
