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
from skep.compute.drivers.libvirt.disks import VOLUMES, GuestDisks
from skep.compute.drivers.libvirt.files import guarded
from skep.compute.drivers.libvirt.volume_disks import FileSource, Source, VolumeDisk, backing_files, has_source
from skep.compute.drivers.libvirt.volume_kinds import VolumeKinds, disk_of, in_file
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
    replaces: str = ""
    """The id of the volume in whose place it is to come: its guest does not have it yet."""
    came_as: str = ""
    """Its id when it came into the place of another one, whose id it has in the guest: it may be known by either."""
    leaves: bool = False
    """Whether another one came into its place: its guest has it no more, and it is to be let go of."""

    moves_to: str = ""
    """The path of the file to which its guest is about to write in its place, for a snapshot of it."""

    @property
    def is_guests(self) -> bool:
        """Whether it is a disk of the guest, or is about to be one by an attach."""
        return not self.replaces and not self.leaves

    def is_known_as(self, volume_id: str) -> bool:
        """Tell whether a disk of the guest has this id."""
        return self.is_guests and volume_id in (self.volume.volume_id, self.came_as)


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
        """Return one volume of an attempt's guest; None: it has it not."""
        return next((one for one in self.of(instance, attempt) if one.is_known_as(volume_id)), None)

    def id_in_guest(self, instance: InstanceUuid, attempt: int, volume_id: str) -> str:
        """Return the id that a volume has in its guest: that of the one in whose place it came."""
        found = self.find(instance, attempt, volume_id)
        return volume_id if found is None else found.volume.volume_id

    def ids(self, instance: InstanceUuid, attempt: int) -> set[str]:
        """Return the ids that the volumes of an attempt have in its guest."""
        return {one.volume.volume_id for one in self.of(instance, attempt) if one.is_guests}

    def by_attachment(self, instance: InstanceUuid, attempt: int, attachment_id: str) -> VolumeAtHost | None:
        """Return the volume that an attempt has, or is to get, by an attachment; None: it has none by it."""
        found = (one for one in self.of(instance, attempt) if one.volume.attachment_id == attachment_id)
        return next((one for one in found if not one.leaves), None)

    def disks(self, instance: InstanceUuid, attempt: int, bus: DiskBus) -> list[tuple[ConnectedVolume, VolumeDisk]]:
        """Return the volumes of an attempt that are connected, as its guest has them."""
        return [
            (one.volume, disk_of(one.volume, one.source, bus))
            for one in self.of(instance, attempt)
            if one.source is not None and one.is_guests
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

    def add(self, instance: InstanceUuid, attempt: int, volume: ConnectedVolume, replaces: str = "") -> Source:
        """Connect one more volume; return where QEMU finds it. Raises DriverError; it is not connected then.

        `replaces`: the id, in the guest, of the one in whose place it is to come. It has no place of its own then.
        """
        self._kinds.check(volume)
        new = VolumeAtHost(volume, replaces=replaces)
        kept = self.of(instance, attempt)
        others = tuple(
            one for one in kept if one.leaves or (one.volume.volume_id, one.replaces) != (volume.volume_id, replaces)
        )
        self._write(instance, attempt, (*others, new))
        try:
            with self._connecting:
                source = self._kinds.connect(volume)
        except DriverError:
            self.drop(instance, attempt, new)
            raise
        self._write(instance, attempt, (*others, VolumeAtHost(volume, source, replaces=replaces)))
        return source

    def stand_in(self, instance: InstanceUuid, attempt: int, coming: VolumeAtHost) -> None:
        """Note that the guest uses a volume in the place of the one that it replaces, and let go of that."""
        serial = coming.replaces
        volume = msgspec.structs.replace(coming.volume, volume_id=serial)
        new = VolumeAtHost(volume, coming.source, came_as=coming.volume.volume_id)
        told: list[VolumeAtHost] = []
        for one in self.of(instance, attempt):
            if one.is_known_as(serial):
                told += [new, msgspec.structs.replace(one, leaves=True)]
            elif one != coming:
                told.append(one)
        self._write(instance, attempt, tuple(told))
        self.drop_leaving(instance, attempt)

    def settle(self, instance: InstanceUuid, attempt: int, domain: str) -> None:
        """Note what the XML of a guest names in the place of others: an agent may have died before it did."""
        for one in self.of(instance, attempt):
            if one.replaces and one.source is not None and has_source(domain, one.replaces, one.source):
                self.stand_in(instance, attempt, one)
            moved = FileSource(one.moves_to)
            if one.moves_to and has_source(domain, one.volume.volume_id, moved):
                there = VolumeAtHost(in_file(one.volume, moved.path), moved, came_as=one.came_as)
                self._replace(instance, attempt, one, there)

    def note_file(self, instance: InstanceUuid, attempt: int, kept: VolumeAtHost, path: str) -> None:
        """Note the file to which the guest is about to write; `settle` finds that it does."""
        self._replace(instance, attempt, kept, msgspec.structs.replace(kept, moves_to=path))

    def _replace(self, instance: InstanceUuid, attempt: int, kept: VolumeAtHost, by: VolumeAtHost) -> None:
        told = tuple(by if one == kept else one for one in self.of(instance, attempt))
        self._write(instance, attempt, told)

    def drop_leaving(self, instance: InstanceUuid, attempt: int) -> None:
        """Let go of volumes in whose place others are. One that cannot be goes with the others of its attempt."""
        for one in self.of(instance, attempt):
            if one.leaves:
                try:
                    self.drop(instance, attempt, one)
                except DriverError as error:
                    log.warning("volume %s stays connected: %s", one.volume.volume_id, error.message)

    def drop(self, instance: InstanceUuid, attempt: int, kept: VolumeAtHost) -> None:
        """Let go of what stands so in the file of an attempt. Raises DriverError."""
        self._disconnect(instance, attempt, kept)
        self._write(instance, attempt, tuple(other for other in self.of(instance, attempt) if other != kept))

    def again(self, instance: InstanceUuid, attempt: int) -> dict[str, Source]:
        """Connect what an attempt has once more, before its guest starts: the host may have been switched off.

        Return where QEMU finds each volume now: a device may have another name after a boot. What was to come in the
        place of another one has none then. Raises DriverError.
        """
        kept = self.of(instance, attempt)
        found: dict[str, Source] = {}
        for one in kept:
            if one.is_guests:
                with self._connecting:
                    found[one.volume.volume_id] = self._kinds.connect(one.volume)
        there = tuple(
            msgspec.structs.replace(one, source=found.get(one.volume.volume_id) if one.is_guests else None)
            if one.is_guests or one.replaces
            else one
            for one in kept
        )
        if there != kept:
            self._write(instance, attempt, there)
        return found

    def own(self, instance: InstanceUuid, attempt: int, domain: str) -> None:
        """Give the volumes of an attempt that are files, and what is below them, to the user that QEMU runs as.

        Where libvirt does not know that hosts share them, the end of a guest on another host has left them root's. A
        server of files may keep them from root; then they are as they were, and QEMU says whether it can open them.
        """
        for one in self.of(instance, attempt):
            if isinstance(one.source, FileSource):
                try:
                    for path in (one.source.path, *backing_files(domain, one.volume.volume_id)):
                        self._disks.own_file(Path(path))
                except OSError as error:
                    log.warning("volume %s keeps its owner: %s", one.volume.volume_id, error)

    def extend(self, instance: InstanceUuid, attempt: int, volume_id: str) -> None:
        """Have the host see a volume as large as it is. Raises DriverError."""
        kept = self.find(instance, attempt, volume_id)
        if kept is not None:
            self._kinds.extend(kept.volume)

    def remove(self, instance: InstanceUuid, attempt: int, volume_id: str) -> None:
        """Let go of one volume; one that the attempt has not is no error. Raises DriverError."""
        found = self.find(instance, attempt, volume_id)
        if found is not None:
            self.drop(instance, attempt, found)

    def let_go(self, instance: InstanceUuid, attempt: int) -> None:
        """Let go of all volumes of an attempt. Raises DriverError; the file names all of them as before then.

        The file is not written but removed: this has to work where the disk is full.
        """
        for one in self.of(instance, attempt):
            self._disconnect(instance, attempt, one)
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
