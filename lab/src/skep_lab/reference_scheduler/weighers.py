"""Each weigher for one host, before its multiplier. One that the request does not concern gives 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from skep_lab.reference_scheduler.attributes import io_ops, servers
from skep_lab.reference_scheduler.cloud import ReferenceHost, capacity, free, free_share, occupied_until
from skep_lab.reference_scheduler.filters import domain_of
from skep_lab.reference_scheduler.question import Question

Score = Callable[[ReferenceHost, Question], float]


def cpu(host: ReferenceHost, _: Question) -> float:
    """The free share of the host's own cores."""
    return free_share(host, "VCPU")


def ram(host: ReferenceHost, _: Question) -> float:
    """The free share of the host's own memory."""
    return free_share(host, "MEMORY_MB")


def disk(host: ReferenceHost, _: Question) -> float:
    """The free share of the host's own disk."""
    return free_share(host, "DISK_GB")


def build_failures(host: ReferenceHost, _: Question) -> float:
    """Minus the builds that failed since the last that succeeded."""
    return -float(host.usage.failed_builds) if host.usage is not None else 0.0


def soft_affinity(host: ReferenceHost, asked: Question) -> float:
    """The host's share of the group's members."""
    return _share_of_members(host, asked, "soft-affinity")


def soft_anti_affinity(host: ReferenceHost, asked: Question) -> float:
    """Minus the host's share of the group's members."""
    return -_share_of_members(host, asked, "soft-anti-affinity")


def _share_of_members(host: ReferenceHost, asked: Question, policy: str) -> float:
    group = asked.request.spec.group
    if group is None or group.policy != policy:
        return 0.0
    return asked.members.get(host.node, 0) / max(sum(asked.members.values()), 1)


def topology_spread(host: ReferenceHost, asked: Question) -> float:
    """0 where each soft constraint is kept, less the further one is exceeded; -1 for each that knows no domain."""
    total = 0.0
    for constraint, by_domain in asked.excess.items():
        if not constraint.hard:
            domain = domain_of(asked.cloud, host, constraint.key)
            excess = max(by_domain.get(domain, 0), 0)
            total += excess / -(excess + 1.0) if domain else -1.0
    return total


def cross_cell(host: ReferenceHost, asked: Question) -> float:
    """Of a move: 1 in the cell where the server is, -1 elsewhere."""
    source = asked.request.source_cell
    return 0.0 if source is None else 1.0 if host.cell == source else -1.0


def hypervisor_version(host: ReferenceHost, _: Question) -> float:
    """The version, in tens of major ones."""
    return host.usage.hypervisor_version / 10_000_000 if host.usage is not None else 0.0


def best_fit(host: ReferenceHost, asked: Question) -> float:
    """How full the host would be: the mean share, of the classes asked for, that would be in use."""
    shares = [
        1 - (free(host, name) - wanted) / capacity(host, name) if capacity(host, name) > 0 else 0.0
        for name, wanted in asked.request.resources.items()
    ]
    return sum(shares) / len(shares) if shares else 0.0


def pci(host: ReferenceHost, _: Question) -> float:
    """The share of the host's devices that somebody holds; 1 where there are none."""
    left, total = free_and_all_devices(host)
    return 1.0 - left / total if total else 1.0


def free_and_all_devices(host: ReferenceHost) -> tuple[int, int]:
    """Return how many devices nobody holds, and how many there are."""
    topology = host.usage.topology if host.usage is not None else None
    taken = host.usage.taken if host.usage is not None else None
    devices = [device for provider in topology.providers for device in provider.devices] if topology else []
    held = [device for share in taken.providers for device in share.devices] if taken else []
    return len(devices) - len(held), len(devices)


def lifetime(host: ReferenceHost, asked: Question) -> float:
    """The share of the server's lifetime for which the host is occupied without it."""
    expected = asked.request.spec.lifetime
    if expected is None:
        return 0.0
    share = (occupied_until(host) - expected.begin) / (expected.end - expected.begin)
    return min(max(share, 0.0), 1.0)


