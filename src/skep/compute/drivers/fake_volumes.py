"""The volumes of fake guests, on paper: which one a guest uses stands in the log of its host."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.guest_log import GuestEvent, GuestLog, VolumeOnPaper
from skep.compute.drivers.live import Copying
from skep.domain.clock import Clock
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.volumes import AssistSnapshot, ConnectedVolume, ExtendedVolume, SwapVolume

SLICES = 4


class PromisedVolumes:
    """What guests are to have once they are there: a file for each attempt, which outlives the agent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._promised = {path.name: _decoder.decode(path.read_bytes()) for path in directory.glob("*_*[0-9]")}

    def keep(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Keep these in place of what the attempt had. Raises OSError."""
        name = f"{instance}_{attempt}"
        papers = tuple(_on_paper(one) for one in volumes)
        self._directory.mkdir(parents=True, exist_ok=True)
        fresh = self._directory / f"{name}.new"
        fresh.write_bytes(msgspec.json.encode(papers))
        fresh.replace(self._directory / name)
        self._promised[name] = papers

    def of(self, instance: InstanceUuid, attempt: int) -> tuple[VolumeOnPaper, ...]:
        """Return what an attempt is to have."""
        return self._promised.get(f"{instance}_{attempt}", ())

    def drop(self, instance: InstanceUuid, attempt: int) -> None:
        """Forget what an attempt was to have."""
        name = f"{instance}_{attempt}"
        if name in self._promised:
            (self._directory / name).unlink(missing_ok=True)
            del self._promised[name]


_decoder = json_decoder(tuple[VolumeOnPaper, ...])


class FakeVolumes(abc.ABC):
    """The capabilities of fake hosts that are about volumes."""

    _log: GuestLog
    _clock: Clock
    _promised: PromisedVolumes

    @property
    @abc.abstractmethod
    def copy_delay(self) -> float:
        """Seconds that each slice takes."""

    @abc.abstractmethod
    async def _operate(self, operation: str, instance: InstanceUuid) -> Guest:
        """Take the operation's time and return the guest that it is about."""

    @abc.abstractmethod
    def _append(self, happened: GuestEvent) -> None:
        """Write down what happened to a guest."""

    @property
    def decrypts_volumes(self) -> bool:
        """On paper all volumes are alike."""
        return True

    def uses(self, instance: InstanceUuid, device: str) -> VolumeOnPaper | None:
        """Return the volume that a guest uses by the name of a disk, as far as the driver was told."""
        return self._log.volumes.get(instance, {}).get(device)

    async def connect_volumes(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Keep what is told until the guest is there, which then has them."""
        guest = self._log.guests.get(instance)
        if guest is None or not guest.whole or guest.attempt != attempt:
            self._keep_promised(instance, attempt, volumes)

    def _keep_promised(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        try:
            self._promised.keep(instance, attempt, volumes)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def promised(self, instance: InstanceUuid, attempt: int) -> list[VolumeOnPaper]:
        """Return the volumes that an attempt has connected for a guest that is still to come."""
        return [*self._promised.of(instance, attempt)]

    async def attach_volume(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> PowerState:
        """Write down that the guest has it."""
        guest = await self._operate("attach_volume", instance)
        if self._with_attempt(guest, attempt) and self.volume(instance, volume.volume_id) is None:
            self._write_volume(guest, _on_paper(volume))
        return guest.power_state

    async def detach_volume(self, instance: InstanceUuid, attempt: int, volume_id: str) -> PowerState:
        """Write down that the guest has it no more."""
        guest = await self._operate("detach_volume", instance)
        there = self.volume(instance, volume_id) if self._with_attempt(guest, attempt) else None
        if there is not None:
            self._write_volume(guest, msgspec.structs.replace(there, gone=True))
        return guest.power_state

    def volume(self, instance: InstanceUuid, volume_id: str) -> VolumeOnPaper | None:
        """Return a volume that a guest uses, as far as the driver was told."""
        return next((one for one in self.volumes(instance) if one.volume_id == volume_id), None)

    def volumes(self, instance: InstanceUuid) -> list[VolumeOnPaper]:
        """Return the volumes that a guest uses, as far as the driver was told."""
        return [*self._log.volumes.get(instance, {}).values()]

    def _write_volume(self, guest: Guest, volume: VolumeOnPaper) -> None:
        """Write down which volume a guest uses from now on."""
        self._append(msgspec.structs.replace(as_it_is(guest, self._clock.now()), volume=volume))

    def _get_connected(self, guest: Guest) -> None:
        """Write down which volumes a guest has that has just been made."""
        for one in self._promised.of(guest.instance, guest.attempt):
            self._write_volume(guest, one)
        self._promised.drop(guest.instance, guest.attempt)

    def _with_attempt(self, guest: Guest, attempt: int) -> bool:
        if guest.attempt != attempt:
            raise DriverError("InstanceNotFound", f"there is no guest {guest.instance} of attempt {attempt}")
        return True

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


def as_it_is(guest: Guest, at: int) -> GuestEvent:
    """Return an event that leaves a guest as it is, at a time: what else it says is for its caller."""
    off = guest.power_state in (PowerState.SHUTDOWN, PowerState.PAUSED, PowerState.SUSPENDED)
    return GuestEvent(
        at=at,
        event="powered_off" if off else "powered_on",
        instance=guest.instance,
        attempt=guest.attempt,
        left=guest.power_state,
        rescued=guest.rescued,
    )


def _on_paper(volume: ConnectedVolume) -> VolumeOnPaper:
    return VolumeOnPaper(device=volume.device, volume_id=volume.volume_id, attachment_id=volume.attachment_id)
