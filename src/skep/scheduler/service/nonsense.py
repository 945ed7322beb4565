"""What makes a host's report nonsense. Nonsense is refused by name and never reaches the columns."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator

import os_resource_classes

from skep.domain.hosts import HostUsage
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import HostReport

MOST = 2**31 - 1
"""Placement's largest amount."""
LARGEST_RATIO = 10_000.0
MOST_TRAITS = 2_000
MOST_CLASSES = 500
LONGEST_NAME = 255

_STANDARD = frozenset(os_resource_classes.STANDARDS)
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_TRAIT = re.compile(r"[A-Z0-9_]{1,255}")


def nonsense(report: HostReport) -> str | None:
    """Return what is wrong with a report, beginning with the field's name; None if it makes sense."""
    return next(_faults(report), None)


def _faults(report: HostReport) -> Iterator[str]:
    usage = report.usage
    for name, text in (("node", report.node), ("cell", report.cell), ("usage.host", usage.host)):
        if not 0 < len(text) <= LONGEST_NAME:
            yield f"{name}: must have 1 to {LONGEST_NAME} characters"
    counters = (
        ("incarnation", report.incarnation, 2**63 - 1),
        ("seq", report.seq, 2**63 - 1),
        ("usage.failed_builds", usage.failed_builds, MOST),
        ("usage.servers", usage.servers, MOST),
    )
    for name, number, most in counters:
        if not 0 <= number <= most:
            yield f"{name}: {number} is not within 0 and {most}"
    yield from _resource_faults(usage)
    if len(usage.traits) > MOST_TRAITS:
        yield f"usage.traits: more than {MOST_TRAITS}"
    for trait in usage.traits:
        if not _is_trait(trait):
            yield f"usage.traits: {trait[:LONGEST_NAME]!r} is not a trait's name"


@functools.lru_cache(maxsize=4096)
def _is_trait(name: str) -> bool:
    return _TRAIT.fullmatch(name) is not None


def _resource_faults(usage: HostUsage) -> Iterator[str]:
    if not usage.inventory:
        yield "usage.inventory: missing"
    if usage.servers > 0 and not usage.used:
        yield f"usage.used: missing, with {usage.servers} servers on the host"
    if len(usage.inventory) + len(usage.used) > MOST_CLASSES:
        yield f"usage.inventory: more than {MOST_CLASSES} resource classes"
    for name, inventory in usage.inventory.items():
        yield from _class_faults(f"usage.inventory.{name}", name)
        yield from _inventory_faults(f"usage.inventory.{name}", inventory)
    for name, amount in usage.used.items():
        yield from _class_faults(f"usage.used.{name}", name)
        if not 0 <= amount <= MOST:
            yield f"usage.used.{name}: {amount} is not within 0 and {MOST}"


def _class_faults(field: str, name: str) -> Iterator[str]:
    if name not in _STANDARD and not _CUSTOM.fullmatch(name):
        yield f"{field[:LONGEST_NAME]}: neither a standard resource class nor CUSTOM_ and capital letters, digits, _"


def _inventory_faults(field: str, inventory: Inventory) -> Iterator[str]:
    if not 0 <= inventory.total <= MOST:
        yield f"{field}.total: {inventory.total} is not within 0 and {MOST}"
    if not 0 <= inventory.reserved <= MOST:
        yield f"{field}.reserved: {inventory.reserved} is not within 0 and {MOST}"
    ratio = inventory.allocation_ratio
    if not math.isfinite(ratio) or not 0 < ratio <= LARGEST_RATIO:
        yield f"{field}.allocation_ratio: {ratio} is not above 0 and at most {LARGEST_RATIO:g}"
