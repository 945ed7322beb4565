"""Values of hosts that hold what is equal only once: a hundred thousand hosts have few kinds of hardware.

What a host reports is mostly what it reported before, and what its neighbours do. Equal parts become the same objects:
memory is spared, and that nothing but the usage changed is seen without comparing.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

from skep.domain.cells import HostIntent
from skep.domain.guest_keys import RefusedKeys
from skep.domain.hosts import HostUsage, Report
from skep.domain.providers import Topology
from skep.domain.resources import Inventory
from skep.scheduler.records import ComputeValue, HearingValue

MOST_KINDS = 20_000
"""Different values of one part that are remembered; beyond it they are forgotten, and equal ones kept anew."""

_NOTHING: dict[str, Any] = {}
"""Of the many that say nothing."""

T = TypeVar("T")


class Sharing:
    """The parts that were seen."""

    def __init__(self) -> None:
        self._inventories: dict[Hashable, dict[str, Inventory]] = {}
        self._trait_sets: dict[Hashable, tuple[str, ...]] = {}
        self._cpus: dict[Hashable, dict[str, object]] = {}
        self._guest_kinds: dict[Hashable, tuple[tuple[str, str, str], ...]] = {}
        self._stats: dict[Hashable, dict[str, str]] = {}
        self._topologies: dict[Hashable, Topology] = {}
        self._refused_keys: dict[Hashable, RefusedKeys | None] = {}

    def shared(self, before: Any, after: Any) -> Any:
        """Return the value of a record that follows `before`, with parts that were seen where they are equal."""
        kind = type(after)
        if kind is ComputeValue:
            return self._compute(before, after)
        if kind is HostIntent:
            node, host, cell = sys.intern(after.node), sys.intern(after.host), sys.intern(after.cell)
            return msgspec.structs.replace(after, node=node, host=host, cell=cell)
        if kind is HearingValue:
            return msgspec.structs.replace(after, nodes=tuple(map(sys.intern, after.nodes)))
        return after

    def _compute(self, before: ComputeValue | None, after: ComputeValue) -> ComputeValue:
        report = after.report
        former = before.report if before is not None else None
        if report is None or report is former:
            return after
        usage = self._usage(former.usage if former is not None else None, report.usage)
        fresh = Report(incarnation=report.incarnation, seq=report.seq, usage=usage)
        return msgspec.structs.replace(after, cell=sys.intern(after.cell), report=fresh)

    def _topology(self, told: Topology | None) -> Topology | None:
        return None if told is None else _once(self._topologies, msgspec.msgpack.encode(told), told)

    def _usage(self, before: HostUsage | None, after: HostUsage) -> HostUsage:
        if before is not None:
            if before == after:
                return before
            if same_facts(before, after):
                return _with_facts_of(before, after)
        host = sys.intern(after.host)
        named_alike = after.hypervisor_hostname == host
        traits = self._trait_sets.get(after.traits)
        if traits is None:
            traits = _once(self._trait_sets, after.traits, tuple(map(sys.intern, after.traits)))
        cpu_info = after.cpu_info
        if cpu_info:
            cpu_info = _once(self._cpus, msgspec.json.encode(cpu_info), cpu_info)
        return msgspec.structs.replace(
            after,
            host=host,
            hypervisor_hostname=host if named_alike else after.hypervisor_hostname,
            hypervisor_type=sys.intern(after.hypervisor_type),
            inventory=_once(self._inventories, tuple(after.inventory.items()), after.inventory),
            traits=traits,
            topology=self._topology(after.topology),
            cpu_info=cpu_info,
            supported_instances=_once(self._guest_kinds, after.supported_instances, after.supported_instances),
            metrics=after.metrics or _NOTHING,
            image_properties=after.image_properties or _NOTHING,
            stats=_once(self._stats, tuple(after.stats.items()), after.stats),
            refused_keys=_once(self._refused_keys, after.refused_keys, after.refused_keys),
        )


def _once(seen: dict[Hashable, T], name: Hashable, value: T) -> T:
    if len(seen) >= MOST_KINDS:
        seen.clear()
    return seen.setdefault(name, value)


def same_facts(before: HostUsage, after: HostUsage) -> bool:
    """Tell whether a host reports what it did before, but for what it uses and runs."""
    return (
        before.inventory == after.inventory
        and before.traits == after.traits
        and before.topology == after.topology
        and before.host == after.host
        and before.hypervisor_hostname == after.hypervisor_hostname
        and before.failed_builds == after.failed_builds
        and before.used.keys() == after.used.keys()
        and before.hypervisor_type == after.hypervisor_type
        and before.hypervisor_version == after.hypervisor_version
        and before.host_ip == after.host_ip
        and before.cpu_info == after.cpu_info
        and before.supported_instances == after.supported_instances
        and before.stats == after.stats
        and before.refused_keys == after.refused_keys
        and before.metrics.keys() == after.metrics.keys()
    )


def _with_facts_of(before: HostUsage, after: HostUsage) -> HostUsage:
    return msgspec.structs.replace(
        after,
        host=before.host,
        hypervisor_hostname=before.hypervisor_hostname,
        hypervisor_type=before.hypervisor_type,
        host_ip=before.host_ip,
        inventory=before.inventory,
        traits=before.traits,
        topology=before.topology,
        cpu_info=before.cpu_info,
        supported_instances=before.supported_instances,
        stats=before.stats,
        refused_keys=before.refused_keys,
    )
