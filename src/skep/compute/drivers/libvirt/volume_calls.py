"""What the driver does with volumes of guests that are there: attaches, detaches, tells of a new size."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import BUSES, DiskBus
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.domains import GuestDomains, state_of
from skep.compute.drivers.libvirt.guest_devices import (
    CONFIG,
    GuestDevice,
    domain_of,
    parts_without,
    take_away,
    xml_of,
)
from skep.compute.drivers.libvirt.options import Options
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

T = TypeVar("T")

log = logging.getLogger(__name__)

LOOK = 0.2
"""Seconds between two looks at what QEMU does with volumes."""
AWAY = "HypervisorUnavailable"
GIB = 1 << 30
IN_USE = "VolumeInUse"
"""The error of a volume of which its guest does not let go."""


class LibvirtVolumes(abc.ABC):
    """The capabilities `attach_volume` and `extend_volume`."""

    _connection: LibvirtConnection
    _domains: GuestDomains
    _volumes: GuestVolumes
    _options: Options

    @abc.abstractmethod
    async def _work(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str = "InternalError") -> T:
        """Do something with a server, after what is being done with it."""

    @abc.abstractmethod
    async def _look(self, look: Callable[[], T]) -> T:
        """Look at something of a server, whatever is being done with it."""

    async def _once_answered(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str) -> T:
        """Do something about a guest that a lost answer of libvirt has left in doubt, however long libvirt is away.

        Raises DriverError for what libvirt refuses once it answers.
        """
        answers = False
        while True:
            try:
                return await self._work(instance, work, failure=AWAY)
            except DriverError as error:
                if error.error != AWAY:
                    raise
                if answers:
                    raise DriverError(failure, error.message) from error
                log.warning("what became of a volume of %s is not known yet: %s", instance, error.message)
            answers = await self._answers()

    async def _answers(self) -> bool:
        """Tell whether libvirt answers, a moment later where it does not."""
        try:
            await self._look(lambda: self._connection.get().getLibVersion())
        except DriverError:
            await asyncio.sleep(LOOK)
            return False
        return True

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
        return await self._work(instance, lambda: self._attach(instance, attempt, volume), failure="VolumeAttachFailed")

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
                "VolumeAttachFailed",
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
            raise DriverError("VolumeAttachFailed", f"{instance} has as many disks as it can have")
        source = self._volumes.add(instance, attempt, volume)
        element = volume_element(disk_of(volume, source, bus), target)
        try:
            for part in parts:
                domain.attachDeviceFlags(element, part)
        except libvirt.libvirtError:
            self._detach(instance, attempt, volume.volume_id)
            raise
        return state_of(domain)

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
