"""The XML of a volume among the disks of a guest, made of values and found again by the id of the volume. Pure.

A guest finds a volume by its serial number, which is the id of the volume: `/dev/disk/by-id/virtio-ID`, cut to the 20
characters that virtio has. libvirt tells of a volume that was taken away by its alias.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.buses import LETTERS, NAMES, DiskBus

USERS_ALIAS = "ua-"
"""How libvirt wants aliases to begin that it has not chosen itself."""


class FileSource(msgspec.Struct, frozen=True, tag="file"):
    """A file of the host."""

    path: str


class BlockSource(msgspec.Struct, frozen=True, tag="block"):
    """A block device of the host."""

    path: str


class RbdSource(msgspec.Struct, frozen=True, tag="rbd"):
    """An image of a Ceph cluster, which QEMU itself reaches."""

    name: str
    """Pool and image, with a slash between them."""
    hosts: tuple[tuple[str, str], ...]
    """Address and port of each monitor."""
    user: str = ""
    """Empty: the cluster asks for no key."""
    secret: str = ""
    """The UUID by which libvirt has the user's key."""


Source = FileSource | BlockSource | RbdSource
_KINDS: Mapping[type[Source], str] = {FileSource: "file", BlockSource: "block", RbdSource: "network"}
"""What libvirt calls a disk of that source."""
_NAMES: Mapping[type[Source], str] = {FileSource: "file", BlockSource: "dev"}
"""What libvirt calls the path of that source."""


class VolumeDisk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One volume of a guest."""

    volume_id: str
    source: Source
    format: str = "raw"
    """Always said and never guessed, as for the files of guests."""
    bus: DiskBus = "virtio"
    direct: bool = True
    """Whether the host's cache is passed by; where the file system cannot do that, what is written is stored all the
    same as soon as the guest asks for it."""
    discard: bool = False
    """Whether what the guest does not need any more is given back to the storage."""
    readonly: bool = False
    shareable: bool = False
    """Whether other guests use it at the same time."""
    limits: Mapping[str, int] = {}
    """libvirt's names of limits, and their values."""

    @property
    def alias(self) -> str:
        """Its name in libvirt."""
        return f"{USERS_ALIAS}{self.volume_id}"


def add_volume(devices: ET.Element, disk: VolumeDisk, target: str) -> None:
    """Add the element of a volume that has this name in the guest."""
    element = ET.SubElement(devices, "disk", type=_KINDS[type(disk.source)], device="disk")
    driver = ET.SubElement(element, "driver", name="qemu", type=disk.format)
    _set_cache(driver, disk)
    if disk.discard:
        driver.set("discard", "unmap")
    _add_source(element, disk.source)
    ET.SubElement(element, "target", dev=target, bus=disk.bus)
    if disk.limits:
        limits = ET.SubElement(element, "iotune")
        for name, value in sorted(disk.limits.items()):
            ET.SubElement(limits, name).text = str(value)
    if disk.readonly:
        ET.SubElement(element, "readonly")
    if disk.shareable:
        ET.SubElement(element, "shareable")
    ET.SubElement(element, "serial").text = disk.volume_id
    ET.SubElement(element, "alias", name=disk.alias)


def volume_element(disk: VolumeDisk, target: str) -> str:
    """Return the element of a volume, to be given to a guest that is there."""
    devices = ET.Element("devices")
    add_volume(devices, disk, target)
    return ET.tostring(devices[0], encoding="unicode")


def found_volume(domain: str, volume_id: str) -> ET.Element | None:
    """Return the element of a volume in the XML of a domain; None: it is not among its disks."""
    for disk in ET.fromstring(domain).findall("devices/disk"):  # noqa: S314 - of libvirt
        if disk.findtext("serial") == volume_id:
            return disk
    return None


def has_source(domain: str, volume_id: str, source: Source) -> bool:
    """Tell whether a volume, by its id in the guest, is there in the XML of a domain."""
    disk = found_volume(domain, volume_id)
    return disk is not None and _is_at(disk.find("source"), source)


def backing_files(domain: str, volume_id: str) -> dict[str, str]:
    """Return the files below that of a volume, the next one first, with the numbers that libvirt gives them."""
    found: dict[str, str] = {}
    below = found_volume(domain, volume_id)
    while below is not None and (below := below.find("backingStore")) is not None:
        source = below.find("source")
        if source is not None:
            found[source.get("file", "")] = below.get("index", "")
    return found


