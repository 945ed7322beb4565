"""What the driver does with volumes of guests that are there: attaches, detaches, tells of a new size."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from xml.etree import ElementTree as ET

import libvirt

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import BUSES, DiskBus
from skep.compute.drivers.libvirt.connection import LibvirtConnection
from skep.compute.drivers.libvirt.domains import INACTIVE, GuestDomains, state_of
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

CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
GIB = 1 << 30
IN_USE = "VolumeInUse"
"""The error of a volume of which its guest does not let go."""
AGAIN = 20.0
"""Seconds after which a guest that was asked to let go of a volume is asked again: it may not have listened yet."""
LOOK = 0.5
"""Seconds between two looks whether a guest has let go of a volume, where nothing is told of it."""


class LibvirtVolumes(abc.ABC):
    """The capabilities `attach_volume` and `extend_volume`."""

    _connection: LibvirtConnection
    _domains: GuestDomains
    _volumes: GuestVolumes
    _options: Options

    @abc.abstractmethod
    async def _work(self, instance: InstanceUuid, work: Callable[[], T], *, failure: str = "InternalError") -> T:
        """Do something with a server, after what is being done with it."""

    async def connect_volumes(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Connect the volumes of an attempt whose guest is not there yet; one that is there keeps what it has."""

        def work() -> None:
            if self._domains.there(instance, attempt) is None:
                self._volumes.connect(instance, attempt, volumes)

        await self._work(instance, work)

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
                target = target_of_volume(domain.XMLDesc(), one.volume_id)
                if target is not None and domain.isActive():
                    domain.blockResize(target, one.size * GIB, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
            return state_of(domain)

        return await self._work(instance, work)

    def _attach(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState:
        domain = self._domain(instance, attempt)
        parts = [part for part in _parts(domain) if target_of_volume(_xml(domain, part), volume.volume_id) is None]
        if not parts:
            return state_of(domain)
        if domain.hasManagedSaveImage(0):
            raise DriverError("InstanceNotRunning", f"{instance} is suspended: its memory knows of no other disk")
        disks = ET.fromstring(_xml(domain, CONFIG)).findall("devices/disk")  # noqa: S314 - of libvirt
        bus = _bus_of(disks)
        target = free_target(_xml(domain, CONFIG), bus)
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
        domain = self._domain(instance, attempt)
        running = domain.isActive() and found_volume(domain.XMLDesc(), volume_id) is not None
        if running and state_of(domain) is PowerState.PAUSED:
            raise DriverError(IN_USE, f"{instance} is paused, so that it cannot let go of volume {volume_id}")
        if running:
            self._unplug(domain, volume_id)
        kept = found_volume(_xml(domain, CONFIG), volume_id)
        if kept is not None:
            domain.detachDeviceFlags(ET.tostring(kept, encoding="unicode"), CONFIG)
        self._volumes.remove(instance, attempt, volume_id)
        return state_of(domain)

    def _unplug(self, domain: libvirt.virDomain, volume_id: str) -> None:
        """Ask a guest to let go of a volume until it has. Raises DriverError; it has the volume then as before."""
        ends = time.monotonic() + self._options.detach_seconds
        again = 0.0
        while domain.isActive() and (disk := found_volume(domain.XMLDesc(), volume_id)) is not None:
            now = time.monotonic()
            if now >= ends:
                raise DriverError(IN_USE, f"the guest has not let go of volume {volume_id} in time: it uses it")
            if now >= again:
                _ask(domain, disk)
                again = now + AGAIN
            with self._connection.changed:
                self._connection.changed.wait(min(LOOK, ends - now))

    def _domain(self, instance: InstanceUuid, attempt: int) -> libvirt.virDomain:
        domain, label = self._domains.whole(instance)
        if label.attempt != attempt:
            raise DriverError("InstanceNotFound", f"there is no guest {instance} of attempt {attempt}")
        return domain


def _parts(domain: libvirt.virDomain) -> tuple[int, ...]:
    """Return what of a guest gets a volume: what it is when it starts next, and what it is now if it runs."""
    return (CONFIG, LIVE) if domain.isActive() else (CONFIG,)


def _xml(domain: libvirt.virDomain, part: int) -> str:
    xml: str = domain.XMLDesc(INACTIVE if part == CONFIG else 0)
    return xml


def _bus_of(disks: Sequence[ET.Element]) -> DiskBus:
    """Return the bus of the first disk: that of all volumes of a guest."""
    for disk in disks:
        target = disk.find("target")
        if disk.get("device") == "disk" and target is not None:
            return next((bus for bus in BUSES if bus == target.get("bus")), "virtio")
    return "virtio"


def _ask(domain: libvirt.virDomain, disk: ET.Element) -> None:
    try:
        domain.detachDeviceFlags(ET.tostring(disk, encoding="unicode"), LIVE)
    except libvirt.libvirtError as error:
        # Gone meanwhile, off meanwhile, or asked already.
        if error.get_error_code() not in _FINE and "unplug" not in str(error):
            raise


_FINE = frozenset({libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_FAILED})
