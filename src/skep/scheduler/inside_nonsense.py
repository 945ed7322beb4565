"""What makes a report of the inside of a host nonsense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skep.domain.hosts import HostUsage
from skep.domain.nested.cpu_sets import MOST_CPUS
from skep.domain.providers import Allocation, NumaCell, Provider
from skep.domain.resources import Inventory

MOST = 2**31 - 1
"""Placement's largest amount."""
MOST_CELLS = 64
MOST_PROVIDERS = 1_000
MOST_DEVICES = 4_096
"""Of one provider."""
MOST_SIZES = 16
LONGEST_NAME = 255


def inside_faults(usage: HostUsage) -> Iterator[str]:
    """Give what is wrong, each beginning with the field's name. Names of classes and traits are not looked at."""
    topology = usage.topology
    if topology is not None:
        if len(topology.cells) > MOST_CELLS or len(topology.providers) > MOST_PROVIDERS:
            yield f"usage.topology: more than {MOST_CELLS} cells or {MOST_PROVIDERS} providers"
            return
        yield from _cell_faults(topology.cells)
        yield from _provider_faults(topology.providers)
    if usage.taken is not None:
        yield from _taken_faults(usage.taken)


def inside_names(usage: HostUsage) -> tuple[set[str], set[str]]:
    """Return the classes and traits that nested providers name."""
    providers = usage.topology.providers if usage.topology is not None else ()
    return {name for one in providers for name in one.inventory}, {name for one in providers for name in one.traits}


def nested_inventories(usage: HostUsage) -> Iterator[tuple[str, Inventory]]:
    """Give the inventories of nested providers, with their fields."""
    for one in usage.topology.providers if usage.topology is not None else ():
        for name, inventory in one.inventory.items():
            yield f"usage.topology.providers.{one.name[:LONGEST_NAME]}.{name}", inventory


def _cell_faults(cells: tuple[NumaCell, ...]) -> Iterator[str]:
    field = "usage.topology.cells"
    cpus = [cpu for cell in cells for core in cell.cores for cpu in core]
    if len({cell.number for cell in cells}) < len(cells):
        yield f"{field}: two have one number"
    if not _within(cpus, MOST_CPUS - 1) or len(set(cpus)) < len(cpus):
        yield f"{field}: CPUs are numbers from 0 to {MOST_CPUS - 1}, each once"
    for cell in cells:
        if not _within((cell.number, cell.shared_cpus, abs(cell.socket), *cell.pages.values()), MOST):
            yield f"{field}: a number is not within 0 and {MOST}"
        if len(cell.pages) > MOST_SIZES or not all(1 <= size <= MOST for size in cell.pages):
            yield f"{field}: at most {MOST_SIZES} sizes of pages, from 1 to {MOST} KiB"


def _provider_faults(providers: tuple[Provider, ...]) -> Iterator[str]:
    field = "usage.topology.providers"
    if len({one.name for one in providers}) < len(providers):
        yield f"{field}: two have one name"
    for one in providers:
        if not 1 <= len(one.name) <= LONGEST_NAME or not one.inventory:
            yield f"{field}: each has a name of 1 to {LONGEST_NAME} characters and an inventory"
        if len(one.devices) > MOST_DEVICES or len(set(one.devices)) < len(one.devices):
            yield f"{field}: at most {MOST_DEVICES} devices, each once"


def _taken_faults(taken: Allocation) -> Iterator[str]:
    for share in taken.cells:
        if not _within(share.cpus, MOST_CPUS - 1) or not _within(
            (share.shared, share.memory_mb, *share.pages.values()), 2**53 - 1
        ):
            yield "usage.taken.cells: a number is out of its bounds"
    for held in taken.providers:
        if not _within(held.resources.values(), MOST):
            yield f"usage.taken.providers: an amount is not within 0 and {MOST}"


def _within(numbers: Iterable[int], most: int) -> bool:
    return all(0 <= number <= most for number in numbers)
