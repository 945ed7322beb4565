"""Nova's way of weighing: what each weigher gives is scaled to 0..1 over the hosts that are left."""

from __future__ import annotations

from skep_lab.reference_scheduler.attributes import io_ops, servers
from skep_lab.reference_scheduler.cloud import ReferenceHost, free
from skep_lab.reference_scheduler.question import Question
from skep_lab.reference_scheduler.weighers import SCORES, Score, build_failures, free_and_all_devices


def _devices(host: ReferenceHost, _: Question) -> float:
    return -min(free_and_all_devices(host)[0], 99)


def _version(host: ReferenceHost, _: Question) -> float:
    return host.usage.hypervisor_version if host.usage is not None else 0


def _members(host: ReferenceHost, asked: Question, policy: str) -> int:
    group = asked.request.spec.group
    return asked.members.get(host.node, 0) if group is not None and group.policy == policy else 0


VALUES: dict[str, Score] = {
    "CPUWeigher": lambda host, _: free(host, "VCPU"),
    "RAMWeigher": lambda host, _: free(host, "MEMORY_MB"),
    "DiskWeigher": lambda host, _: free(host, "DISK_GB"),
    "ServerGroupSoftAffinityWeigher": lambda host, asked: _members(host, asked, "soft-affinity"),
    "ServerGroupSoftAntiAffinityWeigher": lambda host, asked: -_members(host, asked, "soft-anti-affinity"),
    "HypervisorVersionWeigher": _version,
    "PCIWeigher": _devices,
    "IoOpsWeigher": lambda host, _: io_ops(host),
    "NumInstancesWeigher": lambda host, _: servers(host),
}
"""What Nova's weighers of these names give; all others give their score."""

FROM_ZERO = ("CPUWeigher", "RAMWeigher", "DiskWeigher", "IoOpsWeigher")
"""Those in which less than 0 counts as 0, and 0 stays 0 if all hosts have more."""


def scaled(name: str, hosts: list[ReferenceHost], asked: Question) -> list[float]:
    """Return what a weigher gives each host, 0 the least and 1 the most; all 0 where they are equal."""
    if name == "BuildFailureWeigher":
        # Failures are scaled, and count against the host: the least has 0, not the most -1.
        return [-part for part in _between([-build_failures(host, asked) for host in hosts])]
    values = [float(VALUES.get(name, SCORES[name])(host, asked)) for host in hosts]
    if name in FROM_ZERO:
        return _between([max(value, 0.0) for value in values], least=0.0)
    return _between(values)


def _between(values: list[float], least: float | None = None) -> list[float]:
    low, high = min(values) if least is None else least, max(values)
    return [(value - low) / (high - low) if high != low else 0.0 for value in values]