def operations(host: ReferenceHost, asked: Question) -> float:
    """Operations under way, of those that may be."""
    return io_ops(host) / asked.options.max_io_ops_per_host


def instances(host: ReferenceHost, asked: Question) -> float:
    """Servers, of those that may be."""
    return servers(host) / asked.options.max_instances_per_host


def image_properties(host: ReferenceHost, asked: Question) -> float:
    """How many servers of the host share properties with the image, of the servers that may be there."""
    image, setting = asked.request.spec.image, asked.options.image_props_weight_setting
    if image is None or host.usage is None:
        return 0.0
    total = 0.0
    for name, value in sorted(image.properties.items()):
        ratio = setting.get(name, 0.0) if setting else 1.0
        total += ratio * host.usage.image_properties.get(f"{name}={value}", 0)
    return total / asked.options.max_instances_per_host


def metrics(host: ReferenceHost, asked: Question) -> float:
    """The sum of what counts; one that is missing makes the whole worth what the option says."""
    reported, total = host.usage.metrics if host.usage is not None else {}, 0.0
    for name, ratio in asked.options.metrics_weight_setting.items():
        if ratio and name not in reported:
            return asked.options.metrics_weight_of_unavailable
        total += ratio * reported.get(name, 0.0)
    return total


SCORES: dict[str, Score] = {
    "CPUWeigher": cpu,
    "RAMWeigher": ram,
    "DiskWeigher": disk,
    "BuildFailureWeigher": build_failures,
    "ServerGroupSoftAffinityWeigher": soft_affinity,
    "ServerGroupSoftAntiAffinityWeigher": soft_anti_affinity,
    "TopologySpreadWeigher": topology_spread,
    "CrossCellWeigher": cross_cell,
    "HypervisorVersionWeigher": hypervisor_version,
    "BestFitWeigher": best_fit,
    "PCIWeigher": pci,
    "LifetimeWeigher": lifetime,
    "IoOpsWeigher": operations,
    "NumInstancesWeigher": instances,
    "ImagePropertiesWeigher": image_properties,
    "MetricsWeigher": metrics,
}
"""By the name of the engine's weigher. FragmentationWeigher is not said again: it learns from earlier requests."""

KEYS: dict[str, str] = {
    "CPUWeigher": "cpu_weight_multiplier",
    "RAMWeigher": "ram_weight_multiplier",
    "DiskWeigher": "disk_weight_multiplier",
    "BuildFailureWeigher": "build_failure_weight_multiplier",
    "ServerGroupSoftAffinityWeigher": "soft_affinity_weight_multiplier",
    "ServerGroupSoftAntiAffinityWeigher": "soft_anti_affinity_weight_multiplier",
    "TopologySpreadWeigher": "topology_spread_weight_multiplier",
    "CrossCellWeigher": "cross_cell_move_weight_multiplier",
    "HypervisorVersionWeigher": "hypervisor_version_weight_multiplier",
    "BestFitWeigher": "best_fit_weight_multiplier",
    "PCIWeigher": "pci_weight_multiplier",
    "LifetimeWeigher": "lifetime_weight_multiplier",
    "IoOpsWeigher": "io_ops_weight_multiplier",
    "NumInstancesWeigher": "num_instances_weight_multiplier",
    "ImagePropertiesWeigher": "image_props_weight_multiplier",
    "MetricsWeigher": "metrics_weight_multiplier",
}
"""Of each weigher: the key of an aggregate's metadata that sets another multiplier for its hosts."""


def multiplier(host: ReferenceHost, asked: Question, name: str, configured: float) -> float:
    """Return how much a weigher counts on this host: the least number of its aggregates, if all of them are numbers."""
    said = [one.metadata[KEYS[name]] for _, one in asked.cloud.aggregates_of(host) if KEYS.get(name) in one.metadata]
    try:
        numbers = [float(text) for text in said]
    except ValueError:
        return configured
    return min(numbers) if numbers and all(map(math.isfinite, numbers)) else configured
