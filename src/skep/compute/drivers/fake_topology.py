"""The inside that a `fake` host pretends to have: NUMA cells, pinnable CPUs, huge pages and devices."""

from __future__ import annotations

import msgspec

from skep.domain.nested.wanted import DeviceMatch, match_class
from skep.domain.providers import NumaCell, Provider, Topology
from skep.domain.resources import Inventory

SMALL_KIB = 4
HUGE_KIB = 2048


class FakeDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that are alike. With a vendor and a product they are PCI devices with addresses, else only counted."""

    count: int
    """Units of each host, spread over its NUMA cells."""
    resource_class: str = ""
    """Empty: named after vendor and product."""
    vendor_id: str = ""
    product_id: str = ""
    dev_type: str = "type-PCI"
    traits: tuple[str, ...] = ()


class FakeTopology(msgspec.Struct, frozen=True, kw_only=True):
    """What the inside of a host is like."""

    cells: int = 1
    dedicated_cpus: int = 0
    """Of the host's CPUs so many may be pinned; the others are shared."""
    threads: int = 1
    """Of each core."""
    huge_mb: int = 0
    """Of the host's memory so much is in pages of 2 MiB."""
    devices: tuple[FakeDevices, ...] = ()


def topology(inside: FakeTopology, cpus: int, memory_mb: int) -> Topology:
    """Return the cells and device pools of a host with so many CPUs and MiB."""
    return Topology(
        cells=tuple(_cell(inside, number, cpus, memory_mb) for number in range(inside.cells)),
        providers=tuple(
            _pool(kind, index, number, _share(kind.count, number, inside.cells))
            for index, kind in enumerate(inside.devices)
            for number in range(inside.cells)
            if _share(kind.count, number, inside.cells)
        ),
    )


def inventory(inside: FakeTopology, cpus: int) -> dict[str, Inventory]:
    """Return what of the flat inventory follows from the inside: CPUs of both kinds, and devices."""
    amounts = {"VCPU": cpus - inside.dedicated_cpus}
    if inside.dedicated_cpus:
        amounts["PCPU"] = inside.dedicated_cpus
    for kind in inside.devices:
        name = _class(kind)
        amounts[name] = amounts.get(name, 0) + kind.count
    return {name: Inventory(total=total) for name, total in amounts.items()}


def _class(kind: FakeDevices) -> str:
    return match_class(
        DeviceMatch(vendor_id=kind.vendor_id, product_id=kind.product_id, resource_class=kind.resource_class)
    )


def _share(total: int, number: int, cells: int) -> int:
    """Return the part of one cell; the first ones get what is left over."""
    return total // cells + (number < total % cells)


def _cell(inside: FakeTopology, number: int, cpus: int, memory_mb: int) -> NumaCell:
    first = sum(_share(inside.dedicated_cpus, before, inside.cells) for before in range(number))
    pinned = range(first, first + _share(inside.dedicated_cpus, number, inside.cells))
    cores = tuple(tuple(pinned[start : start + inside.threads]) for start in range(0, len(pinned), inside.threads))
    huge = _share(inside.huge_mb // 2, number, inside.cells)
    small_mb = _share(memory_mb, number, inside.cells) - 2 * huge
    pages = {SMALL_KIB: small_mb * 1024 // SMALL_KIB}
    if huge:
        pages[HUGE_KIB] = huge
    shared = _share(cpus - inside.dedicated_cpus, number, inside.cells)
    return NumaCell(number=number, socket=number, cores=cores, shared_cpus=shared, pages=pages)


def _pool(kind: FakeDevices, index: int, cell: int, count: int) -> Provider:
    named = bool(kind.vendor_id)
    return Provider(
        name=f"devices{index}-cell{cell}",
        inventory={_class(kind): Inventory(total=count)},
        traits=kind.traits,
        devices=tuple(f"0000:{index:02x}:{unit:02x}.{cell % 8}" for unit in range(count)) if named else (),
        numa=cell,
        vendor_id=kind.vendor_id,
        product_id=kind.product_id,
        dev_type=kind.dev_type if named else "",
    )
