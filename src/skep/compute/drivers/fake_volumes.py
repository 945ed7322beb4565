"""The volumes of fake guests, on paper: which one a guest uses stands in the log of its host."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import msgspec

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.guest_log import GuestLog, VolumeOnPaper
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import AssistSnapshot, ExtendedVolume, SwapVolume

SLICES = 4


class FakeVolumes(abc.ABC):
    """The capabilities `swap_volume`, `extend_volume` and `assisted_snapshot` of fake hosts."""

    _log: GuestLog

    @property
    @abc.abstractmethod
    def copy_delay(self) -> float:
        """Seconds that each slice takes."""

    @abc.abstractmethod
    async def _operate(self, operation: str, instance: InstanceUuid) -> Guest:
        """Take the operation's time and return the guest that it is about."""

    @abc.abstractmethod
    def _write_volume(self, guest: Guest, volume: VolumeOnPaper) -> None:
        """Write down which volume a guest uses from now on."""

    def uses(self, instance: InstanceUuid, device: str) -> VolumeOnPaper | None:
        """Return the volume that a guest uses by the name of a disk, as far as the driver was told."""
        return self._log.volumes.get(instance, {}).get(device)

    async def swap_volume(self, instance: InstanceUuid, swap: SwapVolume, copying: Copying) -> PowerState:
        """Take the time of a copy, in slices; then the guest uses the other volume."""
        there = self.uses(instance, swap.device)
        if there is not None and there.attachment_id == swap.new_attachment_id:
            return self._log.guests[instance].power_state
        copying.check()
        guest = await self._operate("swap_volume", instance)
        for _ in range(SLICES):
            await copying.pause(self.copy_delay)
        copying.check()
        now = self._log.guests.get(instance)
        if now is None or now.attempt != guest.attempt:
            raise DriverError("InstanceNotFound", f"{instance} was destroyed while its volume was copied")
        other = VolumeOnPaper(device=swap.device, volume_id=swap.new_volume_id, attachment_id=swap.new_attachment_id)
        self._write_volume(now, other)
        return now.power_state

    async def extend_volume(self, instance: InstanceUuid, volumes: Sequence[ExtendedVolume]) -> PowerState:
        """Write down how large they are now."""
        guest = await self._operate("extend_volume", instance)
        for one in volumes:
            there = self._used(instance, one)
            if there.size != one.size:
                self._write_volume(guest, msgspec.structs.replace(there, size=one.size))
        return guest.power_state

    async def create_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Write down the snapshot, and which file the guest writes to."""
        guest = await self._operate("create_volume_snapshot", instance)
        there = self._used(instance, snapshot)
        if snapshot.snapshot_id not in there.snapshots:
            made = (*there.snapshots, snapshot.snapshot_id)
            self._write_volume(guest, msgspec.structs.replace(there, file=snapshot.new_file, snapshots=made))
        return guest.power_state

    async def delete_volume_snapshot(self, instance: InstanceUuid, snapshot: AssistSnapshot) -> PowerState:
        """Write down that the snapshot is no more; one that the host does not know is none already."""
        guest = await self._operate("delete_volume_snapshot", instance)
        there = self._used(instance, snapshot)
        if snapshot.snapshot_id in there.snapshots:
            left = tuple(one for one in there.snapshots if one != snapshot.snapshot_id)
            # Without a file to merge, what is below goes into the one that the guest writes to.
            into = there.file if snapshot.file_to_merge is None else (snapshot.merge_target_file or there.file)
            self._write_volume(guest, msgspec.structs.replace(there, file=into, snapshots=left))
        return guest.power_state

    def _used(self, instance: InstanceUuid, volume: ExtendedVolume | AssistSnapshot) -> VolumeOnPaper:
        """Return a volume that a guest uses, with what was written down of it."""
        there = self.uses(instance, volume.device)
        if there is not None and there.volume_id == volume.volume_id:
            return msgspec.structs.replace(there, attachment_id=volume.attachment_id)
        return VolumeOnPaper(device=volume.device, volume_id=volume.volume_id, attachment_id=volume.attachment_id)
