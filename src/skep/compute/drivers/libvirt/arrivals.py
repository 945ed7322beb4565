"""What a target says of itself in the place of a live migration, and the XML that its guest has there. Pure but for the
file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.domain import LABEL, NAMESPACE, GuestLabel, label_text
from skep.compute.drivers.libvirt.guest_interfaces import TAP, interfaces_of
from skep.compute.drivers.libvirt.options import MigrationWay
from skep.compute.drivers.libvirt.volume_disks import VolumeDisk, arrive
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder

ARRIVAL = "target.json"
REFUSED = "MigrationPreCheckError"
"""The error of a guest that cannot go, and was not touched."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Where and as what a guest arrives."""

    label: GuestLabel
    uri: str
    """Of the target's libvirtd, as other hosts reach it."""
    address: str
    """Where the target's QEMU listens."""
    way: MigrationWay
    directory: str
    """Of the target's attempt, on the target."""
    mark: str
    """What is in the file `SEEN` there: a source that reads it shares the storage."""
    post_copy: bool = False
    """Whether guests may go on here before all of their memory is here."""
    links: dict[str, str] = {}
    """MAC addresses of interfaces -> the links of the target that they are plugged into."""
    volumes: tuple[VolumeDisk, ...] = ()
    """Those of the guest, as the target has connected them; their buses are the guest's."""

    @property
    def pool(self) -> str:
        """The name of the pool of libvirt by which the source makes disks in that directory."""
        return pool_name(self.label.instance, self.label.attempt)


def pool_name(instance: str, attempt: int) -> str:
    """Return the name of the pool of an attempt that awaits a guest."""
    return f"skep-{instance}-{attempt}"


def pool_xml(name: str, directory: Path) -> str:
    """Return the XML of a pool whose volumes are the files of a directory."""
    root = ET.Element("pool", type="dir")
    ET.SubElement(root, "name").text = name
    ET.SubElement(ET.SubElement(root, "target"), "path").text = str(directory)
    return ET.tostring(root, encoding="unicode")


def volume_xml(name: str, disk_format: str, size: int) -> str:
    """Return the XML of an empty disk of `size` bytes, which takes no room yet."""
    root = ET.Element("volume")
    ET.SubElement(root, "name").text = name
    ET.SubElement(root, "capacity", unit="bytes").text = str(size)
    ET.SubElement(root, "allocation").text = "0"
    target = ET.SubElement(root, "target")
    ET.SubElement(target, "format", type=disk_format)
    if disk_format == "qcow2":
        ET.SubElement(target, "compat").text = "1.1"
    ET.SubElement(ET.SubElement(target, "permissions"), "mode").text = "0600"
    return ET.tostring(root, encoding="unicode")


def write_arrival(place: Path, arrival: Arrival) -> None:
    """Say in a place what the target is. Raises OSError."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(place / ARRIVAL, msgspec.json.encode(arrival))


def read_arrival(place: Path) -> Arrival | None:
    """Return what the target has said; None: nothing. Raises OSError, ValueError."""
    try:
        return _decoder.decode((place / ARRIVAL).read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ValueError(f"what the target said cannot be read: {error}") from error


_decoder = json_decoder(Arrival)


class MovingDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk that the guest writes to."""

    target: str
    """Its name in the guest."""
    name: str
    """Of its file."""
    format: str


def moving_disks(domain: str, directory: Path) -> tuple[MovingDisk, ...]:
    """Return the disks in the XML of a domain that are files of this directory and not read only."""
    found = []
    for disk in ET.fromstring(domain).findall("devices/disk"):  # noqa: S314 - of libvirt
        source, target, driver = disk.find("source"), disk.find("target"), disk.find("driver")
        if source is None or target is None or driver is None or disk.find("readonly") is not None:
            continue
        path = Path(source.get("file", ""))
        if path.parent == directory:
            found.append(MovingDisk(target=target.get("dev", ""), name=path.name, format=driver.get("type", "")))
    return tuple(found)


def arriving_xml(domain: str, directory: Path, arrival: Arrival, *, shared: bool) -> str:
    """Return the XML that a domain has on the target: its files, volumes and links there, and the target's label.

    Where the storage is not `shared` a disk is whole on the target: nothing is below it.
    """
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    volumes = {volume.volume_id: volume for volume in arrival.volumes}
    for disk in root.findall("devices/disk"):
        volume = volumes.get(disk.findtext("serial") or "")
        if volume is not None:
            arrive(disk, volume)
        elif not shared:
            for below in disk.findall("backingStore"):
                below.clear()
    for element in root.iter():
        path = Path(element.get("file", ""))
        if element.tag in ("source", "log") and path.parent == directory:
            element.set("file", f"{arrival.directory}/{path.name}")
    for mac, target in _plugged(root):
        target.set("dev", arrival.links[mac])
    label = root.find(f"metadata/{{{NAMESPACE}}}{LABEL}")
    assert label is not None, "the domain is ours"
    label.text = label_text(arrival.label)
    return ET.tostring(root, encoding="unicode")


def links_of(domain: str) -> dict[str, str]:
    """Return the links of the host in which the interfaces in the XML of a domain end, by MAC address."""
    return {mac: target.get("dev", "") for mac, target in _plugged(ET.fromstring(domain))}  # noqa: S314 - of libvirt


def tapless(domain: str) -> tuple[str, ...]:
    """Return libvirt's types of the interfaces in the XML of a domain that end in no tap."""
    types = (interface.get("type", "") for interface in interfaces_of(domain))
    return tuple(sorted({one for one in types if one != TAP}))


def _plugged(root: ET.Element) -> Iterator[tuple[str, ET.Element]]:
    for interface in root.iterfind(f"devices/interface[@type='{TAP}']"):
        mac, target = interface.find("mac"), interface.find("target")
        if mac is not None and target is not None:
            yield mac.get("address", ""), target


def cpu_of(domain: str) -> tuple[str, str, str, str]:
    """Return what a host is asked about the CPU of a domain: architecture, machine, type of the domain, the CPU."""
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    kind, cpu = root.find("os/type"), root.find("cpu")
    assert kind is not None, "libvirt gives each domain a type"
    told = ET.Element("cpu") if cpu is None else cpu
    return kind.get("arch", ""), kind.get("machine", ""), root.get("type", ""), ET.tostring(told, encoding="unicode")
