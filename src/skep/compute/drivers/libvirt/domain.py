"""The XML of a guest, made of values and read back to them. Pure: nothing here talks to libvirt.

Text never becomes XML by being pasted: a tree is made, and written as a whole. What XML has no characters for (a name
may have control characters) is in the label, which is JSON in plain ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.bridged.names import TAP
from skep.compute.drivers.libvirt.buses import LETTERS, NAMES, DiskBus
from skep.compute.drivers.libvirt.guest_cells import ANYWHERE, GuestPlace, add_place, cpu_list
from skep.compute.drivers.libvirt.guest_interfaces import (
    GuestInterface,
    SocketInterface,
    add_interface,
    add_shared_memory,
)
from skep.compute.drivers.libvirt.hardware import (
    PLAIN,
    Hardware,
    add_clock,
    add_devices,
    add_features,
    add_firmware,
    add_iotune,
    add_to_cpu,
)
from skep.compute.drivers.libvirt.mediated_devices import add_mediated_devices
from skep.compute.drivers.libvirt.options import VirtType
from skep.compute.drivers.libvirt.pci_devices import add_host_devices
from skep.compute.drivers.libvirt.screens import add_screen
from skep.compute.drivers.libvirt.user_networks import UserInterface, arguments
from skep.compute.drivers.libvirt.volume_disks import VolumeDisk, add_volume
from skep.compute.drivers.libvirt.way_out.emulator import TOLD
from skep.compute.drivers.libvirt.way_out.ways import WayOut
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.providers import Allocation
from skep.domain.resources import Resources

NAMESPACE = "urn:skep:guest:1"
PREFIX = "skep"
QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
"""libvirt's namespace of arguments for QEMU."""
LABEL = "guest"
"""The element in `<metadata>` whose text is the label."""
VENDOR = "Skep"
PRODUCT = "OpenStack Nova"
"""By this word of the firmware guests know which metadata service is theirs (cloud-init, the data source OpenStack)."""

AGENT = "org.qemu.guest_agent.0"
"""By this name a guest finds the line to its agent, and libvirt, too."""

ET.register_namespace(PREFIX, NAMESPACE)
ET.register_namespace("qemu", QEMU)


class GuestLabel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored in the hypervisor of a guest."""

    instance: InstanceUuid
    attempt: int
    name: str
    resources: Resources
    allocation: Allocation | None = None
    whole: bool = False
    """It was started once, or made over its disks."""
    rescued: bool = False
    """It has a rescue disk in front of its own."""
    ssh_port: int | None = None
    """The loopback port that leads to its port 22; it is no other guest's while this one is there."""
    administrator: str = ""
    """The user whose password the agent inside it changes; empty: it has no agent."""
    quiesce: bool = False
    """Its agent has to freeze its file systems when its disk is copied."""


class BackingFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file under a disk that only has what was written since. All guests of one image share it: it is not changed,
    nor is its owner."""

    path: str
    format: str


class DiskFile(msgspec.Struct, frozen=True, kw_only=True):
    """One disk of a guest, a file of the host."""

    path: str
    format: str
    """The format is always said and never guessed: a guest could write the beginning of another into a raw disk."""
    bus: DiskBus = "virtio"
    cdrom: bool = False
    backing: BackingFile | None = None
    device: bool = False
    """It is a block device of the host instead."""


class GuestShape(msgspec.Struct, frozen=True, kw_only=True):
    """All that the XML of a guest says."""

    label: GuestLabel
    vcpus: int
    memory_mb: int
    virt_type: VirtType
    machine: str
    cpu_model: str = ""
    topology: tuple[int, int, int] | None = None
    """Sockets, cores, threads; None: each CPU is a socket."""
    disks: tuple[DiskFile | VolumeDisk, ...] = ()
    """In the order in which the guest boots from them and sees them."""
    console_file: str
    hardware: Hardware = PLAIN
    place: GuestPlace = ANYWHERE
    host_devices: tuple[str, ...] = ()
    """Addresses on the PCI bus of the host."""
    mediated: tuple[str, ...] = ()
    """UUIDs of mediated devices."""
    interfaces: tuple[UserInterface, ...] = ()
    """Those that end inside QEMU."""
    way_out: WayOut | None = None
    """By which those lead to the outside; None: they do not."""
    host_interfaces: tuple[GuestInterface, ...] = ()
    """Those that end on the host."""
    agent: bool = False
    """It has a line to an agent inside it."""
    agent_socket: str | None = None
    """Where the host's end of that is; None: libvirt chooses."""
    screen: bool = False
    """Users see its screen, unless its hardware has none."""


