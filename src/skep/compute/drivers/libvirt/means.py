"""What the QEMU of a host can give its guests, read from what libvirt says of it. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.options import NetworksMode, Options, VirtType

ARCHITECTURE = "x86_64"
Q35 = "q35"
"""The machine with PCI Express: what needs it is looked up there."""
FAMILIES = ("pc", Q35)
"""Machines that the driver makes, beside their versions (`pc-i440fx-7.2`, `pc-q35-7.2`)."""


class HostMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a host can give, as far as hosts differ in it."""

    machines: frozenset[str] = frozenset(FAMILIES)
    uefi: bool = False
    """A firmware with UEFI is installed."""
    secure_boot: bool = False
    """One with secure boot is, for q35."""
    video_models: frozenset[str] = frozenset()
    cells: bool = False
    """It knows of its NUMA cells."""
    dedicated: bool = False
    """It has CPUs that may be pinned."""
    devices: bool = False
    """It has PCI devices that guests may have."""
    virt_type: VirtType = "qemu"
    cpu_model: str = ""
    networks: NetworksMode = "user"

    @property
    def address_modes(self) -> frozenset[str]:
        """How the width of the guest's physical addresses may be chosen: QEMU's own emulation has one width."""
        if self.virt_type != "kvm":
            return frozenset()
        return frozenset({"emulate", "passthrough"} if self.cpu_model == "host-passthrough" else {"emulate"})


def is_q35(machine: str) -> bool:
    """Tell whether a machine has PCI Express."""
    return machine == Q35 or machine.startswith(f"pc-{Q35}-")


@functools.lru_cache(maxsize=4)
def host_means(capabilities: str, of_machine: str, of_q35: str, options: Options) -> HostMeans:
    """Return what a host can give: of its capabilities, and those of guests of its default machine and of q35."""
    guests, chosen, express = (ET.fromstring(text) for text in (capabilities, of_machine, of_q35))  # noqa: S314 - of libvirt
    return HostMeans(
        machines=_machines(guests),
        uefi="efi" in _values(chosen, "os/enum[@name='firmware']"),
        secure_boot="efi" in _values(express, "os/enum[@name='firmware']")
        and "yes" in _values(express, "os/loader/enum[@name='secure']"),
        video_models=frozenset(_values(chosen, "devices/video/enum[@name='modelType']")),
        cells=guests.find("host/topology/cells/cell") is not None,
        dedicated=bool(options.dedicated_cpus),
        devices=bool(options.pci_devices),
        virt_type=options.virt_type,
        cpu_model=options.cpu_model,
        networks=options.networks,
    )


def _machines(guests: ET.Element) -> frozenset[str]:
    found = guests.findall(f"guest/arch[@name='{ARCHITECTURE}']/machine")
    names = {machine.text or "" for machine in found}
    return frozenset(name for name in names if name in FAMILIES or name.startswith("pc-"))


def _values(root: ET.Element, path: str) -> Iterable[str]:
    return {value.text or "" for value in root.findall(f"{path}/value")}
