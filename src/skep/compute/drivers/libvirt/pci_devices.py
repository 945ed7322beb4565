"""PCI devices of a host that guests may have for themselves: found by the kernel's files, handed over by VFIO."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.options import PciDevices
from skep.domain.nested.wanted import DeviceMatch, match_class
from skep.domain.providers import Allocation, Provider
from skep.domain.resources import Inventory

DEVICES = Path("/sys/bus/pci/devices")
BRIDGE = "0x06"
"""How the class of bridges begins: they belong to the machine."""
ADDRESS = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device."""

    address: str
    vendor_id: str
    product_id: str
    dev_type: str
    """`type-PCI`, `type-PF` or `type-VF`."""
    numa: int | None


def pci_devices(root: Path = DEVICES) -> tuple[PciDevice, ...]:
    """Return the devices of the host but for bridges, by their addresses. Raises OSError."""
    places = sorted(root.iterdir()) if root.exists() else ()
    return tuple(_device(path) for path in places if not (path / "class").read_text().startswith(BRIDGE))


def pools(offered: Sequence[PciDevices], devices: Sequence[PciDevice]) -> tuple[Provider, ...]:
    """Return the devices that are offered; those that are alike together. The first entry that fits a device counts."""
    alike: dict[bytes, tuple[Provider, list[str]]] = {}
    for device in devices:
        entry = next((one for one in offered if _fits(one, device)), None)
        if entry is not None:
            pool = _pool(entry, device)
            alike.setdefault(msgspec.msgpack.encode(pool), (pool, []))[1].append(device.address)
    return tuple(
        msgspec.structs.replace(
            pool,
            devices=tuple(addresses),
            inventory={name: Inventory(total=len(addresses)) for name in pool.inventory},
        )
        for pool, addresses in alike.values()
    )


def inventory(providers: Sequence[Provider]) -> dict[str, Inventory]:
    """Return how many devices there are of each class."""
    totals: dict[str, int] = {}
    for provider in providers:
        for name, one in provider.inventory.items():
            totals[name] = totals.get(name, 0) + one.total
    return {name: Inventory(total=total) for name, total in totals.items()}


def held_devices(allocation: Allocation | None) -> tuple[str, ...]:
    """Return the addresses of the devices that a guest was given."""
    shares = () if allocation is None else allocation.providers
    return tuple(address for share in shares for address in share.devices if ADDRESS.fullmatch(address))


def add_host_devices(devices: ET.Element, addresses: Sequence[str]) -> None:
    """Add devices of the host: libvirt takes them from their drivers when the guest starts, and gives them back."""
    for address in addresses:
        element = ET.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
        source = ET.SubElement(ET.SubElement(element, "source"), "address")
        found = ADDRESS.fullmatch(address)
        assert found is not None
        for name, part in zip(("domain", "bus", "slot", "function"), found.groups(), strict=True):
            source.set(name, f"0x{part}")


def _device(path: Path) -> PciDevice:
    numa = path / "numa_node"
    cell = int(numa.read_text()) if numa.exists() else -1
    return PciDevice(
        address=path.name,
        vendor_id=_number(path / "vendor"),
        product_id=_number(path / "device"),
        dev_type="type-VF" if (path / "physfn").exists() else _own_type(path),
        numa=None if cell < 0 else cell,
    )


def _own_type(path: Path) -> str:
    """Return whether a device can be split."""
    functions = path / "sriov_totalvfs"
    return "type-PF" if functions.exists() and int(functions.read_text()) else "type-PCI"


def _number(path: Path) -> str:
    return path.read_text().strip().removeprefix("0x")


def _fits(entry: PciDevices, device: PciDevice) -> bool:
    return (
        entry.vendor_id.lower() in ("", device.vendor_id)
        and entry.product_id.lower() in ("", device.product_id)
        and fnmatchcase(device.address, entry.address.lower())
    )


def _pool(entry: PciDevices, device: PciDevice) -> Provider:
    match = DeviceMatch(vendor_id=device.vendor_id, product_id=device.product_id, resource_class=entry.resource_class)
    resource_class = match_class(match)
    # Guests hold parts of it by its name: it is the same whatever other devices there are.
    said = ",".join((resource_class, *sorted(entry.traits)))
    cell = "" if device.numa is None else f"-cell{device.numa}"
    kind = f"{device.vendor_id}-{device.product_id}-{device.dev_type}"
    return Provider(
        name=f"pci-{kind}{cell}-{zlib.crc32(said.encode()):08x}",
        inventory={resource_class: Inventory(total=1)},
        traits=entry.traits,
        numa=device.numa,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        dev_type=device.dev_type,
    )
