"""Node devices as libvirt describes them, of a machine with devices that have parts: two cards with virtual GPUs.

This machine has none. The samples are read by the test driver of libvirt, too, which knows their schema; it makes no
mediated devices, so a twin of a connection does.
"""

from __future__ import annotations

import threading
from typing import Any
from xml.etree import ElementTree as ET

SMALL, LARGE = "nvidia-222", "nvidia-230"
ROOM = {SMALL: 4, LARGE: 2}
"""How many there may be of each type, where there are none of the others."""
OTHERS = "4b20d080-1b54-4048-85b3-a6a62d165c01"

COMPUTER = """\
<device>
  <name>computer</name>
  <capability type='system'>
    <hardware><vendor>ours</vendor><uuid>2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11</uuid></hardware>
    <firmware/>
  </capability>
</device>
"""


def card_xml(bus: int, numa: int | None, left: dict[str, int]) -> str:
    """Return the XML of a card, of which there may be so many more parts of each type."""
    types = "".join(
        f"<type id='{name}'><name>GRID</name><deviceAPI>vfio-pci</deviceAPI>"
        f"<availableInstances>{count}</availableInstances></type>"
        for name, count in left.items()
    )
    types += (
        "<type id='other'><deviceAPI>vfio-ccw</deviceAPI><availableInstances>7</availableInstances></type>"
        if left
        else ""
    )
    return f"""\
<device>
  <name>pci_0000_{bus:02x}_00_0</name>
  <path>/sys/devices/pci0000:00/0000:{bus:02x}:00.0</path>
  <parent>computer</parent>
  <capability type='pci'>
    <domain>0</domain><bus>{bus}</bus><slot>0</slot><function>0</function>
    <product id='0x1eb8'>card</product><vendor id='0x10de'>maker</vendor>
    <capability type='mdev_types'>{types}</capability>
    {"" if numa is None else f"<numa node='{numa}'/>"}
  </capability>
</device>
"""


def part_xml(parent: str, kind: str, uuid: str) -> str:
    """Return the XML of a mediated device."""
    return f"""\
<device>
  <name>mdev_{uuid.replace("-", "_")}_{parent.removeprefix("pci_")}</name>
  <path>/sys/devices/{uuid}</path>
  <parent>{parent}</parent>
  <capability type='mdev'><type id='{kind}'/><uuid>{uuid}</uuid><iommuGroup number='12'/></capability>
</device>
"""


def node_xml() -> str:
    """Return a machine for the test driver of libvirt."""
    devices = (card_xml(6, 1, ROOM), card_xml(0x81, None, ROOM), part_xml("pci_0000_06_00_0", SMALL, OTHERS))
    return f"<node>{COMPUTER}{''.join(devices)}</node>"


class NodeDevice:
    """A device of the twin."""

    def __init__(self, devices: NodeDevices, described: str, uuid: str = "") -> None:
        self._devices = devices
        self._described = described
        self._uuid = uuid

    def XMLDesc(self, _flags: int = 0) -> str:  # noqa: N802 - libvirt's name
        """Return its XML."""
        return self._described

    def destroy(self) -> None:
        """Remove it."""
        del self._devices.parts[self._uuid]


class NodeDevices:
    """A connection whose host has two cards; a card has parts of one type at a time."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[str, str]] = {}
        """By UUID: the card, and the type."""
        self.cards = {"pci_0000_06_00_0": (6, 1), "pci_0000_81_00_0": (0x81, None)}
        self._making = threading.Lock()

    def get(self) -> NodeDevices:
        """Return itself: it is what opens connections, too."""
        return self

    def listAllDevices(self, flags: int) -> list[NodeDevice]:  # noqa: N802 - libvirt's name
        """List cards, or parts."""
        import libvirt

        if flags == libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV:
            return [NodeDevice(self, part_xml(*part, uuid), uuid) for uuid, part in self.parts.items()]
        assert flags == libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
        return [NodeDevice(self, card_xml(*about, self.left(card))) for card, about in self.cards.items()]

    def left(self, card: str) -> dict[str, int]:
        """Return how many more there may be of each type."""
        kinds = [kind for parent, kind in self.parts.values() if parent == card]
        return {kind: ROOM[kind] - len(kinds) if set(kinds) <= {kind} else 0 for kind in ROOM}

    def nodeDeviceCreateXML(self, described: str, _flags: int) -> Any:  # noqa: N802 - libvirt's name
        """Make a part."""
        import libvirt

        root = ET.fromstring(described)
        kind = root.find("capability[@type='mdev']/type")
        assert kind is not None
        part = (root.findtext("parent", ""), kind.get("id", ""))
        with self._making:
            if not self.left(part[0])[part[1]]:
                raise libvirt.libvirtError("no space left on the card")
            self.parts[root.findtext("capability/uuid", "")] = part
