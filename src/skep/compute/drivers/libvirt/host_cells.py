"""The inside of a host: NUMA cells with their CPUs and pages, as libvirt's capabilities say it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.options import Options
from skep.domain.providers import NumaCell, Provider, Topology


class HostCell(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA cell of a host."""

    number: int
    shared: tuple[int, ...]
    """CPUs on which unpinned guests float."""
    cores: tuple[tuple[int, ...], ...] = ()
    """CPUs that may be pinned, threads of one core together."""
    socket: int = 0
    pages: tuple[tuple[int, int], ...] = ()
    """Sizes in KiB and how many there are, the smallest first: these are ordinary memory."""
    threads: int = 1
    """Of a core, at most."""

    @property
    def small(self) -> int:
        """The size of ordinary pages in KiB."""
        return self.pages[0][0] if self.pages else 0


@functools.lru_cache(maxsize=4)
def host_cells(capabilities: str, options: Options) -> tuple[HostCell, ...]:
    """Return the cells of a host; none where libvirt knows of none.

    Raises DriverError `HypervisorUnavailable` for an option that names a CPU which is not there.
    """
    root = ET.fromstring(capabilities)  # noqa: S314 - of libvirt
    cells = tuple(_cell(element, options) for element in root.findall("host/topology/cells/cell"))
    there = {cpu for cell in root.findall("host/topology/cells/cell") for cpu in _online(cell)}
    for name, named in (("cpu_shared_set", options.shared_cpus), ("cpu_dedicated_set", options.dedicated_cpus)):
        absent = sorted(named - there)
        if absent:
            raise DriverError("HypervisorUnavailable", f"{name}: the host has no CPU {absent[0]}")
    return cells


def topology(cells: tuple[HostCell, ...], devices: tuple[Provider, ...] = ()) -> Topology | None:
    """Return the cells as schedulers know them, with pools of devices."""
    if not cells and not devices:
        return None
    return Topology(
        providers=devices,
        cells=tuple(
            NumaCell(
                number=cell.number,
                cores=cell.cores,
                shared_cpus=len(cell.shared),
                pages=dict(cell.pages),
                socket=cell.socket,
            )
            for cell in cells
        ),
    )


def _cell(element: ET.Element, options: Options) -> HostCell:
    online = _online(element)
    dedicated = options.dedicated_cpus & online.keys()
    # Without any set all CPUs are shared; with the other one alone, none is.
    shared = options.shared_cpus if options.shared_cpus or options.dedicated_cpus else frozenset(online)
    by_core: dict[tuple[str, ...], list[int]] = {}
    for cpu, core in sorted(online.items()):
        by_core.setdefault(core, []).append(cpu)
    cores = (tuple(cpu for cpu in core if cpu in dedicated) for core in by_core.values())
    sockets = [int(core[0]) for core in by_core]
    return HostCell(
        number=int(element.get("id", "0")),
        shared=tuple(sorted(shared & online.keys())),
        cores=tuple(core for core in cores if core),
        socket=min(sockets, default=0),
        pages=tuple(sorted(_pages(element))),
        threads=max(map(len, by_core.values()), default=1),
    )


def _online(cell: ET.Element) -> dict[int, tuple[str, ...]]:
    """Return of each CPU that is on the core that it is a thread of. Of one that is off, libvirt knows no core."""
    return {
        int(cpu.get("id", "0")): (cpu.get("socket_id", "0"), cpu.get("die_id", "0"), cpu.get("core_id", "0"))
        for cpu in cell.findall("cpus/cpu")
        if cpu.get("core_id") is not None
    }


def _pages(cell: ET.Element) -> Iterator[tuple[int, int]]:
    """Yield the pages of a cell; sizes of which it has none are left out, but for the smallest."""
    found = sorted((int(pages.get("size", "0")), int(pages.text or "0")) for pages in cell.findall("pages"))
    for number, (size, count) in enumerate(found):
        if count or not number:
            yield size, count
