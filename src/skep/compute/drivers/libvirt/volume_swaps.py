"""Another volume comes into the place of one that a guest uses: QEMU copies it while the guest goes on.

The other volume stands in the file of the attempt before it is connected, and the old one until it was let go of, so
that an agent which comes after one that died finds either. Which of both the guest uses only its domain says: libvirt
changes that in one step, now and for the next start.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import libvirt
import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import DiskBus
from skep.compute.drivers.libvirt.domains import INACTIVE, state_of
from skep.compute.drivers.libvirt.guest_devices import domain_of
from skep.compute.drivers.libvirt.volume_calls import LOOK, LibvirtVolumes, bus_of
from skep.compute.drivers.libvirt.volume_disks import (
    Source,
    VolumeDisk,
    found_volume,
    has_source,
    mirrored_to,
    volume_element,
    with_volume,
)
from skep.compute.drivers.libvirt.volume_kinds import disk_of
from skep.compute.drivers.libvirt.volumes import VolumeAtHost
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.server_migrations import CopyFigures
from skep.domain.volumes import ConnectedVolume, SwapVolume

log = logging.getLogger(__name__)

FAILED = "VolumeSwapFailed"
MIB = 1 << 20
COPY = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
"""The volume service has made the other volume. A copying is no reason for libvirt to keep a guest from its end."""
PIVOT = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT


class _Swap(NamedTuple):
    """What is about to change in a guest that is there."""

    domain: libvirt.virDomain
    attempt: int
    coming: VolumeAtHost
    source: Source

    @property
    def volume_id(self) -> str:
        """The id that both volumes have in the guest."""
        return self.coming.replaces

    @property
    def target(self) -> str:
        """The name of the disk of the guest. Raises DriverError."""
        return self._target()[0]

    @property
    def disk(self) -> VolumeDisk:
        """The other volume, as the guest has it. Raises DriverError."""
        volume = msgspec.structs.replace(self.coming.volume, volume_id=self.volume_id)
        return disk_of(volume, self.source, self._target()[1])

    def _target(self) -> tuple[str, DiskBus]:
        disk = found_volume(self.domain.XMLDesc(), self.volume_id)
        target = None if disk is None else disk.find("target")
        if target is None:
            raise DriverError(FAILED, f"the guest has no volume {self.volume_id}")
        return target.get("dev", ""), bus_of(target)

    @property
    def is_ready(self) -> bool | None:
        """Whether both volumes are alike; None: nothing is copied to the other one."""
        return mirrored_to(self.domain.XMLDesc(), self.volume_id, self.source)

    @property
    def is_done(self) -> bool:
        """Whether the guest uses the other volume."""
        return has_source(self.domain.XMLDesc(), self.volume_id, self.source)


class LibvirtVolumeSwaps(LibvirtVolumes):
    """The capability `swap_volume`."""

    async def connect_other(
        self, instance: InstanceUuid, attempt: int, swap: SwapVolume, volume: ConnectedVolume
    ) -> None:
        """Connect the other volume of a swap, unless the guest uses it by now."""

        def work() -> None:
            domain = domain_of(self._domains, instance, attempt)
            runs = bool(domain.isActive())
            if not runs:
                # By the names of before: after a boot of the host another device may have one of them.
                self._volumes.settle(instance, attempt, domain.XMLDesc(INACTIVE))
            there = self._volumes.by_attachment(instance, attempt, swap.new_attachment_id)
            if there is not None and there.is_guests:
                return
            if not runs:
                if there is not None:
                    self._volumes.drop(instance, attempt, there)
                raise _not_running(instance)
            if there is not None and _is_used(domain, there):
                return
            old = self._volumes.find(instance, attempt, swap.old_volume_id)
            if old is None:
                raise DriverError(FAILED, f"{instance} has no volume {swap.old_volume_id}")
            self._volumes.add(instance, attempt, volume, replaces=old.volume.volume_id)

        await self._work(instance, work, failure=FAILED)

    async def swap_volume(self, instance: InstanceUuid, swap: SwapVolume, copying: Copying) -> PowerState:
        """Have QEMU copy a volume, and the guest go on with the copy; go on with what was begun before."""
        try:
            copied = await self._work(instance, lambda: self._begin_swap(instance, swap, copying), failure=FAILED)
            while not copied:
                await copying.pause(LOOK)
                copied = await self._look(lambda: self._is_swap_copied(instance, swap, copying))
            return await self._work(instance, lambda: self._end_swap(instance, swap), failure=FAILED)
        except DriverError:
            left = await self._once_answered(instance, lambda: self._undo_swap(instance, swap), failure=FAILED)
            if left is None:
                raise
            return left

    def _begin_swap(self, instance: InstanceUuid, swap: SwapVolume, copying: Copying) -> bool:
        """Begin to copy unless that was begun; tell whether nothing is left to be copied. Raises DriverError."""
        wanted = self._wanted_swap(instance, swap)
        if wanted is None or wanted.is_done:
            return True
        copying.check()
        domain, ready = wanted.domain, wanted.is_ready
        if not domain.isActive():
            raise _not_running(instance)
        if ready is None:
            if domain.blockJobInfo(wanted.target):
                # Of a swap that came to nothing, and was not undone.
                domain.blockJobAbort(wanted.target)
            bound = self._options.swap_mib_per_second * MIB
            ways = {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: bound} if bound else {}
            domain.blockCopy(wanted.target, volume_element(wanted.disk, wanted.target), ways, COPY)
        return bool(ready)

    def _is_swap_copied(self, instance: InstanceUuid, swap: SwapVolume, copying: Copying) -> bool:
        """Tell whether both volumes are alike now, and stay so. Raises DriverError, libvirt.libvirtError."""
        wanted = self._wanted_swap(instance, swap)
        if wanted is None or wanted.is_done:
            return True
        ready = wanted.is_ready
        if ready is None or not wanted.domain.isActive():
            raise DriverError(FAILED, f"volume {swap.old_volume_id} is copied no more: a volume failed, or the guest")
        job = wanted.domain.blockJobInfo(wanted.target)
        total, done = job.get("end", 0), job.get("cur", 0)
        copying.figures = CopyFigures(disk_total=total, disk_processed=done, disk_remaining=total - done)
        return ready

    def _end_swap(self, instance: InstanceUuid, swap: SwapVolume) -> PowerState:
        """Have the guest use the other volume, and let go of the old one. Raises DriverError, libvirt.libvirtError."""
        wanted = self._wanted_swap(instance, swap)
        if wanted is not None:
            if not wanted.is_done:
                wanted.domain.blockJobAbort(wanted.target, PIVOT)
            if not wanted.is_done:
                raise DriverError(FAILED, f"the guest uses volume {swap.old_volume_id} as before")
            self._keep_swapped(wanted, instance)
        domain, label = self._domains.whole(instance)
        self._volumes.drop_leaving(instance, label.attempt)
        return state_of(domain)

    def _keep_swapped(self, wanted: _Swap, instance: InstanceUuid) -> None:
        """Have a guest start next with the volume that it uses now, and see how large that is.

        What fails is logged: the guest uses it all the same, and its next start finds so.
        """
        domain, disk = wanted.domain, wanted.disk
        try:
            self._connection.get().defineXML(with_volume(domain.XMLDesc(INACTIVE), disk))
            self._volumes.stand_in(instance, wanted.attempt, wanted.coming)
            if not disk.readonly and domain.isActive():
                size = domain.blockInfo(wanted.target)[0]
                domain.blockResize(wanted.target, size, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)
        except (DriverError, libvirt.libvirtError) as error:
            log.error("guest %s uses another volume as its %s: %s", instance, wanted.volume_id, error)

    def _undo_swap(self, instance: InstanceUuid, swap: SwapVolume) -> PowerState | None:
        """Have a guest go on with the old volume, and let go of the other one.

        Return how the guest is where it uses the other one after all. Raises DriverError, libvirt.libvirtError.
        """
        found = self._domains.find(instance)
        if found is None:
            return None
        wanted = self._wanted_swap(instance, swap)
        if wanted is None or wanted.is_done:
            return self._end_swap(instance, swap)
        if wanted.is_ready is not None:
            wanted.domain.blockJobAbort(wanted.target)
        self._volumes.drop(instance, wanted.attempt, wanted.coming)
        return None

    def _wanted_swap(self, instance: InstanceUuid, swap: SwapVolume) -> _Swap | None:
        """Return what is to change; None: the guest has the other volume, as is written down.

        Raises DriverError where there is no guest, or the other volume is not connected.
        """
        domain, label = self._domains.whole(instance)
        there = self._volumes.by_attachment(instance, label.attempt, swap.new_attachment_id)
        if there is not None and there.is_guests:
            return None
        if there is None or there.source is None:
            raise DriverError(FAILED, f"volume {swap.new_volume_id} is not connected")
        return _Swap(domain, label.attempt, there, there.source)


def _is_used(domain: libvirt.virDomain, there: VolumeAtHost) -> bool:
    """Tell whether QEMU copies to the other volume of a swap by now, or its guest uses it."""
    if there.source is None:
        return False
    described, at = domain.XMLDesc(), (there.replaces, there.source)
    return mirrored_to(described, *at) is not None or has_source(described, *at)


def _not_running(instance: InstanceUuid) -> DriverError:
    return DriverError("InstanceNotRunning", f"{instance} does not run: only QEMU copies its volumes")
