"""What a server asks of the inside of a host, worked out from its flavor, its image and its device aliases."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from skep.domain.resources import Resources

GROUP_POLICY = "group_policy"
"""The extra spec that says whether groups may share a provider; it asks nothing of a host's attributes."""

ThreadPolicy = Literal["prefer", "isolate", "require"]
Affinity = Literal["legacy", "preferred", "required", "socket"]
"""How near devices must be to the guest's NUMA cells (Nova's `hw:pci_numa_affinity_policy`)."""


class PageKind(enum.IntEnum):
    """A page size that is not named in KiB."""

    UNSAID = 0
    """No page size is asked for: memory is counted in MiB, with the host's ratio."""
    SMALL = -1
    LARGE = -2
    ANY = -3


class GuestCell(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA cell of the guest."""

    shared: int
    """CPUs that float."""
    dedicated: int
    """CPUs that are pinned."""
    memory_mb: int


class NumaWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA cells of the guest; each goes to another cell of the host."""

    cells: tuple[GuestCell, ...]
    threads: ThreadPolicy = "prefer"
    page: int = PageKind.UNSAID
    """Page size in KiB, or a `PageKind`."""
    own_emulator: bool = False
    """Whether the emulator's threads get a pinned CPU of their own, beside the guest's first cell."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that must come from one provider, and the traits that it must have."""

    name: str
    """What follows `resources` and `trait` in the extra specs."""
    resources: tuple[tuple[str, int], ...]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    any_of: tuple[tuple[str, ...], ...] = ()
    """Of each of these at least one trait."""
    of_port: bool = False
    """Whether a port of a network asks for it: only a provider that has a UUID serves it, for the network service is
    told which one did. `name` is then the group's id, or the port's where its groups have none."""


class PortsWanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ports of a server ask of its host (Neutron's `resource_request`)."""

    groups: tuple[Group, ...] = ()
    same_subtree: tuple[tuple[str, ...], ...] = ()
    """Names of groups: of the providers that serve those of one set, one holds all the others."""


class DeviceMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices an alias means; what is empty is not looked at."""

    vendor_id: str = ""
    product_id: str = ""
    device_type: str = ""
    resource_class: str = ""
    traits: tuple[str, ...] = ()
    physical_network: str = ""


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """So many devices of one alias. It stands in the RequestSpec: later changes of the alias do not reach it."""

    alias: str
    count: int
    matches: tuple[DeviceMatch, ...]
    """Any of these will do."""
    affinity: Affinity = "legacy"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """All that a server asks of the inside of a host. Hashable: requests that are alike are equal."""

    numa: NumaWanted | None = None
    loose: tuple[tuple[str, int], ...] = ()
    """Of the unnumbered group: amounts by class, each class from any one provider."""
    groups: tuple[Group, ...] = ()
    isolated: bool = False
    """Whether no two groups may have the same provider (`group_policy=isolate`)."""
    devices: tuple[DeviceRequest, ...] = ()
    ports: PortsWanted = PortsWanted()

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """The groups of the flavor, and those of ports behind them."""
        return (*self.groups, *self.ports.groups)

    def resources(self) -> Resources:
        """Return what is taken of the flat inventory beside what the flavor's own fields say."""
        amounts: Resources = {}
        for group in self.all_groups:
            for name, amount in group.resources:
                amounts[name] = amounts.get(name, 0) + amount
        for request in self.devices:
            name = request_class(request)
            if name:
                amounts[name] = amounts.get(name, 0) + request.count
        return amounts


def request_class(request: DeviceRequest) -> str:
    """Return the one resource class that all devices of a request have; empty where there may be several."""
    classes = {match_class(match) for match in request.matches}
    return classes.pop() if len(classes) == 1 else ""


def match_class(match: DeviceMatch) -> str:
    """Return the resource class that matching devices have; empty where it is not known."""
    if match.resource_class:
        return match.resource_class
    if match.vendor_id and match.product_id:
        return f"CUSTOM_PCI_{match.vendor_id}_{match.product_id}".upper()
    return ""
