"""What makes a host's report nonsense. Nonsense is refused by name and never reaches the columns.

More used than there is makes sense: a ratio was lowered, a reserve was raised, memory was taken out of the host. Such a
host has no room, and refusing its word would leave an older one in force that may promise some.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

import msgspec
import os_resource_classes
import os_traits

from skep.domain.guest_keys import RefusedKeys
from skep.domain.hosts import HostUsage
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import HostReport
from skep.scheduler.inside_nonsense import inside_faults, inside_names, nested_inventories

MOST = 2**31 - 1
"""Placement's largest amount."""
MOST_COUNTED = 2**53 - 1
"""The largest whole number that every reader of JSON can hold."""
LARGEST_RATIO = 10_000.0
MOST_TRAITS = 2_000
MOST_CLASSES = 100
MOST_SETTLED = 10_000
LONGEST_NAME = 255
MOST_UNFIT = 1024
"""Characters of why a host takes no builds."""
MOST_MEASURED = 1e15
"""Of metrics, of either sign: they are added and multiplied, and the result must be a number."""
MOST_TOLD = 256
"""Kinds of guests, metrics, further facts, image properties, refused keys and values of each of those."""
MOST_CPU_BYTES = 64 * 1024
"""Of `cpu_info` as JSON."""

_STANDARD = frozenset(os_resource_classes.STANDARDS)
_STANDARD_TRAITS = frozenset(os_traits.get_traits())
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")


def nonsense(report: HostReport) -> str | None:
    """Return what is wrong with a report, beginning with the field's name; None if it makes sense."""
    return next(_faults(report), None)


def is_counter(number: int) -> bool:
    """Tell whether a number can be an incarnation or the number of a report."""
    return 0 <= number <= MOST_COUNTED


def _faults(report: HostReport) -> Iterator[str]:
    usage = report.usage
    names = (
        ("node", report.node, 1),
        ("cell", report.cell, 1),
        ("usage.host", usage.host, 1),
        ("usage.hypervisor_type", usage.hypervisor_type, 0),
        ("usage.hypervisor_hostname", usage.hypervisor_hostname, 0),
        ("usage.host_ip", usage.host_ip, 0),
        ("usage.uptime", usage.uptime or "", 0),
    )
    for name, text, least in names:
        if not least <= len(text) <= LONGEST_NAME:
            yield f"{name}: must have {least} to {LONGEST_NAME} characters"
    counters = (
        ("incarnation", report.incarnation, MOST_COUNTED),
        ("seq", report.seq, MOST_COUNTED),
        ("usage.failed_builds", usage.failed_builds, MOST),
        ("usage.servers", usage.servers, MOST),
        ("usage.instances", usage.instances, MOST),
        ("usage.io_ops", usage.io_ops, MOST),
        ("usage.hypervisor_version", usage.hypervisor_version, MOST),
        ("usage.service_version", usage.service_version, MOST),
        ("usage.started_at", usage.started_at, MOST_COUNTED),
        ("usage.expected_end", usage.expected_end or 0, MOST_COUNTED),
    )
    for name, number, most in counters:
        if not 0 <= number <= most:
            yield f"{name}: {number} is not within 0 and {most}"
    if len(report.settled) > MOST_SETTLED:
        yield f"settled: more than {MOST_SETTLED}"
    yield from _resource_faults(usage)
    yield from _trait_faults(usage.traits)
    yield from _cpu_faults(usage)
    yield from _told_faults(usage)
    yield from _inside_faults(usage)


def _inside_faults(usage: HostUsage) -> Iterator[str]:
    if usage.topology is None and usage.taken is None:
        return
    yield from inside_faults(usage)
    classes, traits = inside_names(usage)
    for name in sorted(classes):
        yield from _class_faults("usage.topology.providers", name)
    yield from _trait_faults(tuple(sorted(traits)))
    for field, inventory in nested_inventories(usage):
        yield from _inventory_faults(field, inventory)


def _trait_faults(traits: tuple[str, ...]) -> Iterator[str]:
    if len(traits) > MOST_TRAITS:
        yield f"usage.traits: more than {MOST_TRAITS}"
    for trait in traits:
        if not _is_trait(trait):
            yield f"usage.traits: {trait[:LONGEST_NAME]!r} is neither a standard trait nor CUSTOM_ and capital letters"


@functools.lru_cache(maxsize=4096)
def _is_trait(name: str) -> bool:
    return name in _STANDARD_TRAITS or _CUSTOM.fullmatch(name) is not None


