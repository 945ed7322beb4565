"""What a flavor and an image may say of the machine of a guest beyond its size, and its elements in the XML. Pure."""

from __future__ import annotations

from typing import Literal
from xml.etree import ElementTree as ET

import msgspec

from skep.compute.drivers.libvirt.options import VirtType

InputBus = Literal["usb", "virtio"]
HYPERV = ("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies", "tlbflush", "ipi")
"""What Windows is told that it may use of a hypervisor, beside spinlocks."""
SPINLOCKS = 8191
"""How often Windows tries a lock before it tells the hypervisor that it waits: what Nova sets, too."""
VENDOR = "1234567890ab"
"""The word by which a hypervisor that is to be hidden calls itself: any that is not its own."""
ADDRESS_BITS = "48"
"""Of an IOMMU: without it guests with much memory could not address all of it."""


class AddressWidth(msgspec.Struct, frozen=True, kw_only=True):
    """How wide physical addresses are to the guest."""

    mode: str
    """`emulate` or `passthrough`."""
    bits: int | None = None


class RngRate(msgspec.Struct, frozen=True, kw_only=True):
    """How much entropy a guest gets."""

    bytes: int
    period: int
    """Milliseconds."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a machine that are not the same in all guests. What is not set is as it always is."""

    uefi: bool = False
    secure_boot: bool = False
    boot_menu: bool = False
    hidden: bool = False
    """The guest is not told by which hypervisor it runs."""
    pmu: bool | None = None
    """Counters of the processor's events."""
    hpet: bool = False
    windows: bool = False
    address_width: AddressWidth | None = None
    rng: bool = True
    rng_rate: RngRate | None = None
    scsi: str = "virtio-scsi"
    """The model of the controller of SCSI disks."""
    usb: str = ""
    """The model of the USB controller; empty: one where something needs it."""
    tablet: InputBus | None = None
    keyboard: InputBus | None = None
    sound: str = ""
    video: str = ""
    video_kib: int | None = None
    watchdog: str = ""
    """What it does when the guest feeds it no more; empty: there is none."""
    iommu: str = ""
    iotune: tuple[tuple[str, int], ...] = ()
    """Bounds of each disk, in libvirt's words."""

    @property
    def usb_model(self) -> str:
        """The model of the USB controller that there is, `none` where there is none."""
        return self.usb or ("qemu-xhci" if self.needs_usb else "none")

    @property
    def needs_usb(self) -> bool:
        """Whether something hangs at USB."""
        return "usb" in (self.tablet, self.keyboard, self.sound)


PLAIN = Hardware()


def add_firmware(os: ET.Element, hardware: Hardware) -> None:
    """Add what the guest starts with. libvirt finds the file of a firmware that has what is asked for."""
    if hardware.boot_menu:
        ET.SubElement(os, "bootmenu", enable="yes")
    if hardware.uefi:
        os.set("firmware", "efi")
        secure = "yes" if hardware.secure_boot else "no"
        ET.SubElement(ET.SubElement(os, "firmware"), "feature", enabled=secure, name="secure-boot")
        if hardware.secure_boot:
            ET.SubElement(os, "loader", secure="yes")


def add_features(features: ET.Element, hardware: Hardware, virt_type: VirtType) -> None:
    """Add what the guest may use of the machine."""
    if hardware.secure_boot:
        # Without it the guest could write the firmware's variables.
        ET.SubElement(features, "smm", state="on")
    if hardware.pmu is not None:
        ET.SubElement(features, "pmu", state="on" if hardware.pmu else "off")
    if hardware.iommu == "intel":
        ET.SubElement(features, "ioapic", driver="qemu")
    if virt_type != "kvm":
        return
    if hardware.hidden:
        ET.SubElement(ET.SubElement(features, "kvm"), "hidden", state="on")
    if hardware.windows:
        hyperv = ET.SubElement(features, "hyperv")
        for name in HYPERV:
            ET.SubElement(hyperv, name, state="on")
        ET.SubElement(hyperv, "spinlocks", state="on", retries=str(SPINLOCKS))
        if hardware.hidden:
            ET.SubElement(hyperv, "vendor_id", state="on", value=VENDOR)


def add_to_cpu(cpu: ET.Element, hardware: Hardware) -> None:
    """Add how wide addresses are."""
    width = hardware.address_width
    if width is not None:
        element = ET.SubElement(cpu, "maxphysaddr", mode=width.mode)
        if width.bits is not None:
            element.set("bits", str(width.bits))


def add_clock(root: ET.Element, hardware: Hardware, virt_type: VirtType) -> None:
    """Add the clock. QEMU's own emulation has all timers as they are."""
    clock = ET.SubElement(root, "clock", offset="localtime" if hardware.windows else "utc")
    if virt_type == "kvm":
        ET.SubElement(clock, "timer", name="pit", tickpolicy="delay")
        ET.SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
        ET.SubElement(clock, "timer", name="hpet", present="yes" if hardware.hpet else "no")
        if hardware.windows:
            ET.SubElement(clock, "timer", name="hypervclock", present="yes")


def add_devices(devices: ET.Element, hardware: Hardware, *, scsi: bool) -> None:
    """Add the devices; `scsi`: the guest has SCSI disks."""
    if scsi:
        ET.SubElement(devices, "controller", type="scsi", index="0", model=hardware.scsi)
    ET.SubElement(devices, "controller", type="usb", index="0", model=hardware.usb_model)
    for kind, bus in (("tablet", hardware.tablet), ("keyboard", hardware.keyboard)):
        if bus is not None:
            ET.SubElement(devices, "input", type=kind, bus=bus)
    if hardware.sound:
        ET.SubElement(devices, "sound", model=hardware.sound)
    if hardware.video:
        model = ET.SubElement(ET.SubElement(devices, "video"), "model", type=hardware.video)
        if hardware.video_kib is not None:
            model.set("vram", str(hardware.video_kib))
    if hardware.watchdog:
        ET.SubElement(devices, "watchdog", model="i6300esb", action=hardware.watchdog)
    if hardware.iommu:
        _add_iommu(devices, hardware.iommu)
    if hardware.rng:
        rng = ET.SubElement(devices, "rng", model="virtio")
        if hardware.rng_rate is not None:
            ET.SubElement(rng, "rate", bytes=str(hardware.rng_rate.bytes), period=str(hardware.rng_rate.period))
        ET.SubElement(rng, "backend", model="random").text = "/dev/urandom"


def add_iotune(disk: ET.Element, hardware: Hardware) -> None:
    """Add the bounds of a disk."""
    if hardware.iotune:
        tune = ET.SubElement(disk, "iotune")
        for name, amount in hardware.iotune:
            ET.SubElement(tune, name).text = str(amount)


def _add_iommu(devices: ET.Element, model: str) -> None:
    element = ET.SubElement(devices, "iommu", model=model)
    if model == "intel":
        ET.SubElement(element, "driver", intremap="on", caching_mode="on", aw_bits=ADDRESS_BITS, iotlb="on")
