"""Each weigher for one host, before its multiplier. One that the request does not concern gives 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from skep.testing.reference_scheduler.cloud import Host, free_share
from skep.testing.reference_scheduler.filters import Question, domain_of

Score = Callable[[Host, Question], float]


def cpu(host: Host, _: Question) -> float:
    """The free share of the host's own cores."""
    return free_share(host, "VCPU")


def ram(host: Host, _: Question) -> float:
    """The free share of the host's own memory."""
    return free_share(host, "MEMORY_MB")


def disk(host: Host, _: Question) -> float:
    """The free share of the host's own disk."""
    return free_share(host, "DISK_GB")


def build_failures(host: Host, _: Question) -> float:
    """Minus the builds that failed since the last that succeeded."""
    return -float(host.usage.failed_builds) if host.usage is not None else 0.0


def soft_affinity(host: Host, asked: Question) -> float:
    """The host's share of the group's members."""
    return _share_of_members(host, asked, "soft-affinity")


def soft_anti_affinity(host: Host, asked: Question) -> float:
    """Minus the host's share of the group's members."""
    return -_share_of_members(host, asked, "soft-anti-affinity")


def _share_of_members(host: Host, asked: Question, policy: str) -> float:
    group = asked.request.spec.group
    if group is None or group.policy != policy:
        return 0.0
    return asked.members.get(host.node, 0) / max(sum(asked.members.values()), 1)


def topology_spread(host: Host, asked: Question) -> float:
    """0 where each soft constraint is kept, less the further one is exceeded; -1 for each that knows no domain."""
    total = 0.0
    for constraint, by_domain in asked.excess.items():
        if not constraint.hard:
            domain = domain_of(asked.cloud, host, constraint.key)
            excess = max(by_domain.get(domain, 0), 0)
            total += excess / -(excess + 1.0) if domain else -1.0
    return total


SCORES: dict[str, Score] = {
    "CPUWeigher": cpu,
    "RAMWeigher": ram,
    "DiskWeigher": disk,
    "BuildFailureWeigher": build_failures,
    "ServerGroupSoftAffinityWeigher": soft_affinity,
    "ServerGroupSoftAntiAffinityWeigher": soft_anti_affinity,
    "TopologySpreadWeigher": topology_spread,
}
"""By the name of the engine's weigher."""

KEYS: dict[str, str] = {
    "CPUWeigher": "cpu_weight_multiplier",
    "RAMWeigher": "ram_weight_multiplier",
    "DiskWeigher": "disk_weight_multiplier",
    "BuildFailureWeigher": "build_failure_weight_multiplier",
    "ServerGroupSoftAffinityWeigher": "soft_affinity_weight_multiplier",
    "ServerGroupSoftAntiAffinityWeigher": "soft_anti_affinity_weight_multiplier",
    "TopologySpreadWeigher": "topology_spread_weight_multiplier",
}
"""Of each weigher: the key of an aggregate's metadata that sets another multiplier for its hosts."""


def multiplier(host: Host, asked: Question, name: str, configured: float) -> float:
    """Return how much a weigher counts on this host: the least number of its aggregates, if all of them are numbers."""
    said = [one.metadata[KEYS[name]] for _, one in asked.cloud.aggregates_of(host) if KEYS.get(name) in one.metadata]
    try:
        numbers = [float(text) for text in said]
    except ValueError:
        return configured
    return min(numbers) if numbers and all(map(math.isfinite, numbers)) else configured