def _cpu_faults(usage: HostUsage) -> Iterator[str]:
    """It is of any shape, and shown as it is: so it must be JSON of a bearable size."""
    if not usage.cpu_info:
        return
    try:
        size = len(msgspec.json.encode(usage.cpu_info))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        yield f"usage.cpu_info: {error}"
        return
    if size > MOST_CPU_BYTES:
        yield f"usage.cpu_info: {size} bytes, at most {MOST_CPU_BYTES} are possible"


def _told_faults(usage: HostUsage) -> Iterator[str]:
    """Name what is too long, too much or no number of what only some filters and weighers read."""
    for field, told in (
        ("supported_instances", usage.supported_instances),
        ("metrics", usage.metrics),
        ("stats", usage.stats),
        ("image_properties", usage.image_properties),
        ("capabilities", usage.capabilities),
        ("hung_calls", usage.hung_calls),
    ):
        if len(told) > MOST_TOLD:
            yield f"usage.{field}: more than {MOST_TOLD}"
    yield from _refusal_faults(usage.refused_keys)
    words = (word for kind in usage.supported_instances for word in kind)
    for field, word in (
        *(("supported_instances", word) for word in words),
        *(("metrics", name) for name in usage.metrics),
        *(("stats", word) for pair in usage.stats.items() for word in pair),
        *(("capabilities", word) for word in usage.capabilities),
        *(("hung_calls", word) for word in usage.hung_calls),
    ):
        if len(word) > LONGEST_NAME:
            yield f"usage.{field}: at most {LONGEST_NAME} characters are possible"
    if len(usage.unfit) > MOST_UNFIT:
        yield f"usage.unfit: at most {MOST_UNFIT} characters are possible"
    for name, value in usage.metrics.items():
        if not math.isfinite(value):
            yield f"usage.metrics.{name}: {value} is no finite number"
        elif abs(value) > MOST_MEASURED:
            yield f"usage.metrics.{name}: {value} is not within -{MOST_MEASURED:g} and {MOST_MEASURED:g}"
    if not abs(usage.clock_ahead) <= MOST_MEASURED:
        yield f"usage.clock_ahead: {usage.clock_ahead} is not within -{MOST_MEASURED:g} and {MOST_MEASURED:g}"
    for name, count in usage.image_properties.items():
        if not 0 <= count <= MOST or len(name) > 2 * LONGEST_NAME:
            yield f"usage.image_properties: {name[:LONGEST_NAME]!r} is too long, or {count} not within 0 and {MOST}"


def _refusal_faults(told: RefusedKeys | None) -> Iterator[str]:
    """Name what is too much or too long of what a host refuses."""
    rules = (*told.extra_specs, *told.properties) if told is not None else ()
    if len(rules) > MOST_TOLD:
        yield f"usage.refused_keys: more than {MOST_TOLD}"
    for rule in rules:
        if len(rule.taken) > MOST_TOLD:
            yield f"usage.refused_keys: {rule.keys[:LONGEST_NAME]!r} has more than {MOST_TOLD} values"
        if any(len(word) > LONGEST_NAME for word in (rule.keys, *rule.taken)):
            yield f"usage.refused_keys: at most {LONGEST_NAME} characters are possible"


def _resource_faults(usage: HostUsage) -> Iterator[str]:
    if not usage.inventory:
        yield "usage.inventory: missing"
    if usage.servers > 0 and not usage.used:
        yield f"usage.used: missing, with {usage.servers} servers on the host"
    if len(usage.inventory) > MOST_CLASSES or len(usage.used) > MOST_CLASSES:
        yield f"usage.inventory: more than {MOST_CLASSES} resource classes"
        return
    for name, inventory in usage.inventory.items():
        yield from _class_faults("usage.inventory", name)
        yield from _inventory_faults(f"usage.inventory.{name}", inventory)
    for name, amount in usage.used.items():
        yield from _class_faults("usage.used", name)
        if not 0 <= amount <= MOST:
            yield f"usage.used.{name}: {amount} is not within 0 and {MOST}"


def _class_faults(field: str, name: str) -> Iterator[str]:
    if name not in _STANDARD and not _CUSTOM.fullmatch(name):
        named = f"{field}.{name}"[:LONGEST_NAME]
        yield f"{named}: neither a standard resource class nor CUSTOM_ and capital letters, digits, _"


def _inventory_faults(field: str, inventory: Inventory) -> Iterator[str]:
    if not 0 <= inventory.total <= MOST:
        yield f"{field}.total: {inventory.total} is not within 0 and {MOST}"
    if not 0 <= inventory.reserved <= MOST:
        yield f"{field}.reserved: {inventory.reserved} is not within 0 and {MOST}"
    ratio = inventory.allocation_ratio
    if not math.isfinite(ratio) or not 0 < ratio <= LARGEST_RATIO:
        yield f"{field}.allocation_ratio: {ratio} is not above 0 and at most {LARGEST_RATIO:g}"
