"""The same request for less: what would have to be asked for instead, so that one host is enough.

A lack shows several times: a device that is missing is missing in the flat inventory, in its pool and near the guest's
NUMA cells. It counts once if the request with so much less would pass all of these. So the smaller request is made as
its owner would make it, of a smaller flavor, and judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from skep.domain.errors import BadRequest
from skep.domain.flavors import Flavor
from skep.domain.nested.reading import resources_of, wanted
from skep.domain.nested.wanted import DeviceRequest, PortsWanted, Wanted, request_class
from skep.domain.resources import DISK_GB, MEMORY_MB, VCPU, Resources
from skep.placement.explain.amounts import shortage
from skep.placement.explain.failures import INSIDE, Failures, FilterSet, RowNumbers
from skep.placement.filters.inside import has_room
from skep.placement.hosts.table import HostTable
from skep.placement.request import PlacementRequest

LOOKED_AT = 8
"""So many hosts are asked whether less would do, the nearest: each takes as long as a decision."""
GROUPS, DEVICES, _ = INSIDE
PCPU = "PCPU"
_OF_CELLS = (VCPU, PCPU, MEMORY_MB)
"""Classes that guests with NUMA cells take from these, the same amount from each unless the flavor says otherwise."""


class Less(msgspec.Struct, frozen=True, kw_only=True):
    """A smaller request."""

    lacks: Resources
    """By how much it is smaller."""
    resources: Resources
    inside: Wanted | None


def enough(table: HostTable, request: PlacementRequest, row: int) -> Less | None:
    """Return the request that asks for what a host has of what it lacks; None where that would not be enough.

    So it is where something else is missing, or where less of it makes no server.
    """
    lacks = shortage(table, request, row)
    smaller = _less(request, lacks) if lacks else None
    return smaller if smaller is not None and would_fit(table, smaller, row) else None


def without(request: PlacementRequest, part: str) -> Less:
    """Return the request without the part of it that a filter of `INSIDE` judges. Without NUMA cells CPUs float."""
    asked = request.nested or Wanted()
    flavor = replace(request.spec.flavor, root_gb=0) if request.spec.boot_from_volume else request.spec.flavor
    if part == GROUPS:
        inside = replace(asked, groups=(), loose=(), isolated=False, ports=PortsWanted())
    else:
        inside = replace(asked, devices=()) if part == DEVICES else replace(asked, numa=None)
    gone = asked.loose if part == GROUPS else ()
    resources = {name: amount for name, amount in resources_of(flavor, inside).items() if name not in dict(gone)}
    return Less(lacks={}, resources=resources, inside=inside if inside != Wanted() else None)


def by_one_filter(
    table: HostTable, request: PlacementRequest, failures: Failures, by_capacity: RowNumbers
) -> list[RowNumbers]:
    """Return for each filter some of the hosts that it alone rejects.

    `by_capacity`: those that lack nothing but capacity.
    """
    found = []
    for number in range(len(failures.filters)):
        failed = 1 << number
        if failed == failures.capacity:
            found.append(by_capacity)
        elif failures.of_inside(failed) is None:
            found.append(failures.some(failed))
        else:
            found.append(_by_one_inside(table, request, failures, failed, by_capacity))
    return found


def _by_one_inside(
    table: HostTable, request: PlacementRequest, failures: Failures, failed: FilterSet, by_capacity: RowNumbers
) -> RowNumbers:
    """Return the same of a filter that looks inside: it knows what capacity knows too, or hides what the next says.

    These are hosts that would hold the rest of the request.
    """
    rows, part = failures.some(failed), failures.of_inside(failed)
    both = failures.some(failed | failures.capacity)[:LOOKED_AT] if failures.capacity else rows[:0]
    if part is None or not (len(rows) or len(both)):
        return rows
    rest = without(request, part)
    if failed != failures.inside[-1]:
        rows = _holding(table, rest, rows)
    both = np.setdiff1d(both, by_capacity)
    return np.concatenate((rows, _holding(table, rest, both))) if len(both) else rows


def _holding(table: HostTable, smaller: Less, rows: RowNumbers) -> RowNumbers:
    return np.array([row for row in rows[:LOOKED_AT].tolist() if would_fit(table, smaller, row)], dtype=np.intp)


def would_fit(table: HostTable, smaller: Less, row: int) -> bool:
    """Tell whether a host has all that a smaller request asks for."""
    for name, amount in smaller.resources.items():
        amounts = table.resources.get(name)
        if amounts is None or amounts.free_of(row) < amount:
            return False
    return smaller.inside is None or has_room(table, smaller.inside, row)


def aliases(request: PlacementRequest) -> dict[str, str]:
    """Return what users call the devices of a resource class."""
    return {request_class(one): one.alias for one in request.spec.devices if request_class(one)}


def _less(request: PlacementRequest, lacks: Resources) -> Less | None:
    spec = request.spec
    numa = request.nested.numa if request.nested is not None else None
    cells = len(numa.cells) if numa is not None else 1
    lacks = {name: -(-amount // cells) * cells if name in _OF_CELLS else amount for name, amount in lacks.items()}
    devices, left = _fewer(spec.devices, lacks)
    flavor = _smaller(replace(spec.flavor, root_gb=0) if spec.boot_from_volume else spec.flavor, left)
    if flavor is None:
        return None
    try:
        inside = wanted(flavor, spec.image.properties if spec.image is not None else {}, devices, spec.ports)
    except BadRequest:
        return None
    resources = resources_of(flavor, inside)
    if any(resources.get(name, 0) != amount - lacks.get(name, 0) for name, amount in request.resources.items()):
        return None
    return Less(lacks=lacks, resources=resources, inside=inside)


def _fewer(devices: tuple[DeviceRequest, ...], lacks: Resources) -> tuple[tuple[DeviceRequest, ...], Resources]:
    """Take away devices of the classes that are missing; return what is left of both."""
    left, kept = dict(lacks), []
    for one in devices:
        fewer = min(one.count, left.get(request_class(one), 0))
        if fewer:
            left[request_class(one)] -= fewer
        if one.count > fewer:
            kept.append(replace(one, count=one.count - fewer))
    return tuple(kept), {name: amount for name, amount in left.items() if amount}


def _smaller(flavor: Flavor, lacks: Resources) -> Flavor | None:
    """Return a flavor of which a server takes so much less; None where nothing would be left of a server."""
    specs, left = _smaller_amounts(flavor.extra_specs, lacks)
    cpus = flavor.vcpus - left.pop(VCPU, 0) - left.pop(PCPU, 0)
    memory = flavor.memory_mb - left.pop(MEMORY_MB, 0)
    disk = left.pop(DISK_GB, 0)
    if left or cpus <= 0 or memory <= 0:
        return None
    root = min(flavor.root_gb, disk)
    ephemeral = min(flavor.ephemeral_gb, disk - root)
    return replace(
        flavor,
        vcpus=cpus,
        memory_mb=memory,
        root_gb=flavor.root_gb - root,
        ephemeral_gb=flavor.ephemeral_gb - ephemeral,
        swap_mb=max(flavor.swap_mb - 1024 * (disk - root - ephemeral), 0),
        extra_specs=specs,
    )


def _smaller_amounts(specs: Mapping[str, str], lacks: Resources) -> tuple[dict[str, str], Resources]:
    """Take away from what `resources:CLASS` and `resourcesN:CLASS` ask for; return what is left of both."""
    kept, left = dict(specs), dict(lacks)
    for key, value in specs.items():
        prefix, _, name = key.partition(":")
        if not re.fullmatch("resources[0-9A-Za-z_-]*", prefix) or not left.get(name) or not value.isdecimal():
            continue
        fewer = min(int(value), left[name])
        left[name] -= fewer
        kept[key] = str(int(value) - fewer)
        if kept[key] == "0" and prefix != "resources":
            kept = _without_group(kept, prefix.removeprefix("resources"), key)
    return kept, {name: amount for name, amount in left.items() if amount}


def _without_group(specs: dict[str, str], group: str, key: str) -> dict[str, str]:
    """Leave out an amount, and the traits of its group if it was the last."""
    kept = {one: value for one, value in specs.items() if one != key}
    if any(one.startswith(f"resources{group}:") for one in kept):
        return kept
    return {one: value for one, value in kept.items() if not one.startswith(f"trait{group}:")}
