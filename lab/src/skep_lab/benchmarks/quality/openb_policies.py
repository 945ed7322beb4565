"""Policies for openb: those of the published table, and the fragmentation weigher that Skep ships."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from skep.placement.slots import HostAmounts, ServerKind, Worth, Worthing
from skep_lab.benchmarks.quality.openb import GPU, Node, NodePolicy, NodeState, Pod

_MOST_CPU, _MOST_GPU = 128_000, 8_000
"""What the largest node has; the artefact scales by these."""
_TYPICAL = 0.95
"""FGD looks at the most frequent kinds of pods, which make up so much of the trace."""
_MOST_PARTS = 8


def published(pods: list[Pod]) -> dict[str, Callable[[], NodePolicy]]:
    """Return the policies that the artefact compares. Scores are whole numbers up to 100, as there."""
    return {
        "Random": lambda: NodePolicy(lambda *_: 0.0, ties="any"),
        "FirstFit": lambda: NodePolicy(lambda *_: 0.0),
        "DotProd": lambda: NodePolicy(_dot_product),
        "GpuPacking": lambda: NodePolicy(_packing),
        "BestFit": lambda: NodePolicy(_best_fit),
        "FGD": lambda: _fgd(pods),
    }


def _dot_product(before: NodeState, after: NodeState, pod: Pod, node: Node) -> float:  # noqa: ARG001  # the signature of scores
    product = before.cpu * pod.cpu / _MOST_CPU**2 + sum(before.gpus) * pod.gpu_milli / _MOST_GPU**2
    return float(int(100 * (1 - product / 2)))


def _best_fit(before: NodeState, after: NodeState, pod: Pod, node: Node) -> float:  # noqa: ARG001
    return float(int(100 * (1 - 0.5 * after.cpu / _MOST_CPU - 0.5 * sum(after.gpus) / _MOST_GPU)))


def _packing(before: NodeState, after: NodeState, pod: Pod, node: Node) -> float:  # noqa: ARG001
    """Shared GPUs first, then unused ones of used nodes, then unused nodes."""
    if not pod.gpus:
        return 0.0
    unused = before.gpus.count(GPU)
    if unused == len(before.gpus):
        return float(max(33 - unused, unused))
    fresh = unused - after.gpus.count(GPU)
    if fresh:
        return float(max(50 - fresh, 33))
    left = min(gpu for gpu in before.gpus if gpu >= pod.milli)
    return float(max(100 - left * 100 // GPU // 10, 50))


def _fgd(pods: list[Pod]) -> NodePolicy:
    kinds = _typical(pods)
    known: dict[tuple[int, tuple[int, ...], str], float] = {}

    def stranded(free: NodeState, model: str) -> float:
        """Return the thousandths of GPUs that the kinds cannot use, in the mean."""
        key = (free.cpu, free.gpus, model)
        value = known.get(key)
        if value is None:
            value = known[key] = sum(share * _unusable(free, model, kind) for kind, share in kinds)
        return value

    def score(before: NodeState, after: NodeState, pod: Pod, node: Node) -> float:  # noqa: ARG001
        gradient = stranded(before, node.model) - stranded(after, node.model)
        return float(int(100 / (1 + math.exp(-gradient / GPU))))

    return NodePolicy(score, devices="each")


def _typical(pods: list[Pod]) -> list[tuple[Pod, float]]:
    counts = Counter(pod._replace(memory=0) for pod in pods)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][:4]))
    kept: list[tuple[Pod, int]] = []
    for item in ordered:
        if sum(count for _, count in kept) >= _TYPICAL * len(pods):
            break
        kept.append(item)
    whole = sum(count for _, count in kept)
    return [(kind, count / whole) for kind, count in kept]


def _unusable(free: NodeState, model: str, kind: Pod) -> int:
    enough = [gpu for gpu in free.gpus if gpu >= kind.milli]
    fits = free.cpu >= kind.cpu and len(enough) >= kind.gpus and (not kind.models or model in kind.models)
    return sum(free.gpus) - (sum(enough) if kind.gpus and fits else 0)


def fragmentation(nodes: list[Node], pods: list[Pod], how: Worthing) -> NodePolicy:
    """Lose as few future slots as can be; kinds and how often they come are those of the trace."""
    counts = Counter(pods)
    kinds = [
        ServerKind(flat=(pod.cpu, pod.memory), part=(pod.milli,), parts=max(pod.gpus, 1), count=count)
        for pod, count in sorted(counts.items(), key=lambda item: item[0][:4])
    ]
    flat = np.array([(node.whole.cpu, node.whole.memory) for node in nodes], dtype=np.float64).mean(axis=0)
    gpus = np.array([sum(node.whole.gpus) for node in nodes], dtype=np.float64).mean()
    worth = Worth(kinds, how, mean_flat=flat, mean_part=np.array([gpus]))
    known: dict[NodeState, float] = {}

    def prepare(states: Iterable[NodeState]) -> None:
        new = list({state for state in states if state not in known})
        if new:
            known.update(zip(new, worth.of(_hosts(new)).tolist(), strict=True))

    def score(before: NodeState, after: NodeState, pod: Pod, node: Node) -> float:  # noqa: ARG001
        return round(known[after] - known[before], 9)

    return NodePolicy(score, devices="each", ties="any", prepare=prepare)


def _hosts(states: list[NodeState]) -> HostAmounts:
    """Return the states as columns. What nodes had does not matter where nobody leaves."""
    flat = np.array([(state.cpu, state.memory) for state in states], dtype=np.int64)
    part = np.zeros((len(states), _MOST_PARTS, 1), dtype=np.int64)
    for row, state in enumerate(states):
        part[row, : len(state.gpus), 0] = state.gpus
    return HostAmounts(flat, flat, part, part)
