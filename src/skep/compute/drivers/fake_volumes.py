"""The volumes of fake guests, on paper: which one a guest uses stands in the log of its host."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.guest_log import GuestLog, VolumeOnPaper
from skep.compute.drivers.live import Copying
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import ExtendedVolume, SwapVolume

SLICES = 4


class FakeVolumes(abc.ABC):
    """The capabilities `swap_volume` and `extend_volume` of fake hosts."""

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
            told = VolumeOnPaper(
                device=one.device, volume_id=one.volume_id, attachment_id=one.attachment_id, size=one.size
            )
            if self.uses(instance, one.device) != told:
                self._write_volume(guest, told)
        return guest.power_state