def mirrored_to(domain: str, volume_id: str, source: Source) -> bool | None:
    """Return whether all of a volume is there, too, as the XML of a domain says; None: it is not copied there."""
    disk = found_volume(domain, volume_id)
    mirror = None if disk is None else disk.find("mirror")
    if mirror is None or not _is_at(mirror.find("source"), source):
        return None
    return mirror.get("ready") == "yes"


def with_volume(domain: str, volume: VolumeDisk) -> str:
    """Return the XML of a domain in which a volume stands in the place of the one that has its id in the guest."""
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    for devices in root.findall("devices"):
        for at, disk in enumerate(devices):
            target = disk.find("target")
            if disk.tag == "disk" and target is not None and disk.findtext("serial") == volume.volume_id:
                place = [*disk.findall("boot"), *disk.findall("address")]
                devices[at] = ET.fromstring(volume_element(volume, target.get("dev", "")))  # noqa: S314 - made here
                devices[at].extend(place)
    return ET.tostring(root, encoding="unicode")


def with_sources(domain: str, sources: Mapping[str, Source]) -> str | None:
    """Return the XML of a domain whose volumes, by their ids, are files and devices that have other names now.

    None: they are where it has them. What QEMU itself reaches has no name on the host.
    """
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    moved = False
    for disk in root.findall("devices/disk"):
        source = sources.get(disk.findtext("serial") or "")
        if source is not None and point_at(disk, source):
            moved = True
    return ET.tostring(root, encoding="unicode") if moved else None


def point_at(disk: ET.Element, source: Source) -> bool:
    """Have the element of a volume name where the host has it.

    False where it does already, and for what QEMU itself reaches.
    """
    element = disk.find("source")
    if not isinstance(source, FileSource | BlockSource) or element is None:
        return False
    kind, name = _KINDS[type(source)], _NAMES[type(source)]
    if (disk.get("type"), element.get(name)) == (kind, source.path):
        return False
    disk.set("type", kind)
    element.attrib.clear()
    element.set(name, source.path)
    return True


def arrive(disk: ET.Element, volume: VolumeDisk) -> None:
    """Have the element of a volume of another host's guest say how this host has it.

    What lies below it, the other host may have elsewhere: libvirt finds out itself.
    """
    if isinstance(volume.source, RbdSource):
        _reach(disk, volume.source)
    else:
        point_at(disk, volume.source)
    driver = disk.find("driver")
    if driver is not None:
        _set_cache(driver, volume)
    for below in disk.findall("backingStore"):
        disk.remove(below)


def _reach(disk: ET.Element, source: RbdSource) -> None:
    """Have the element of an image of a Ceph cluster name the monitors and the secret that a host knows."""
    element = disk.find("source")
    if element is not None:
        for host in element.findall("host"):
            element.remove(host)
        _add_hosts(element, source)
    for secret in disk.iter("secret"):
        secret.set("uuid", source.secret)


def target_of_volume(domain: str, volume_id: str) -> str | None:
    """Return the name that a volume has among the disks of a domain; None: it is not among them."""
    disk = found_volume(domain, volume_id)
    target = None if disk is None else disk.find("target")
    return None if target is None else target.get("dev")


def free_target(domain: str, bus: DiskBus) -> str | None:
    """Return the first name that no disk of a domain has on a bus; None: it has too many."""
    names = {target.get("dev") for target in ET.fromstring(domain).findall("devices/disk/target")}  # noqa: S314
    return next((name for name in (f"{NAMES[bus]}{letter}" for letter in LETTERS) if name not in names), None)


def _is_at(element: ET.Element | None, source: Source) -> bool:
    """Tell whether an element names a source."""
    if element is None:
        return False
    if isinstance(source, FileSource | BlockSource):
        return element.get(_NAMES[type(source)]) == source.path
    return (element.get("protocol"), element.get("name")) == ("rbd", source.name)


def _set_cache(driver: ET.Element, disk: VolumeDisk) -> None:
    driver.set("cache", "none" if disk.direct else "writeback")
    if not isinstance(disk.source, RbdSource):
        driver.set("io", "native" if disk.direct else "threads")


def _add_source(element: ET.Element, source: Source) -> None:
    if isinstance(source, FileSource | BlockSource):
        ET.SubElement(element, "source", {_NAMES[type(source)]: source.path})
    else:
        if source.user:
            auth = ET.SubElement(element, "auth", username=source.user)
            ET.SubElement(auth, "secret", type="ceph", uuid=source.secret)
        network = ET.SubElement(element, "source", protocol="rbd", name=source.name)
        _add_hosts(network, source)


def _add_hosts(element: ET.Element, source: RbdSource) -> None:
    for address, port in source.hosts:
        ET.SubElement(element, "host", name=address, port=port)
