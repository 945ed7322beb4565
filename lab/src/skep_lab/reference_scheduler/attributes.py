"""What Nova's names of attributes mean of one host: `cpu_info:arch`, `free_ram_mb`, `metrics:cpu.percent`."""

from __future__ import annotations

import json
from typing import Any

from skep.domain.hosts import HostUsage
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep_lab.reference_scheduler.cloud import ReferenceHost

CHANGING = ("disk_mb_used", "free_disk_mb", "free_ram_mb", "metrics", "num_instances", "num_io_ops", "vcpus_used")
"""Those that follow from what runs on the host."""


def servers(host: ReferenceHost) -> int:
    """Return how many servers the host counts, and how many are only claimed yet."""
    return (host.usage.instances if host.usage is not None else 0) + len(host.claims)


def io_ops(host: ReferenceHost) -> int:
    """Return the operations on whole disks under way; a claim is a build that will be one."""
    return (host.usage.io_ops if host.usage is not None else 0) + len(host.claims)


def attribute(host: ReferenceHost, path: list[str]) -> Any:
    """Return what the host has at `path`; None where it has no such thing."""
    name, *keys = path
    if name == "uuid":
        return host.node
    if name in CHANGING and name != "metrics":
        return _amount(host, name)
    usage = host.usage
    if usage is None:
        return 0 if name == "failed_builds" else None
    if name == "metrics":
        return usage.metrics.get(".".join(keys))
    value = _fact(usage, name)
    for key in keys:
        value = _inside(value, key)
    return value


def _inside(value: Any, key: str) -> Any:
    """Return what a mapping, or a text that is one in JSON, has under a key."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value.get(key) if isinstance(value, dict) else None


def _fact(usage: HostUsage, name: str) -> Any:
    if name == "nodename":
        return usage.hypervisor_hostname
    if name == "supported_instances":
        return guest_kinds(usage)
    if name in ("host", "host_ip", "hypervisor_hostname", "hypervisor_type", "hypervisor_version", "cpu_info"):
        return getattr(usage, name)
    if name in ("failed_builds", "stats"):
        return getattr(usage, name)
    totals = {"vcpus_total": VCPU, "total_usable_ram_mb": MEMORY_MB, "total_usable_disk_gb": DISK_GB}
    if name in totals:
        return _inventory(usage, totals[name]).total
    ratios = {"cpu_allocation_ratio": VCPU, "ram_allocation_ratio": MEMORY_MB, "disk_allocation_ratio": DISK_GB}
    if name in ratios:
        return _inventory(usage, ratios[name]).allocation_ratio
    return usage.stats.get(name)


def guest_kinds(usage: HostUsage) -> tuple[tuple[str, str, str], ...]:
    """Return architecture, hypervisor type and vm mode of guests that run there, from its CPU if it tells none."""
    arch = usage.cpu_info.get("arch")
    if usage.supported_instances or not isinstance(arch, str) or not usage.hypervisor_type:
        return usage.supported_instances
    return ((arch, usage.hypervisor_type.lower(), "hvm"),)


def _inventory(usage: HostUsage, resource_class: str) -> Inventory:
    return usage.inventory.get(resource_class, Inventory(total=0))


def _amount(host: ReferenceHost, name: str) -> int:
    if name == "num_instances":
        return servers(host)
    if name == "num_io_ops":
        return io_ops(host)
    if name == "vcpus_used":
        return _gone(host, VCPU)
    if name == "free_ram_mb":
        return _total(host, MEMORY_MB) - _gone(host, MEMORY_MB)
    if name == "free_disk_mb":
        return 1024 * (_total(host, DISK_GB) - _gone(host, DISK_GB))
    return 1024 * _gone(host, DISK_GB)


def _total(host: ReferenceHost, resource_class: str) -> int:
    return _inventory(host.usage, resource_class).total if host.usage is not None else 0


def _gone(host: ReferenceHost, resource_class: str) -> int:
    """Return what is used, claimed, or kept by the host."""
    usage = host.usage
    own = _inventory(usage, resource_class).reserved + usage.used.get(resource_class, 0) if usage is not None else 0
    return own + sum(claim.resources.get(resource_class, 0) for claim in host.claims.values())
