"""What a host has inside: NUMA cells and nested resource providers; and what of them one server holds.

The flat inventory of a host counts everything that it has. This says where in it the amounts are: which physical CPUs
may be pinned, which pages a cell has, which devices hang at which cell.
"""

from __future__ import annotations

import msgspec

from skep.domain.resources import Inventory, Resources


class NumaCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One NUMA cell of a host: the CPUs and the memory that are near to each other."""

    number: int
    cores: tuple[tuple[int, ...], ...] = ()
    """CPUs that may be pinned (class PCPU), those that are threads of one core together."""
    shared_cpus: int = 0
    """CPUs on which unpinned guests float (class VCPU)."""
    pages: dict[int, int] = {}
    """How many pages of memory by their size in KiB. The smallest are ordinary memory, all others huge pages."""
    socket: int = 0


class Provider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A nested resource provider: a pool of devices that are all alike, or anything else that is counted by itself."""

    name: str
    inventory: dict[str, Inventory]
    parent: str = ""
    """Name of the provider that holds it; empty: the host."""
    traits: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """What is handed out unit by unit (PCI addresses, say); empty where only amounts count, as with virtual GPUs."""
    numa: int | None = None
    """The NUMA cell that it hangs at; None: none, or not known."""
    vendor_id: str = ""
    product_id: str = ""
    dev_type: str = ""
    """`type-PCI`, `type-PF` or `type-VF`."""
    physical_network: str = ""
    uuid: str = ""
    """By which other services know it; empty: none does, and it serves no port of a network."""


class Topology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inside of one host. A class that any provider has is of the providers alone; all others are the host's."""

    cells: tuple[NumaCell, ...] = ()
    providers: tuple[Provider, ...] = ()


class CellShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The held parts of one NUMA cell."""

    cell: int
    cpus: tuple[int, ...] = ()
    """Pinned physical CPUs, in the order of the guest's dedicated CPUs; the emulator's comes last where it has one."""
    shared: int = 0
    """CPUs of the guest that float on the cell's shared ones."""
    memory_mb: int = 0
    """MiB for which no page size was asked."""
    pages: dict[int, int] = {}
    """How many pages by their size in KiB."""


class ProviderShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The held parts of one nested provider."""

    provider: str
    resources: Resources
    devices: tuple[str, ...] = ()


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which parts of a host one server holds. Of a whole host: the sum over all that its ledger counts."""

    cells: tuple[CellShare, ...] = ()
    """Of one server: one share for each cell of the guest, in the guest's order."""
    providers: tuple[ProviderShare, ...] = ()
    ports: dict[str, str] = {}
    """Of one server: by the groups of resources that its ports ask for, the UUID of the provider that serves each."""
