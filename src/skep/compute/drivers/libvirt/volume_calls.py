"""What the driver does with volumes of guests that are there: attaches, detaches, tells of a new size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import BUSES, DiskBus
from skep.compute.drivers.libvirt.domains import state_of
from skep.compute.drivers.libvirt.guest_calls import GuestCalls
from skep.compute.drivers.libvirt.guest_devices import (
    CONFIG,
    GuestDevice,
    domain_of,
    parts_without,
    take_away,
    xml_of,
)
from skep.compute.drivers.libvirt.volume_disks import (
    found_volume,
    free_target,
    target_of_volume,
    volume_element,
)
from skep.compute.drivers.libvirt.volume_kinds import disk_of
from skep.compute.drivers.libvirt.volumes import GuestVolumes
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import ConnectedVolume, ExtendedVolume

LOOK = 0.2
"""Seconds between two looks at what QEMU does with volumes."""
GIB = 1 << 30
FAILED = "VolumeAttachFailed"
IN_USE = "VolumeInUse"
"""The error of a volume of which its guest does not let go."""


class LibvirtVolumes(GuestCalls):
    """The capabilities `attach_volume` and `extend_volume`."""

    _volumes: GuestVolumes

    async def connect_volumes(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Connect the volumes of an attempt whose guest is not there yet; one that is there keeps what it has."""

        def work() -> None:
            if not self._is_there(instance, attempt):
                self._volumes.connect(instance, attempt, volumes)

        await self._work(instance, work)

    def _is_there(self, instance: InstanceUuid, attempt: int) -> bool:
        """Tell whether the guest of an attempt is there; remove one that is not whole. Raises DriverError."""
        return self._domains.there(instance, attempt) is not None

    async def attach_volume(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState:
        """Connect a volume and plug it into a guest."""
        return await self._attached(
            instance,
            lambda: self._attach(instance, attempt, volume),
            lambda: self._undo_attach(instance, attempt, volume),
            failure=FAILED,
        )

    async def detach_volume(self, instance: InstanceUuid, attempt: int, volume_id: str) -> PowerState:
        """Have a guest let go of a volume, and let go of it."""
        return await self._work(
            instance, lambda: self._detach(instance, attempt, volume_id), failure="VolumeDetachFailed"
        )

    async def extend_volume(self, instance: InstanceUuid, volumes: Sequence[ExtendedVolume]) -> PowerState:
        """Have a guest that runs see how large its volumes are; one that does not sees it when it starts."""

        def work() -> PowerState:
            domain, label = self._domains.whole(instance)
            for one in volumes:
                self._volumes.extend(instance, label.attempt, one.volume_id)
                volume_id = self._volumes.id_in_guest(instance, label.attempt, one.volume_id)
                target = target_of_volume(domain.XMLDesc(), volume_id)
                if target is not None and domain.isActive():
                    domain.blockResize(target, one.size * GIB, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
            return state_of(domain)

        return await self._work(instance, work)

    def _attach(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState:
        domain = domain_of(self._domains, instance, attempt)
        there = self._volumes.find(instance, attempt, volume.volume_id)
        if there is not None and there.came_as and there.volume.attachment_id != volume.attachment_id:
            raise DriverError(
                FAILED,
                f"the guest has volume {there.came_as} as {volume.volume_id} until it is made anew",
            )
        parts = parts_without(domain, _device(volume.volume_id))
        if not parts:
            return state_of(domain)
        if domain.hasManagedSaveImage(0):
            raise DriverError("InstanceNotRunning", f"{instance} is suspended: its memory knows of no other disk")
        disks = ET.fromstring(xml_of(domain, CONFIG)).findall("devices/disk")  # noqa: S314 - of libvirt
        bus = _bus_of(disks)
        target = free_target(xml_of(domain, CONFIG), bus)
        if target is None:
            raise DriverError(FAILED, f"{instance} has as many disks as it can have")
        source = self._volumes.add(instance, attempt, volume)
        element = volume_element(disk_of(volume, source, bus), target)
        for part in parts:
            domain.attachDeviceFlags(element, part)
        return state_of(domain)

    def _undo_attach(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState | None:
        """Take a volume from a guest that has a part of it only; of one that has it whole return how it is.

        A volume that no file names was not begun with. Raises DriverError, libvirt.libvirtError.
        """
        if self._volumes.by_attachment(instance, attempt, volume.attachment_id) is None:
            return None
        domain = domain_of(self._domains, instance, attempt)
        if not parts_without(domain, _device(volume.volume_id)):
            return state_of(domain)
        self._detach(instance, attempt, volume.volume_id)
        return None

    def _detach(self, instance: InstanceUuid, attempt: int, volume_id: str) -> PowerState:
        domain = domain_of(self._domains, instance, attempt)
        device = _device(self._volumes.id_in_guest(instance, attempt, volume_id))
        take_away(self._connection, domain, device, self._options.detach_seconds)
        self._volumes.remove(instance, attempt, volume_id)
        return state_of(domain)


def _device(volume_id: str) -> GuestDevice:
    return GuestDevice(f"volume {volume_id}", partial(found_volume, volume_id=volume_id), IN_USE)


def bus_of(target: ET.Element) -> DiskBus:
    """Return the bus that an element names."""
    return next((bus for bus in BUSES if bus == target.get("bus")), "virtio")


def _bus_of(disks: Sequence[ET.Element]) -> DiskBus:
    """Return the bus of the first disk: that of all volumes of a guest."""
    for disk in disks:
        target = disk.find("target")
        if disk.get("device") == "disk" and target is not None:
            return bus_of(target)
    return "virtio"
