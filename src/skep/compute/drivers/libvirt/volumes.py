"""The volumes that attempts have connected to a host: a file beside the disks of each attempt says which.

A volume is named there before it is connected, and the name goes after it was let go of, so that whatever dies leaves
nothing connected that no file names. The file may hold passwords: only root, or the agent's user, reads it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.buses import DiskBus
from skep.compute.drivers.libvirt.disks import VOLUMES, GuestDisks, guarded
from skep.compute.drivers.libvirt.volume_disks import Source, VolumeDisk
from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds, disk_of
from skep.compute.whole_file import write_whole
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import ConnectedVolume

log = logging.getLogger(__name__)


class VolumeAtHost(msgspec.Struct, frozen=True, omit_defaults=True):
    """A volume that an attempt has, or is about to get."""

    volume: ConnectedVolume
    source: Source | None = None
    """Where QEMU finds it; None: it may be connected or not."""


class VolumesAtHost(msgspec.Struct, frozen=True):
    """The content of the file."""

    volumes: tuple[VolumeAtHost, ...] = ()
    host: str = ""
    """Which host it is: others may see the same directories. Releases before this field did not say."""


_decoder = json_decoder(VolumesAtHost)


class GuestVolumes:
    """The volumes of the guests of one host. All calls may block; of one server there is one at a time."""

    def __init__(self, host: str, disks: GuestDisks, kinds: VolumeKinds) -> None:
        self._host = host
        self._disks = disks
        self._kinds = kinds
        self._connecting = threading.Lock()
        """Held while a volume is connected or let go of: several guests of the host may share one."""

    def of(self, instance: InstanceUuid, attempt: int) -> tuple[VolumeAtHost, ...]:
        """Return the volumes of an attempt, in the order in which it got them."""
        return _read(self._path(instance, attempt)).volumes

    def find(self, instance: InstanceUuid, attempt: int, volume_id: str) -> VolumeAtHost | None:
        """Return one volume of an attempt; None: it has it not."""
        return next((one for one in self.of(instance, attempt) if one.volume.volume_id == volume_id), None)

    def disks(self, instance: InstanceUuid, attempt: int, bus: DiskBus) -> list[tuple[ConnectedVolume, VolumeDisk]]:
        """Return the volumes of an attempt that are connected, as its guest has them."""
        return [
            (one.volume, disk_of(one.volume, one.source, bus))
            for one in self.of(instance, attempt)
            if one.source is not None
        ]

    def connect(self, instance: InstanceUuid, attempt: int, volumes: Sequence[ConnectedVolume]) -> None:
        """Connect these volumes, in place of what the attempt has. Raises DriverError; none is connected then."""
        for one in volumes:
            self._kinds.check(one)
        self.let_go(instance, attempt)
        self._disks.make_place(instance, attempt)
        try:
            for one in volumes:
                self.add(instance, attempt, one)
        except DriverError:
            self.let_go(instance, attempt)
            raise

    def add(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume) -> Source:
        """Connect one more volume; return where QEMU finds it. Raises DriverError; it is not connected then."""
        self._kinds.check(volume)
        others = tuple(one for one in self.of(instance, attempt) if one.volume.volume_id != volume.volume_id)
        self._write(instance, attempt, (*others, VolumeAtHost(volume)))
        try:
            with self._connecting:
                source = self._kinds.connect(volume)
        except DriverError:
            self.remove(instance, attempt, volume.volume_id)
            raise
        self._write(instance, attempt, (*others, VolumeAtHost(volume, source)))
        return source

    def again(self, instance: InstanceUuid, attempt: int) -> dict[str, Source]:
        """Connect what an attempt has once more, before its guest starts: the host may have been switched off.

        Return where QEMU finds each volume now: a device may have another name after a boot. Raises DriverError.
        """
        kept = self.of(instance, attempt)
        found: dict[str, Source] = {}
        for one in kept:
            with self._connecting:
                found[one.volume.volume_id] = self._kinds.connect(one.volume)
        there = tuple(VolumeAtHost(one.volume, found[one.volume.volume_id]) for one in kept)
        if there != kept:
            self._write(instance, attempt, there)
        return found

    def extend(self, instance: InstanceUuid, attempt: int, volume_id: str) -> None:
        """Have the host see a volume as large as it is. Raises DriverError."""
        kept = self.find(instance, attempt, volume_id)
        if kept is not None:
            self._kinds.extend(kept.volume)

    def remove(self, instance: InstanceUuid, attempt: int, volume_id: str) -> None:
        """Let go of one volume; one that the attempt has not is no error. Raises DriverError."""
        kept = self.of(instance, attempt)
        for one in kept:
            if one.volume.volume_id == volume_id:
                self._disconnect(instance, attempt, one)
                self._write(instance, attempt, tuple(other for other in kept if other is not one))

    def let_go(self, instance: InstanceUuid, attempt: int) -> None:
        """Let go of all volumes of an attempt. Raises DriverError."""
        for one in self.of(instance, attempt):
            self.remove(instance, attempt, one.volume.volume_id)
        guarded(lambda: self._path(instance, attempt).unlink(missing_ok=True))

    def _disconnect(self, instance: InstanceUuid, attempt: int, kept: VolumeAtHost) -> None:
        mine = self._path(instance, attempt)
        with self._connecting:
            others = [_read(path) for path in self._disks.files_of(VOLUMES) if path != mine]
            here = [one for other in others if other.host in ("", self._host) for one in other.volumes]
            if any(one.volume.volume_id == kept.volume.volume_id for one in here):
                log.info("volume stays for another guest of this host: %s", kept.volume.volume_id)
                return
            self._kinds.disconnect(kept.volume, kept.source)

    def _path(self, instance: InstanceUuid, attempt: int) -> Path:
        return self._disks.place(instance, attempt) / VOLUMES

    def _write(self, instance: InstanceUuid, attempt: int, volumes: tuple[VolumeAtHost, ...]) -> None:
        path = self._path(instance, attempt)
        guarded(lambda: write_whole(path, msgspec.json.encode(VolumesAtHost(volumes, self._host))))


def _read(path: Path) -> VolumesAtHost:
    """Return what a file says; nothing where it is not there. Raises DriverError."""
    try:
        return _decoder.decode(guarded_bytes(path))
    except msgspec.DecodeError as error:
        raise DriverError("StorageUnavailable", f"{path}: {error}") from error


def guarded_bytes(path: Path) -> bytes:
    """Return the content of a file of volumes, or that of one which names none."""

    def read() -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b"{}"

    return guarded(read)
