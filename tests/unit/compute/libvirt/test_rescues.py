"""The rescue disk comes before a guest's own, which are as before when it is gone."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.domain import BackingFile, DiskFile, GuestLabel, GuestShape, guest_xml, label_in
from skep.compute.drivers.libvirt.rescues import with_rescue, without_rescue
from skep.domain.ids import InstanceUuid

LABEL = GuestLabel(
    instance=InstanceUuid("2f8c0a6e-7a0b-4b5c-8c0e-0d9f1c3b7a11"), attempt=3, name="a'\"<", resources={}, whole=True
)
RESCUED = msgspec.structs.replace(LABEL, rescued=True)
OWN = (
    DiskFile(path="/disk", format="qcow2", backing=BackingFile(path="/base.raw", format="raw")),
    DiskFile(path="/swap", format="raw"),
    DiskFile(path="/config.iso", format="raw", bus="ide", cdrom=True),
)
DISK = DiskFile(path="/rescue", format="qcow2", backing=BackingFile(path="/rescue.raw", format="raw"))
XML = guest_xml(
    GuestShape(
        label=LABEL, vcpus=1, memory_mb=64, virt_type="qemu", machine="pc", disks=OWN, console_file="/console.log"
    )
)


def disks(xml: str) -> list[tuple[str | None, str | None]]:
    found = []
    for disk in ET.fromstring(xml).findall("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        assert source is not None
        assert target is not None
        found.append((target.get("dev"), source.get("file")))
    return found


def test_it_is_the_first_disk_and_gone_again() -> None:
    rescued = with_rescue(XML, RESCUED, DISK)
    assert disks(rescued) == [("vda", "/rescue"), ("vdb", "/disk"), ("vdc", "/swap"), ("hda", "/config.iso")]
    assert label_in(rescued) == RESCUED
    again = without_rescue(rescued, LABEL, "/rescue")
    assert disks(again) == disks(XML)
    assert label_in(again) == LABEL


def test_a_new_rescue_takes_the_place_of_another() -> None:
    twice = with_rescue(with_rescue(XML, RESCUED, DISK), RESCUED, DISK)
    assert disks(twice) == disks(with_rescue(XML, RESCUED, DISK))


def test_the_places_of_disks_are_given_anew() -> None:
    root = ET.fromstring(XML)
    for disk in root.findall("devices/disk"):
        ET.SubElement(disk, "address", type="pci", slot="0x05")
        ET.SubElement(disk, "alias", name="virtio-disk0")
    changed = ET.fromstring(with_rescue(ET.tostring(root, encoding="unicode"), RESCUED, DISK))
    assert changed.findall("devices/disk/address") == changed.findall("devices/disk/alias") == []


def test_a_guest_without_disks_gets_one() -> None:
    root = ET.fromstring(XML)
    devices = root.find("devices")
    assert devices is not None
    for disk in devices.findall("disk"):
        devices.remove(disk)
    assert disks(with_rescue(ET.tostring(root, encoding="unicode"), RESCUED, DISK)) == [("vda", "/rescue")]
