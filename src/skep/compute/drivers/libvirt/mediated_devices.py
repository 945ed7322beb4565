"""Mediated devices that guests may have, as virtual GPUs: parts of a device of the host, as libvirt tells it. Pure.

Of one device one type is offered: the types share what it has, so that two could be promised twice.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.options import MediatedDevices
from skep.domain.providers import Allocation, Provider
from skep.domain.resources import Inventory

PREFIX = "mdev-"
"""How the names of their providers begin."""
API = "vfio-pci"
"""How guests see them: as PCI devices."""
PARTS = ("domain", "bus", "slot", "function")


class ParentDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of the host of which there may be parts."""

    name: str
    """In libvirt: `pci_0000_06_00_0`."""
    address: str
    """On the PCI bus: `0000:06:00.0`."""
    types: dict[str, int]
    """How many more there may be of each type now."""
    numa: int | None


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one device that guests may have."""

    provider: str
    """The name of the provider that schedulers know."""
    parent: ParentDevice
    entry: MediatedDevices

    def room(self, held: int) -> Provider:
        """Return it as schedulers know it, where guests have so many of them already."""
        total = self.parent.types[self.entry.type] + held
        return Provider(
            name=self.provider,
            inventory={self.entry.resource_class: Inventory(total=total)},
            traits=self.entry.traits,
            numa=self.parent.numa,
        )


class MediatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One that a guest has, or is about to get."""

    uuid: str
    provider: str
    parent: str
    type: str


def offers(offered: Sequence[MediatedDevices], parents: Iterable[ParentDevice]) -> tuple[Offer, ...]:
    """Return what is offered of each device: the first entry that fits it counts."""
    found = []
    for parent in sorted(parents, key=lambda one: one.name):
        entry = next((one for one in offered if _fits(one, parent)), None)
        if entry is not None:
            found.append(Offer(provider=_provider(entry, parent), parent=parent, entry=entry))
    return tuple(found)


def held_mediated(allocation: Allocation | None) -> dict[str, int]:
    """Return how many a guest was given of each provider."""
    shares = () if allocation is None else allocation.providers
    return {one.provider: sum(one.resources.values()) for one in shares if one.provider.startswith(PREFIX)}


def read_parent(described: str) -> ParentDevice | None:
    """Return the device in the XML of a node device; None: guests would not see parts of it as PCI devices."""
    root = ET.fromstring(described)  # noqa: S314 - of libvirt
    of_bus = root.find("capability[@type='pci']")
    if of_bus is None:
        return None
    numa = of_bus.find("numa")
    domain, bus, slot, function = (int(of_bus.findtext(part, "0")) for part in PARTS)
    return ParentDevice(
        name=root.findtext("name", ""),
        address=f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}",
        types=dict(_types(of_bus)),
        numa=None if numa is None or int(numa.get("node", "-1")) < 0 else int(numa.get("node", "-1")),
    )


def read_uuid(described: str) -> str:
    """Return the UUID of the mediated device in the XML of a node device."""
    return ET.fromstring(described).findtext("capability[@type='mdev']/uuid", "")  # noqa: S314 - of libvirt


def device_xml(device: MediatedDevice) -> str:
    """Return the XML by which libvirt makes one."""
    root = ET.Element("device")
    ET.SubElement(root, "parent").text = device.parent
    capability = ET.SubElement(root, "capability", type="mdev")
    ET.SubElement(capability, "type", id=device.type)
    ET.SubElement(capability, "uuid").text = device.uuid
    return ET.tostring(root, encoding="unicode")


def add_mediated_devices(devices: ET.Element, uuids: Sequence[str]) -> None:
    """Add mediated devices to those of a guest."""
    for uuid in uuids:
        element = ET.SubElement(devices, "hostdev", mode="subsystem", type="mdev", model=API)
        ET.SubElement(ET.SubElement(element, "source"), "address", uuid=uuid)


def _types(of_bus: ET.Element) -> Iterator[tuple[str, int]]:
    for one in of_bus.findall("capability[@type='mdev_types']/type"):
        if one.findtext("deviceAPI") == API:
            yield one.get("id", ""), int(one.findtext("availableInstances", "0"))


def _fits(entry: MediatedDevices, parent: ParentDevice) -> bool:
    return entry.type in parent.types and fnmatchcase(parent.address, entry.address.lower())


def _provider(entry: MediatedDevices, parent: ParentDevice) -> str:
    # Guests hold parts of it by its name, which goes when they would be counted as something else.
    said = ",".join((entry.resource_class, *sorted(entry.traits)))
    return f"{PREFIX}{parent.address}-{entry.type}-{zlib.crc32(said.encode()):08x}"
