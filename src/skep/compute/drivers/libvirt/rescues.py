"""The XML of a guest with a rescue disk in front of its own, and without it again. Pure.

A rescue is told of a guest that is there, so its XML is changed and not made anew.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from skep.compute.drivers.libvirt.buses import LETTERS, NAMES
from skep.compute.drivers.libvirt.domain import (
    LABEL,
    NAMESPACE,
    DiskFile,
    GuestLabel,
    add_disk,
    label_text,
)
from skep.compute.drivers.libvirt.volume_disks import USERS_ALIAS


def with_rescue(domain: str, label: GuestLabel, disk: DiskFile) -> str:
    """Return the XML of a domain that boots from this disk; one for a former rescue is left out."""
    root = _without(domain, disk.path)
    devices = root.find("devices")
    assert devices is not None, "libvirt gives devices"
    others = devices.findall("disk")
    add_disk(devices, disk, f"{NAMES[disk.bus]}a")
    added = devices.findall("disk")[-1]
    devices.remove(added)
    first = list(devices).index(others[0]) if others else 0
    devices.insert(first, added)
    return _written(root, label)


def without_rescue(domain: str, label: GuestLabel, path: str) -> str:
    """Return the XML of a domain without the rescue disk at this path."""
    return _written(_without(domain, path), label)


def _without(domain: str, path: str) -> ET.Element:
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    devices = root.find("devices")
    assert devices is not None, "libvirt gives devices"
    for disk in devices.findall("disk"):
        source = disk.find("source")
        if source is not None and source.get("file") == path:
            devices.remove(disk)
    return root


def _written(root: ET.Element, label: GuestLabel) -> str:
    """Name the disks in their new order, let libvirt find them other places, and write the label."""
    counts: dict[str, int] = {}
    for disk in root.findall("devices/disk"):
        for gone in (*disk.findall("address"), *disk.findall("alias")):
            if not gone.get("name", "").startswith(USERS_ALIAS):
                disk.remove(gone)
        target = disk.find("target")
        assert target is not None, "libvirt gives each disk a target"
        prefix = NAMES[target.get("bus", "virtio")]
        number = counts.get(prefix, 0)
        counts[prefix] = number + 1
        target.set("dev", f"{prefix}{LETTERS[number]}")
    labelled = root.find(f"metadata/{{{NAMESPACE}}}{LABEL}")
    assert labelled is not None, "the domain is ours"
    labelled.text = label_text(label)
    return ET.tostring(root, encoding="unicode")