_decoder = json_decoder(GuestLabel)


def domain_name(instance: InstanceUuid) -> str:
    """Return the name of a guest in libvirt. It begins as the API's `OS-EXT-SRV-ATTR:instance_name`."""
    return f"instance-{instance}"


def label_text(label: GuestLabel) -> str:
    """Return a label as text that XML carries unharmed: printable ASCII."""
    return json.dumps(msgspec.to_builtins(label), ensure_ascii=True)


def label_element(label: GuestLabel) -> str:
    """Return the element by which the label of a guest that is there is replaced: libvirt adds the namespace."""
    element = ET.Element(LABEL)
    element.text = label_text(label)
    return ET.tostring(element, encoding="unicode")


def read_label(element: str) -> GuestLabel:
    """Return the label of the metadata's element, as libvirt gives it. Raises ValueError where it is none of ours."""
    try:
        found = ET.fromstring(element)  # noqa: S314 - of libvirt, which checked it
        return _decoder.decode(found.text or "")
    except (ET.ParseError, msgspec.DecodeError) as error:
        raise ValueError(f"the label of a guest cannot be read: {error}") from error


def label_in(domain: str) -> GuestLabel | None:
    """Return the label in the XML of a domain; None: it has none, so it is another's. Raises ValueError."""
    found = ET.fromstring(domain).find(f"metadata/{{{NAMESPACE}}}{LABEL}")  # noqa: S314 - of libvirt
    return None if found is None else read_label(ET.tostring(found, encoding="unicode"))


def guest_xml(shape: GuestShape) -> str:
    """Return the XML of a guest."""
    root = ET.Element("domain", type=shape.virt_type)
    _text(root, "name", domain_name(shape.label.instance))
    _text(root, "uuid", shape.label.instance)
    ET.SubElement(root, "metadata").append(_label(shape.label))
    _text(root, "memory", str(shape.memory_mb), unit="MiB")
    on_cpus = {"cpuset": cpu_list(shape.place.cpus)} if shape.place.cpus else {}
    _text(root, "vcpu", str(shape.vcpus), **on_cpus)
    _add_firmware(root, shape)
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    add_features(features, shape.hardware, shape.virt_type)
    _add_cpu(root, shape)
    add_clock(root, shape.hardware, shape.virt_type)
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        _text(root, event, action)
    _add_devices(root, shape)
    _add_interfaces(root, shape)
    return ET.tostring(root, encoding="unicode")


def disk_targets(disks: tuple[DiskFile | VolumeDisk, ...]) -> tuple[str, ...]:
    """Return the names of disks in the guest, in their order: `vda`, `vdb`, `hda`."""
    counts: dict[str, int] = {}
    names = []
    for disk in disks:
        prefix = NAMES[disk.bus]
        number = counts.get(prefix, 0)
        counts[prefix] = number + 1
        names.append(f"{prefix}{LETTERS[number]}")
    return tuple(names)


def target_of(domain: str, path: str) -> str | None:
    """Return the name that a file or device has among the disks of a domain's XML; None: it is not among them."""
    for disk in ET.fromstring(domain).findall("devices/disk"):  # noqa: S314 - of libvirt
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None and path in (source.get("file"), source.get("dev")):
            return target.get("dev")
    return None


def _label(label: GuestLabel) -> ET.Element:
    element = ET.Element(f"{{{NAMESPACE}}}{LABEL}")
    element.text = label_text(label)
    return element


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text


def _add_firmware(root: ET.Element, shape: GuestShape) -> None:
    os = ET.SubElement(root, "os")
    _text(os, "type", "hvm", arch="x86_64", machine=shape.machine)
    ET.SubElement(os, "boot", dev="hd")
    ET.SubElement(os, "smbios", mode="sysinfo")
    ET.SubElement(os, "bios", useserial="yes")
    add_firmware(os, shape.hardware)
    system = ET.SubElement(ET.SubElement(root, "sysinfo", type="smbios"), "system")
    uuid = shape.label.instance
    for name, text in (("manufacturer", VENDOR), ("product", PRODUCT), ("serial", uuid), ("uuid", uuid)):
        _text(system, "entry", text, name=name)


def _add_cpu(root: ET.Element, shape: GuestShape) -> None:
    model = shape.cpu_model or ("host-model" if shape.virt_type == "kvm" else "")
    if model.startswith("host-"):
        cpu = ET.SubElement(root, "cpu", mode=model)
    elif model:
        cpu = ET.SubElement(root, "cpu", mode="custom", match="exact")
        _text(cpu, "model", model, fallback="forbid")
    else:
        cpu = ET.SubElement(root, "cpu")
    sockets, cores, threads = shape.topology or (shape.vcpus, 1, 1)
    ET.SubElement(cpu, "topology", sockets=str(sockets), cores=str(cores), threads=str(threads))
    add_to_cpu(cpu, shape.hardware)
    add_place(root, cpu, shape.place)
    if any(isinstance(one, SocketInterface) for one in shape.host_interfaces):
        add_shared_memory(root)


