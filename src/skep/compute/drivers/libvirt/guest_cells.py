"""The NUMA cells and pinned CPUs of a guest, from what the scheduler gave it to the elements in the XML. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.host_cells import HostCell
from skep.compute.drivers.libvirt.options import VirtType
from skep.domain.errors import BadRequest
from skep.domain.instances import Instance
from skep.domain.nested.numa_reading import guest_cpus
from skep.domain.providers import Allocation, CellShare

KIB_PER_MIB = 1024


class CellPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA cell of a guest, and where it is."""

    cpus: tuple[int, ...]
    """Of the guest."""
    memory_mb: int
    host: int
    """The cell of the host."""
    page_kib: int = 0
    """The size of its pages; 0: they are ordinary ones."""
    pins: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """CPUs of the guest, and those of the host on which each runs."""


class GuestPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a guest is in its host."""

    cells: tuple[CellPlace, ...] = ()
    cpus: tuple[int, ...] = ()
    """On which CPUs of the host all of it runs, where single ones are not pinned; empty: on any."""
    emulator: tuple[int, ...] = ()
    """Those of QEMU's own threads, where they are pinned."""


ANYWHERE = GuestPlace()


def guest_place(
    instance: Instance, allocation: Allocation | None, host: Sequence[HostCell], virt_type: VirtType, *, confined: bool
) -> GuestPlace:
    """Return where a guest is. `confined`: those that ask for no cells have the shared CPUs of the host alone.

    In software single CPUs cannot be pinned: such a guest runs on the shared CPUs of its cells. Raises DriverError
    where the allocation is not what flavor and image ask for, or the host has no such cell.
    """
    try:
        wanted = guest_cpus(instance.flavor, {} if instance.image is None else instance.image.properties)
    except BadRequest as error:
        raise DriverError("InstanceUnacceptable", str(error)) from error
    if wanted is None:
        return GuestPlace(cpus=tuple(sorted(cpu for cell in host for cpu in cell.shared)) if confined else ())
    shares = () if allocation is None else allocation.cells
    if len(shares) != len(wanted):
        raise DriverError("ComputeResourcesUnavailable", f"{len(wanted)} NUMA cells, and {len(shares)} were allocated")
    by_number = {cell.number: cell for cell in host}
    places: list[CellPlace] = []
    emulator: list[int] = []
    for (cpus, pinned), share in zip(wanted, shares, strict=True):
        if share.cell not in by_number:
            raise DriverError("ComputeResourcesUnavailable", f"the host has no NUMA cell {share.cell}")
        emulator += share.cpus[len(pinned) :]
        places.append(_place(cpus, pinned, share, by_number[share.cell]))
    used = tuple(sorted({cpu for place in places for _, cpus in place.pins for cpu in cpus}))
    if virt_type == "kvm":
        return GuestPlace(cells=tuple(places), emulator=tuple(emulator) or used)
    return GuestPlace(cells=tuple(msgspec.structs.replace(place, pins=()) for place in places), cpus=used)


def add_place(root: ET.Element, cpu: ET.Element, place: GuestPlace) -> None:
    """Add where a guest is: cells, their memory, and pinned CPUs."""
    if any(place_of.pins for place_of in place.cells):
        tune = ET.SubElement(root, "cputune")
        for number, cpus in sorted(pin for one in place.cells for pin in one.pins):
            ET.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=cpu_list(cpus))
        if place.emulator:
            ET.SubElement(tune, "emulatorpin", cpuset=cpu_list(place.emulator))
    if not place.cells:
        return
    numa, tune = ET.SubElement(cpu, "numa"), ET.SubElement(root, "numatune")
    ET.SubElement(tune, "memory", mode="strict", nodeset=cpu_list(sorted({one.host for one in place.cells})))
    for number, one in enumerate(place.cells):
        cell = ET.SubElement(numa, "cell", id=str(number), cpus=cpu_list(one.cpus), unit="KiB")
        cell.set("memory", str(one.memory_mb * KIB_PER_MIB))
        ET.SubElement(tune, "memnode", cellid=str(number), mode="strict", nodeset=str(one.host))
    huge = [(number, one.page_kib) for number, one in enumerate(place.cells) if one.page_kib]
    if huge:
        pages = ET.SubElement(ET.SubElement(root, "memoryBacking"), "hugepages")
        for number, size in huge:
            ET.SubElement(pages, "page", size=str(size), unit="KiB", nodeset=str(number))


def cpu_list(numbers: Collection[int]) -> str:
    """Return numbers as libvirt reads them."""
    return ",".join(map(str, numbers))


def _place(cpus: Sequence[int], pinned: frozenset[int], share: CellShare, cell: HostCell) -> CellPlace:
    if len(share.cpus) < len(pinned):
        raise DriverError("ComputeResourcesUnavailable", f"{len(pinned)} pinned CPUs, and not as many were allocated")
    sizes = {size: count for size, count in share.pages.items() if count}
    memory_kib = sum(size * count for size, count in sizes.items()) or share.memory_mb * KIB_PER_MIB
    size = next(iter(sizes), 0)
    return CellPlace(
        cpus=tuple(cpus),
        memory_mb=memory_kib // KIB_PER_MIB,
        host=share.cell,
        page_kib=0 if size == cell.small else size,
        pins=tuple(_pins(cpus, pinned, share, cell)),
    )


def _pins(
    cpus: Sequence[int], pinned: frozenset[int], share: CellShare, cell: HostCell
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Give each CPU of a cell those of the host: a pinned one its own, any other those that are shared in the cell."""
    own = iter(share.cpus)
    for number in sorted(cpus):
        yield number, ((next(own),) if number in pinned else cell.shared)
