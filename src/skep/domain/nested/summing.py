"""The sum of what several servers hold."""

from __future__ import annotations

from collections.abc import Iterable

from skep.domain.providers import Allocation, CellShare, ProviderShare
from skep.domain.resources import Resources, add


def total(allocations: Iterable[Allocation]) -> Allocation:
    """Return all that is held, cells and providers in ascending order."""
    cells: dict[int, CellShare] = {}
    amounts: dict[str, Resources] = {}
    devices: dict[str, set[str]] = {}
    for one in allocations:
        for share in one.cells:
            known = cells.get(share.cell)
            cells[share.cell] = share if known is None else _both(known, share)
        for held in one.providers:
            amounts[held.provider] = add(amounts.get(held.provider, {}), held.resources)
            devices.setdefault(held.provider, set()).update(held.devices)
    return Allocation(
        cells=tuple(share for _, share in sorted(cells.items())),
        providers=tuple(
            ProviderShare(provider=name, resources=resources, devices=tuple(sorted(devices[name])))
            for name, resources in sorted(amounts.items())
        ),
    )


def _both(one: CellShare, other: CellShare) -> CellShare:
    pages = dict(one.pages)
    for size, count in other.pages.items():
        pages[size] = pages.get(size, 0) + count
    return CellShare(
        cell=one.cell,
        cpus=tuple(sorted({*one.cpus, *other.cpus})),
        shared=one.shared + other.shared,
        memory_mb=one.memory_mb + other.memory_mb,
        pages=pages,
    )
