"""The attributes of hosts that extra specs and queries name (`domain/host_attributes.py`), of many hosts at once.

A hundred thousand hosts have few different CPUs: what is asked of an attribute is asked once of each value, and not of
each host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.domain.host_attributes import AMOUNTS
from skep.domain.hosts import HostUsage
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Inventory
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.view import HostView

MIB_PER_GIB = 1024
_NOTHING = Inventory(total=0)

Path = tuple[str, ...]

PASSING = frozenset({"failed_builds", "metrics"})
"""Attributes that say nothing of what the host will be like when nothing runs on it."""


@dataclass(frozen=True, slots=True)
class Values:
    """What each of some hosts has for an attribute: the number of a value among the different ones."""

    distinct: list[Any]
    """None stands for hosts that have no such attribute."""
    codes: NDArray[np.intp]

    def judge(self, judged: Callable[[Any], bool]) -> Mask:
        """Return which hosts have a value that is judged right; one that has none is not."""
        verdicts = np.array([value is not None and judged(value) for value in self.distinct], dtype=np.bool_)
        mask: Mask = verdicts[self.codes]
        return mask


def attribute(hosts: HostView, path: Path) -> Values:
    """Return what the hosts have at `path`: the name of an attribute, of one of its keys, and so on.

    A name that is none may be one of the driver's own facts (`stats`).
    """
    if path[0] in AMOUNTS:
        return _metric(hosts, path[1:]) if path[0] == "metrics" else _numbers(_AMOUNTS[path[0]](hosts))
    if path[0] == "failed_builds":
        return _numbers(hosts.failed_builds.astype(np.float64))
    if path[0] == "uuid":
        return _told((node, node) for node in hosts.nodes())
    # Equal facts of different hosts are the same objects (`scheduler/sharing.py`): what was found in one is remembered.
    return _told(_leaves(hosts, path))


def _leaves(hosts: HostView, path: Path) -> Iterator[tuple[object, Any]]:
    """Give each host's value, and before it something that tells different values apart."""
    first, keys = path[0], path[1:]
    read = _FACTS.get(first)
    found: dict[int, tuple[object, Any]] = {}
    held: list[object] = []
    """What `found` knows by its address, so that nothing else gets that address meanwhile."""
    for usage in hosts.usages():
        whole = None if usage is None else read(usage) if read is not None else usage.stats.get(first)
        if not isinstance(whole, (Mapping, tuple)):
            leaf = _below(whole, keys)
            # JSON in a text may hold lists and mappings.
            name = msgspec.json.encode(leaf) if isinstance(leaf, (Mapping, list)) else leaf
            yield (type(leaf), name), leaf
            continue
        known = found.get(id(whole))
        if known is None:
            leaf = _below(whole, keys)
            known = found[id(whole)] = (msgspec.json.encode(leaf), leaf)
            held.append(whole)
        yield known


def _below(value: Any, keys: Path) -> Any:
    """Return what is at `keys` inside a value, which may be JSON in a text; None where nothing is."""
    for key in keys:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                return None
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _told(leaves: Iterator[tuple[object, Any]]) -> Values:
    number_of: dict[object, int] = {}
    distinct: list[Any] = []
    codes: list[int] = []
    for name, leaf in leaves:
        number = number_of.get(name)
        if number is None:
            number = number_of[name] = len(distinct)
            distinct.append(leaf)
        codes.append(number)
    return Values(distinct, np.array(codes, dtype=np.intp))


def _numbers(numbers: Floats) -> Values:
    """Return whole numbers as such; NaN is a host that has none."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    return Values([_number(value) for value in distinct.tolist()], codes.astype(np.intp))


def _number(value: float) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else value


def _metric(hosts: HostView, keys: Path) -> Values:
    name = ".".join(keys)
    return _told(
        (value, value) for value in (None if usage is None else usage.metrics.get(name) for usage in hosts.usages())
    )


def _guest_kinds(usage: HostUsage) -> tuple[tuple[str, str, str], ...]:
    """Return the kinds of guests. An agent of an earlier release tells none, but its CPU and hypervisor."""
    arch = usage.cpu_info.get("arch")
    if usage.supported_instances or not isinstance(arch, str) or not usage.hypervisor_type:
        return usage.supported_instances
    return ((arch, usage.hypervisor_type.lower(), "hvm"),)


def _inventory(usage: HostUsage, resource_class: str) -> Inventory:
    return usage.inventory.get(resource_class, _NOTHING)


def _total(hosts: HostView, resource_class: str, *, reserved: bool = False) -> Floats:
    """Return how much there is, before any ratio; with `reserved`, how much of it is the host's own."""
    found: dict[int, int] = {}
    amounts = []
    for usage in hosts.usages():
        if usage is None:
            amounts.append(0)
            continue
        known = found.get(id(usage.inventory))
        if known is None:
            inventory = _inventory(usage, resource_class)
            known = found[id(usage.inventory)] = inventory.reserved if reserved else inventory.total
        amounts.append(known)
    return np.array(amounts, dtype=np.float64)


def _taken(hosts: HostView, resource_class: str) -> Floats:
    """Return what is used, claimed, or the host's own."""
    taken: Floats = hosts.taken(resource_class) + _total(hosts, resource_class, reserved=True)
    return taken


def _free(hosts: HostView, resource_class: str) -> Floats:
    return _total(hosts, resource_class) - _taken(hosts, resource_class)


_FACTS: dict[str, Callable[[HostUsage], Any]] = {
    "cpu_allocation_ratio": lambda usage: _inventory(usage, VCPU).allocation_ratio,
    "cpu_info": lambda usage: usage.cpu_info,
    "disk_allocation_ratio": lambda usage: _inventory(usage, DISK_GB).allocation_ratio,
    "host": lambda usage: usage.host,
    "host_ip": lambda usage: usage.host_ip,
    "hypervisor_hostname": lambda usage: usage.hypervisor_hostname,
    "hypervisor_type": lambda usage: usage.hypervisor_type,
    "hypervisor_version": lambda usage: usage.hypervisor_version,
    "nodename": lambda usage: usage.hypervisor_hostname,
    "ram_allocation_ratio": lambda usage: _inventory(usage, MEMORY_MB).allocation_ratio,
    "stats": lambda usage: usage.stats,
    "supported_instances": _guest_kinds,
    "total_usable_disk_gb": lambda usage: _inventory(usage, DISK_GB).total,
    "total_usable_ram_mb": lambda usage: _inventory(usage, MEMORY_MB).total,
    "vcpus_total": lambda usage: _inventory(usage, VCPU).total,
}

_AMOUNTS: dict[str, Callable[[HostView], Floats]] = {
    "disk_mb_used": lambda hosts: _taken(hosts, DISK_GB) * MIB_PER_GIB,
    "free_disk_mb": lambda hosts: _free(hosts, DISK_GB) * MIB_PER_GIB,
    "free_ram_mb": lambda hosts: _free(hosts, MEMORY_MB),
    "num_instances": lambda hosts: hosts.servers.astype(np.float64),
    "num_io_ops": lambda hosts: hosts.io_ops.astype(np.float64),
    "vcpus_used": lambda hosts: _taken(hosts, VCPU),
}