def _add_devices(root: ET.Element, shape: GuestShape) -> None:
    devices = ET.SubElement(root, "devices")
    if shape.interfaces and shape.way_out is not None:
        _text(devices, "emulator", shape.way_out.emulator)
    for disk, target in zip(shape.disks, disk_targets(shape.disks), strict=True):
        if isinstance(disk, VolumeDisk):
            add_volume(devices, disk, target)
        else:
            add_iotune(add_disk(devices, disk, target), shape.hardware)
    add_host_devices(devices, shape.host_devices)
    add_mediated_devices(devices, shape.mediated)
    add_devices(devices, shape.hardware, scsi=any(disk.bus == "scsi" for disk in shape.disks))
    for interface in shape.host_interfaces:
        add_interface(devices, interface)
    serial = ET.SubElement(devices, "serial", type="pty")
    ET.SubElement(serial, "log", file=shape.console_file, append="on")
    ET.SubElement(serial, "target", port="0")
    ET.SubElement(ET.SubElement(devices, "console", type="pty"), "target", type="serial", port="0")
    ET.SubElement(ET.SubElement(devices, "memballoon", model="virtio"), "stats", period="10")
    if shape.agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        source = ET.SubElement(channel, "source", mode="bind")
        if shape.agent_socket is not None:
            source.set("path", shape.agent_socket)
        ET.SubElement(channel, "target", type="virtio", name=AGENT)
    if shape.screen:
        add_screen(devices)


def _add_interfaces(root: ET.Element, shape: GuestShape) -> None:
    if shape.interfaces:
        command = ET.SubElement(root, f"{{{QEMU}}}commandline")
        for argument in arguments(shape.interfaces):
            ET.SubElement(command, f"{{{QEMU}}}arg", value=argument)
        if shape.way_out is not None:
            ET.SubElement(command, f"{{{QEMU}}}env", name=TOLD, value=shape.way_out.told(shape.label.ssh_port))


def with_way_out(domain: str, told: str) -> str | None:
    """Return the XML of a domain whose way out is told this; None: it is so, or there is no way out."""
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    variable = root.find(f"{{{QEMU}}}commandline/{{{QEMU}}}env[@name='{TOLD}']")
    if variable is None or variable.get("value") == told:
        return None
    variable.set("value", told)
    return ET.tostring(root, encoding="unicode")


def taps_of(domain: str) -> tuple[str, ...]:
    """Return the links of the host that a domain's XML names for its interfaces."""
    targets = ET.fromstring(domain).iterfind("devices/interface[@type='ethernet']/target")  # noqa: S314 - of libvirt
    names = (target.get("dev", "") for target in targets)
    return tuple(name for name in names if TAP.fullmatch(name))


def without_taps(domain: str, taps: Collection[str]) -> str:
    """Return the XML of a domain without the interfaces that end in these links of the host."""
    root = ET.fromstring(domain)  # noqa: S314 - of libvirt
    for devices in root.findall("devices"):
        for interface in devices.findall("interface[@type='ethernet']"):
            target = interface.find("target")
            if target is not None and target.get("dev") in taps:
                devices.remove(interface)
    return ET.tostring(root, encoding="unicode")


def add_disk(devices: ET.Element, disk: DiskFile, target: str) -> ET.Element:
    """Add the element of a disk that has this name in the guest, and return it."""
    kind, place = ("block", "dev") if disk.device else ("file", "file")
    element = ET.SubElement(devices, "disk", type=kind, device="cdrom" if disk.cdrom else "disk")
    ET.SubElement(element, "driver", name="qemu", type=disk.format)
    ET.SubElement(element, "source", {place: disk.path})
    if disk.backing is not None:
        backing = ET.SubElement(element, "backingStore", type="file")
        ET.SubElement(backing, "format", type=disk.backing.format)
        source = ET.SubElement(backing, "source", file=disk.backing.path)
        ET.SubElement(source, "seclabel", model="dac", relabel="no")
        ET.SubElement(backing, "backingStore")
    elif not disk.cdrom:
        ET.SubElement(element, "backingStore")
    ET.SubElement(element, "target", dev=target, bus=disk.bus)
    if disk.cdrom:
        ET.SubElement(element, "readonly")
    return element
