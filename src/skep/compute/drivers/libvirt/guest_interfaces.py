"""The interfaces of guests that end on their host, and their XML. Pure."""

from __future__ import annotations

from typing import TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.bridged.interfaces import Bandwidth, TapInterface
from skep.domain.vifs import Vif

TAP = "ethernet"
"""libvirt's type of interfaces that end in a tap which others have made."""


class LinkInterface(msgspec.Struct, frozen=True, kw_only=True):
    """A link of its guest's own (macvtap), on a link of the host. It has the MTU of that."""

    link: str
    mode: str
    mac: str
    model: str
    packed: bool = False
    bandwidth: Bandwidth = ()


class SocketInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The socket of a switch in user space, to which QEMU speaks (vhost-user). What goes through it is in the memory of
    the guest, which the switch sees."""

    path: str
    mode: str
    """`server`: QEMU listens, `client`: the switch does."""
    mac: str
    model: str
    queues: int = 1


GuestInterface: TypeAlias = TapInterface | LinkInterface | SocketInterface


def add_interface(devices: ET.Element, one: GuestInterface) -> None:
    """Add the element of an interface."""
    if isinstance(one, TapInterface):
        _add_tap(devices, one)
    elif isinstance(one, LinkInterface):
        _add_link(devices, one)
    else:
        _add_socket(devices, one)


def interface_element(one: GuestInterface) -> str:
    """Return the element of an interface, to be given to a guest that is there."""
    devices = ET.Element("devices")
    add_interface(devices, one)
    return ET.tostring(devices[0], encoding="unicode")


def found_interface(domain: str, vif: Vif) -> ET.Element | None:
    """Return the element of an interface in the XML of a domain; None: the domain has it not."""
    for element in interfaces_of(domain):
        address, target = element.find("mac"), element.find("target")
        device = None if target is None else target.get("dev")
        is_same = address is not None and address.get("address", "").lower() == vif.mac_address.lower()
        if is_same and (element.get("type") != TAP or device == vif.device_name):
            return element
    return None


def interfaces_of(domain: str) -> list[ET.Element]:
    """Return the interfaces in the XML of a domain; those that end inside QEMU are none of libvirt's."""
    return ET.fromstring(domain).findall("devices/interface")  # noqa: S314 - of libvirt


def shares_memory(domain: str) -> bool:
    """Tell whether the memory of a domain is shared with other processes (`add_shared_memory`)."""
    access = ET.fromstring(domain).find("memoryBacking/access")  # noqa: S314 - of libvirt
    return access is not None and access.get("mode") == "shared"


def add_shared_memory(root: ET.Element) -> None:
    """Have the memory of a guest shared with other processes of the host that it hands it to."""
    backing = root.find("memoryBacking")
    if backing is None:
        backing = ET.SubElement(root, "memoryBacking")
    if backing.find("hugepages") is None:
        ET.SubElement(backing, "source", type="memfd")
    ET.SubElement(backing, "access", mode="shared")


def _interface(devices: ET.Element, kind: str, mac: str) -> ET.Element:
    element = ET.SubElement(devices, "interface", type=kind)
    ET.SubElement(element, "mac", address=mac)
    return element


def _add_driver(element: ET.Element, model: str, *, packed: bool = False, queues: int = 1) -> None:
    ET.SubElement(element, "model", type=model)
    said = {**({"queues": str(queues)} if queues > 1 else {}), **({"packed": "on"} if packed else {})}
    if said:
        ET.SubElement(element, "driver", said)


def _add_bandwidth(element: ET.Element, bandwidth: Bandwidth) -> None:
    if bandwidth:
        bounds = ET.SubElement(element, "bandwidth")
        for direction, amounts in bandwidth:
            ET.SubElement(bounds, direction, {name: str(amount) for name, amount in amounts})


def _add_tap(devices: ET.Element, tap: TapInterface) -> None:
    """Add an interface that ends in a link which is there before the guest is."""
    element = _interface(devices, TAP, tap.mac)
    ET.SubElement(element, "target", dev=tap.device, managed="no")
    _add_driver(element, tap.model, packed=tap.packed, queues=tap.queues)
    _add_bandwidth(element, tap.bandwidth)
    ET.SubElement(element, "mtu", size=str(tap.mtu))
    # No guest boots from its network.
    ET.SubElement(element, "rom", enabled="no")


def _add_link(devices: ET.Element, one: LinkInterface) -> None:
    element = _interface(devices, "direct", one.mac)
    ET.SubElement(element, "source", dev=one.link, mode=one.mode)
    _add_driver(element, one.model, packed=one.packed)
    _add_bandwidth(element, one.bandwidth)
    ET.SubElement(element, "rom", enabled="no")


def _add_socket(devices: ET.Element, one: SocketInterface) -> None:
    element = _interface(devices, "vhostuser", one.mac)
    ET.SubElement(element, "source", type="unix", path=one.path, mode=one.mode)
    _add_driver(element, one.model, queues=one.queues)
    ET.SubElement(element, "rom", enabled="no")
