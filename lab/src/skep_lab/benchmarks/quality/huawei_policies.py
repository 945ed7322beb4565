"""Policies for Huawei-East-1: the two that SPANE publishes, and the fragmentation weigher that Skep ships."""

from __future__ import annotations

from collections import Counter

import numpy as np

from skep.placement.slots import HostAmounts, ServerKind, Worth, Worthing
from skep_lab.benchmarks.quality.huawei import BOTH, CPUS, MEMORY_GB, WHOLE, Free, Option, Policy, Vm


def first_fit(servers: list[Free], vm: Vm, options: list[Option]) -> Option:  # noqa: ARG001  # the signature of policies
    """Take the first place."""
    return options[0]


def balance_fit(servers: list[Free], vm: Vm, options: list[Option]) -> Option:  # noqa: ARG001
    """Fill the node with more left on the server whose nodes differ most, if they differ at all."""
    if options[0][1] == BOTH:
        return options[0]
    places: dict[int, list[int]] = {}
    for server, node in options:
        places.setdefault(server, []).append(node)
    chosen, most = options[0], 0.0
    for server, nodes in places.items():
        left = _shares(servers[server])
        difference = abs(left[0] - left[1])
        if difference > most:
            fuller = 0 if left[0] >= left[1] else 1
            chosen, most = (server, fuller if fuller in nodes else 1 - fuller), difference
    return chosen


def _shares(free: Free) -> tuple[float, float]:
    """Return of each node what is left of that which is scarcer."""
    return (
        min(free[0] / 2 / CPUS, free[1] / 2 / MEMORY_GB),
        min(free[2] / 2 / CPUS, free[3] / 2 / MEMORY_GB),
    )


def fragmentation(learned: list[Vm], how: Worthing) -> Policy:
    """Lose as few future slots as can be; kinds and how often they come are those of `learned`."""
    worth = worth_of(learned, how)
    known: dict[Free, float] = {}

    def worth_at(free: Free) -> float:
        # One of two equal nodes is as good as the other.
        key = free if free[:2] <= free[2:] else (*free[2:], *free[:2])
        value = known.get(key)
        if value is None:
            value = known[key] = worth.of(_hosts(key)).item()
        return value

    def policy(servers: list[Free], vm: Vm, options: list[Option]) -> Option:
        best, least = options[0], float("inf")
        for server, node in options:
            free = servers[server]
            loss = round(worth_at(free) - worth_at(vm.after(free, node)), 9)
            if loss < least:
                best, least = (server, node), loss
        return best

    return policy


def worth_of(learned: list[Vm], how: Worthing) -> Worth:
    """Return what servers are worth to requests like the learned ones."""
    counts = Counter((vm.cpus, vm.memory_gb, vm.is_double) for vm in learned)
    kinds = [
        ServerKind(
            flat=(), part=(cpus, memory) if double else (2 * cpus, 2 * memory), parts=2 if double else 1, count=count
        )
        for (cpus, memory, double), count in sorted(counts.items())
    ]
    whole = np.array([WHOLE[0] + WHOLE[2], WHOLE[1] + WHOLE[3]], dtype=np.float64)
    return Worth(kinds, how, mean_flat=np.zeros(0), mean_part=whole)


_NOTHING = np.zeros((1, 0), dtype=np.int64)
_CAPACITY = np.array(WHOLE, dtype=np.int64).reshape(1, 2, 2)


def _hosts(free: Free) -> HostAmounts:
    return HostAmounts(_NOTHING, _NOTHING, np.array(free, dtype=np.int64).reshape(1, 2, 2), _CAPACITY)
