"""The files of guests: one directory for each attempt, so that an attempt is undone by removing its directory.

| file | what |
|---|---|
| `disk` | the root disk, qcow2: what was written since it was made |
| `disk.raw` | or else the whole root disk, raw: what a host makes with `disks = "raw"` |
| `disk.lvm` | or else the name of the logical volume that is the root disk, with `disks = "lvm"` |
| `base.raw`, `base.qcow2` | the bytes of the image, a hard link that all guests of the image share; under `disk` |
| `ephemeral`, `swap` | raw |
| `rescue`, `rescue.raw`, `rescue.qcow2` | the rescue disk, as `disk` and what is under it |
| `volumes` | the volumes that are connected for the guest, and how |
| `interfaces` | the ports of Neutron that are plugged for the guest, and how |
| `mediated` | the mediated devices that the guest has |
| `config.iso`, `config.img` | the config drive, as a CD-ROM and as a disk with FAT |
| `console.log` | what the guest wrote to its serial line |

`disk` names what is under it without a directory, so both can be copied anywhere together. QEMU's user and its group
may enter the directories, no other user of the host. As root everything but the shared bytes belongs to the user that
QEMU runs as.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from skep.compute.drivers.base import DriverError, NamedResource
from skep.compute.drivers.libvirt.bases import NEW, BasesKept, ImageBases, base_of
from skep.compute.drivers.libvirt.commands import LONG, Owner, run
from skep.compute.drivers.libvirt.disk_room import BLOCK, RESCUE, DiskRoom, RoomSettings
from skep.compute.drivers.libvirt.domain import BackingFile, DiskFile, target_of
from skep.compute.drivers.libvirt.drives import VOLUME, lay_out, write_drive
from skep.compute.drivers.libvirt.files import guarded, handed_out
from skep.compute.drivers.libvirt.formats import (
    FORMATS,
    SECTOR,
    format_of,
    image_format,
    read_qcow2,
    virtual_size,
    write_qcow2,
)
from skep.compute.drivers.libvirt.logical_volumes import LogicalVolumes, device_of, is_device
from skep.compute.drivers.libvirt.means import is_q35
from skep.compute.drivers.libvirt.options import DiskForm
from skep.compute.drivers.libvirt.properties import Wishes
from skep.compute.whole_file import settle_directory, settle_file, write_whole
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance

T = TypeVar("T")

DISK = "disk"
RAW_DISK = "disk.raw"
VOLUME_DISK = "disk.lvm"
ROOTS = (VOLUME_DISK, DISK, RAW_DISK)
"""The root disk, of which a guest has one. Its name says its format, which is never guessed."""
EPHEMERAL = "ephemeral"
SWAP = "swap"
VOLUMES = "volumes"
INTERFACES = "interfaces"
"""Beside the disks: which ports of Neutron are plugged."""
MEDIATED = "mediated"
"""Beside the disks: which mediated devices there are."""
CONFIG_DRIVE = "config.iso"
FAT_DRIVE = "config.img"
"""A config drive that is a disk with FAT. Where it is, the guest has it in place of the other, which is there, too: one
that comes live has what it had."""
CONSOLE = "console.log"
BASES = "bases"
GUESTS = "guests"
BLANK = 1 << 20
"""Bytes of the root disk of a server without an image whose flavor has none."""
FAT_BYTES = 64 << 20
"""Of a config drive with FAT, as Nova's."""
GIB = 1 << 30
MIB = 1 << 20


class GuestDisks:
    """The files of the guests of one host. All calls may wait for the disk; of one server there is one at a time."""

    def __init__(
        self,
        directory: Path,
        owner: Owner | None,
        kept: BasesKept | None = None,
        form: DiskForm = "overlay",
        logical: LogicalVolumes | None = None,
        *,
        fat_drives: bool = False,
        room: RoomSettings | None = None,
    ) -> None:
        """`kept` says what stays of the bytes of images that no guest uses; `form` is that of new root disks, `logical`
        makes those of `lvm`; with `fat_drives` config drives are disks with FAT; `room` says how much of the disk is
        promised. Raises DriverError.
        """
        self._fat_drives = fat_drives
        self._form = form
        self._make_root = {"overlay": self._make_overlay, "raw": self._make_whole, "lvm": self._make_volume}[form]
        self._logical = logical or LogicalVolumes("")
        self._guests = directory / GUESTS
        self._owner = owner
        for path in (self._guests, directory / BASES):
            self._make_directory(path)
        self._room = DiskRoom(
            self._guests, room or RoomSettings(), overlay=DISK, whole=frozenset({RAW_DISK, EPHEMERAL, SWAP})
        )
        self._bases = ImageBases(
            directory / BASES,
            kept or BasesKept(),
            lambda file, new: self._copy(file, new, shared=True),
            self._room.owed,
        )
        guarded(self._bases.prune)

    def place(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return the directory of an attempt, if it has one."""
        return self._guests / f"{instance}_{attempt}"

    def console(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return the file with what the guest of an attempt wrote to its console."""
        return self.place(instance, attempt) / CONSOLE

    def consoles(self) -> list[Path]:
        """Return the console files of all guests that have one."""
        return self.files_of(CONSOLE)

    def files_of(self, name: str) -> list[Path]:
        """Return the files of this name of all attempts that have one."""
        return sorted(self._guests.glob(f"*/{name}"))

    def make_missing(self, instance: Instance, attempt: int, resource: NamedResource) -> None:
        """Make a disk that needs no image; one that is there stays. Raises DriverError."""
        place = self.place(instance.uuid, attempt)
        there = (place / resource.name).exists() if resource.name != DISK else root_of(place) is not None
        if not there:
            self._make_directory(place)
            guarded(lambda: _MAKERS[resource.name](self, instance, place))

    def make_from_image(self, instance: Instance, attempt: int, image: Path) -> None:
        """Make the root disk of the bytes of the server's image; one that is there stays. Raises DriverError."""
        described = instance.image
        if described is None:
            raise DriverError("InternalError", f"{instance.uuid} has no image")
        place = self.place(instance.uuid, attempt)
        if root_of(place) is not None:
            return
        disk_format = image_format(described)
        size = guarded(lambda: virtual_size(image, disk_format))
        wanted = instance.flavor.root_gb * GIB
        if 0 < wanted < size:
            raise DriverError(
                "FlavorDiskTooSmall", f"the image is of a disk of {size} bytes, the flavor has {wanted} for it"
            )
        self._make_directory(place)
        base = place / f"base.{disk_format}"
        root = max(size, wanted)
        disks = root + _beside_root(instance)
        try:
            guarded(lambda: self._bases.link(described, image, base, lambda more: self._take(place, disks, more)))
        finally:
            self._room.has_image(place)
        guarded(lambda: self._make_root(place, root, base))

    def taken_by_images(self) -> int:
        """Return the bytes that images take of what the host may promise. Raises DriverError."""
        # Logical volumes are promised of their group alone.
        return 0 if self._form == "lvm" else guarded(self._room.use).images

    def owed(self, directory: Path) -> int:
        """Return what the disk of a directory owes to guests: bytes that they have not written yet. Raises OSError."""
        return self._room.owed(directory)

    def _take(self, place: Path, disks: int, image: int) -> None:
        """See that the disks of an attempt have room beside what was promised and images. Raises DriverError."""
        if self._form != "lvm":
            guarded(lambda: self._room.take(place, disks, image))

    @contextmanager
    def _taking(self, place: Path, disks: int, image: Path | None) -> Iterator[None]:
        """Have room for the disks of an attempt while the bytes of an image are copied for it. Raises DriverError."""
        self._take(place, disks, 0 if image is None else guarded(image.stat).st_blocks * BLOCK)
        try:
            yield
        finally:
            self._room.has_image(place)

    def write_drive(self, instance: InstanceUuid, attempt: int, files: Mapping[str, bytes]) -> None:
        """Make the config drive of an attempt, in place of one that is there. Raises DriverError."""
        place = self.place(instance, attempt)
        self._make_directory(place)

        def write() -> None:
            new = self._fresh(place, CONFIG_DRIVE)
            write_drive(files, new)
            new.replace(place / CONFIG_DRIVE)

        guarded(write)
        if self._fat_drives:
            self._write_fat_drive(place, files)
        else:
            guarded(lambda: (place / FAT_DRIVE).unlink(missing_ok=True))

    def _write_fat_drive(self, place: Path, files: Mapping[str, bytes]) -> None:
        new = guarded(lambda: self._fresh(place, FAT_DRIVE))
        laid = place / f"{FAT_DRIVE}.files"
        guarded(lambda: lay_out(laid, files, self._owner))
        guarded(lambda: os.truncate(new, FAT_BYTES))
        run(("mkfs.vfat", "-n", VOLUME, new.name), place, self._owner)
        names = sorted({name.split("/")[0] for name in files})
        # It goes back to where it was started, which QEMU's user has to be able to read.
        run(("mcopy", "-s", "-Q", "-i", f"../{new.name}", *names, "::"), laid, self._owner)
        guarded(lambda: shutil.rmtree(laid))
        guarded(lambda: new.replace(place / FAT_DRIVE))

    def settle_drive(self, instance: InstanceUuid, attempt: int, used: str) -> None:
        """Keep of the config drives of an attempt whose guest came live the one that is in its XML, `used`."""
        path = self.place(instance, attempt) / FAT_DRIVE
        if target_of(used, str(path)) is None:
            guarded(lambda: path.unlink(missing_ok=True))

    def root(self, instance: InstanceUuid, attempt: int, wishes: Wishes) -> DiskFile:
        """Return the root disk of an attempt. Raises DriverError `InstanceNotFound` where it is not there."""
        path = self.root_path(instance, attempt)
        if is_device(path):
            # What was read from it for a move that came to nothing is of another time.
            guarded(lambda: (self.place(instance, attempt) / RAW_DISK).unlink(missing_ok=True))
            return DiskFile(path=str(path), format="raw", bus=wishes.disk_bus, device=True)
        if path.name == RAW_DISK:
            return DiskFile(path=str(path), format="raw", bus=wishes.disk_bus)
        base = base_of(path.parent)
        backing = None if base is None else BackingFile(path=str(base), format=base.suffix.removeprefix("."))
        return DiskFile(path=str(path), format="qcow2", bus=wishes.disk_bus, backing=backing)

    def root_path(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return the file, or the device, of a root disk. Raises DriverError `InstanceNotFound` where there is none."""
        path = root_of(self.place(instance, attempt))
        if path is None:
            raise _no_disk(instance, attempt)
        return device_of(guarded(path.read_text)) if path.name == VOLUME_DISK else path

    def in_volume(self, instance: InstanceUuid, attempt: int) -> bool:
        """Tell whether the root disk of an attempt is a logical volume."""
        return (self.place(instance, attempt) / VOLUME_DISK).exists()

    def others(self, instance: InstanceUuid, attempt: int, wishes: Wishes) -> tuple[DiskFile, ...]:
        """Return the disks of an attempt besides the root disk in the order in which its guest has them."""
        place = self.place(instance, attempt)
        found = [
            DiskFile(path=str(place / name), format="raw", bus=wishes.disk_bus)
            for name in (EPHEMERAL, SWAP)
            if (place / name).exists()
        ]
        if (place / FAT_DRIVE).exists():
            found.append(DiskFile(path=str(place / FAT_DRIVE), format="raw", bus=wishes.disk_bus))
        elif (place / CONFIG_DRIVE).exists():
            bus = wishes.cdrom_bus or ("sata" if is_q35(wishes.machine) else "ide")
            found.append(DiskFile(path=str(place / CONFIG_DRIVE), format="raw", bus=bus, cdrom=bus != "virtio"))
        return tuple(found)

    def make_rescue(self, instance: InstanceUuid, attempt: int, image: Path | None) -> DiskFile:
        """Make a rescue disk, in place of one that is there, and return it: over the bytes of the image, or of the
        server's own image, or empty where it has none.

        Raises DriverError: `NoSpaceLeft` where the host has no room for one that is larger than the server's disks.
        """
        place = self.place(instance, attempt)
        self.remove_rescue(instance, attempt)
        try:
            return self._make_rescue(place, image)
        except BaseException:
            self.remove_rescue(instance, attempt)
            raise

    def _make_rescue(self, place: Path, image: Path | None) -> DiskFile:
        own, base = base_of(place), None
        if image is not None:
            kind = guarded(lambda: format_of(image))
            if kind not in FORMATS:
                raise DriverError("ImageUnacceptable", f"the rescue image is of the format {kind}")
            base = place / f"{RESCUE}.{kind}"
            size = guarded(lambda: virtual_size(image, kind))
            with self._taking(place, size, image):
                self._copy(image, base, shared=True)
        elif own is not None:
            kind = own.suffix.removeprefix(".")
            base, size = own, guarded(lambda: virtual_size(own, kind))
        else:
            size = BLANK
        guarded(lambda: self._make_overlay(place, max(size, SECTOR), base, RESCUE))
        backing = None if base is None else BackingFile(path=str(base), format=base.suffix.removeprefix("."))
        return DiskFile(path=str(place / RESCUE), format="qcow2", backing=backing)

    def rescue_path(self, instance: InstanceUuid, attempt: int) -> str:
        """Return where the rescue disk of an attempt is, if it has one."""
        return str(self.place(instance, attempt) / RESCUE)

    def remove_rescue(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove the rescue disk of an attempt, if it has one. Raises DriverError."""
        place = self.place(instance, attempt)
        for name in (RESCUE, f"{RESCUE}{NEW}", *(f"{RESCUE}.{one}" for one in FORMATS)):
            guarded(lambda name=name: (place / name).unlink(missing_ok=True))  # type: ignore[misc]
        self._room.forget(place)

    def own(self, instance: InstanceUuid, attempt: int) -> None:
        """Give the files of an attempt to the user that QEMU runs as: a guest that stopped has left them root's."""
        if self._owner is None:
            return
        for path in self.place(instance, attempt).iterdir():
            mine = (
                path.name.startswith((".", "base.", "rescue.", VOLUMES, INTERFACES, MEDIATED, VOLUME_DISK))
                or path.name == CONSOLE
            )
            if not mine and path.is_file():
                os.chown(path, self._owner.uid, self._owner.gid)
            if path.name == VOLUME_DISK:
                os.chown(device_of(path.read_text()), self._owner.uid, self._owner.gid)

    def own_file(self, path: Path) -> None:
        """Give a file that is none of these to the user that QEMU runs as. Raises OSError."""
        if self._owner is not None and path.stat().st_uid != self._owner.uid:
            os.chown(path, self._owner.uid, self._owner.gid)

    def kept(self, instance: InstanceUuid, attempt: int) -> dict[str, Path]:
        """Return the files that have what a guest wrote, without its volumes.

        What is in a logical volume is read into a file first. Raises DriverError `InstanceNotFound`.
        """
        place = self.place(instance, attempt)
        if not place.exists():
            raise _no_disk(instance, attempt)
        base = base_of(place)
        if self.in_volume(instance, attempt) and not (place / RAW_DISK).exists():
            self.copy_out(instance, attempt, "raw", place / RAW_DISK)
        names = (DISK, RAW_DISK, *(() if base is None else (base.name,)), EPHEMERAL)
        return {name: place / name for name in names if (place / name).exists()}

    def receive(self, instance: Instance, attempt: int, files: Mapping[str, Path]) -> None:
        """Make the disks of an attempt as copies, at least as large as the flavor says. Raises DriverError."""
        place = self.place(instance.uuid, attempt)
        self._clear(place)
        self._make_directory(place)
        base = next((name for name in files if name.startswith("base.")), None)
        root = 0 if instance.is_volume_backed else instance.flavor.root_gb * GIB
        # Schedulers asked for the disks alone, and the guest is put aside by now: what its image takes is not refused.
        with self._taking(place, root + _beside_root(instance), None):
            for name in filter(None, (base, EPHEMERAL if EPHEMERAL in files else None)):
                self._copy(files[name], place / name, shared=name == base)
        if instance.flavor.ephemeral_gb and EPHEMERAL in files:
            guarded(lambda: _grow(place / EPHEMERAL, instance.flavor.ephemeral_gb * GIB))
        if instance.is_volume_backed:
            return
        wanted = instance.flavor.root_gb * GIB
        if RAW_DISK in files and self._form == "lvm":
            received = files[RAW_DISK]
            size = max(guarded(received.stat).st_size, wanted)
            guarded(lambda: self._make_volume(place, size, None, received.absolute()))
            return
        if RAW_DISK in files:
            # A file keeps its form when it moves: the host's is for those that it makes.
            new = place / f"{RAW_DISK}{NEW}"
            self._copy(files[RAW_DISK], new)
            guarded(lambda: _grow(new, wanted))
            guarded(lambda: new.replace(place / RAW_DISK))
            return
        header = guarded(lambda: read_qcow2(files[DISK]))
        if header.backing != (base or ""):
            raise DriverError("InvalidDiskInfo", f"the disk that was received is over {header.backing or 'nothing'}")
        self._copy(files[DISK], place / f"{DISK}{NEW}")
        if wanted > header.size:
            run(("qemu-img", "resize", "-q", "-f", "qcow2", f"{DISK}{NEW}", str(wanted)), place, self._owner)
        guarded(lambda: (place / f"{DISK}{NEW}").replace(place / DISK))

    def make_place(self, instance: InstanceUuid, attempt: int) -> Path:
        """Make the directory of an attempt; return it. Raises DriverError."""
        place = self.place(instance, attempt)
        self._make_directory(place)
        return place

    def lend(self, instance: InstanceUuid, attempt: int, other: int) -> None:
        """Give another attempt, of a host that sees these directories, the same disks under its name: the files are
        there until both have gone. Raises DriverError."""
        place = self.place(instance, attempt)
        others = {name: place / name for name in (SWAP, FAT_DRIVE) if (place / name).exists()}
        lent = {**self.kept(instance, attempt), **others}

        def link() -> None:
            for name, path in lent.items():
                target = self.place(instance, other) / name
                target.unlink(missing_ok=True)
                os.link(path, target)

        guarded(link)

    def preserve(self, instance: Instance, attempt: int, former: int) -> None:
        """Give an attempt a copy of the ephemeral disk of another one, where that has one. Raises DriverError."""
        kept, place = self.place(instance.uuid, former) / EPHEMERAL, self.place(instance.uuid, attempt)
        if kept.exists():
            self._make_directory(place)
            self._copy(kept, place / f"{EPHEMERAL}{NEW}")
            guarded(lambda: (place / f"{EPHEMERAL}{NEW}").replace(place / EPHEMERAL))
            guarded(lambda: settle_directory(place))

    def copy_out(self, instance: InstanceUuid, attempt: int, disk_format: str, file: Path) -> None:
        """Write the root disk of a guest that is off into a file. Raises DriverError."""
        place = self.place(instance, attempt)
        self.own(instance, attempt)
        new = guarded(lambda: self._fresh(place, "snapshot"))
        root, base = self.root_path(instance, attempt), base_of(place)
        kind = "raw" if root.name == RAW_DISK or is_device(root) else "qcow2"
        where = f"host_device,file.filename={root}" if is_device(root) else f"file,file.filename={root.name}"
        source = f"driver={kind},file.driver={where}"
        if base is not None and kind == "qcow2":
            source += f",backing.driver={base.suffix[1:]},backing.file.driver=file,backing.file.filename={base.name}"
        with handed_out(new, file):
            run(
                ("qemu-img", "convert", "-q", "--image-opts", "-O", disk_format, source, new.name),
                place,
                self._owner,
                seconds=LONG,
            )

    def remove_one(self, instance: InstanceUuid, attempt: int, name: str) -> None:
        """Remove one disk and the config drive of an attempt; with what is planned first its directory.

        Raises DriverError.
        """
        place = self.place(instance, attempt)
        if name in (DISK, VOLUMES):
            self.remove(instance, attempt)
            return
        for one in (name, CONFIG_DRIVE, FAT_DRIVE):
            for path in (place / one, place / f"{one}{NEW}"):
                guarded(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]

    def remove(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove all files of an attempt, and bytes of images that stayed long enough. Raises DriverError."""
        place = self.place(instance, attempt)
        self._clear(place)
        self._room.forget(place)
        guarded(self._bases.prune)

    def prune(self) -> None:
        """Remove bytes of images that no guest uses and that stayed long enough, or are too many. Raises OSError."""
        self._bases.prune()

    def _make_directory(self, path: Path) -> None:
        def make() -> None:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._owner is not None:
                os.chown(path, os.geteuid(), self._owner.gid)
                path.chmod(0o710)

        guarded(make)

    def _fresh(self, place: Path, name: str) -> Path:
        """Return an empty file beside the disks, which QEMU's user may write and no other may read."""
        path = place / f"{name}{NEW}"
        path.unlink(missing_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        if self._owner is not None:
            os.chown(path, self._owner.uid, self._owner.gid)
        return path

    def _make_overlay(self, place: Path, size: int, base: Path | None, name: str = DISK) -> None:
        """Make a disk. What is under it is not opened: its size and format are known."""
        new = self._fresh(place, name)
        under = () if base is None else (base.name, base.suffix.removeprefix("."))
        write_qcow2(new, size, *under)
        new.replace(place / name)

    def _make_whole(self, place: Path, size: int, base: Path | None) -> None:
        """Make a disk with nothing under it: a copy of the bytes of an image, or empty. What is empty takes no room."""
        new = self._fresh(place, RAW_DISK)
        if base is not None:
            run(
                ("qemu-img", "convert", "-q", "-f", base.suffix.removeprefix("."), "-O", "raw", base.name, new.name),
                place,
                self._owner,
                seconds=LONG,
            )
        _grow(new, size)
        settle_file(new)
        new.replace(place / RAW_DISK)

    def _make_volume(self, place: Path, size: int, base: Path | None, received: Path | None = None) -> None:
        """Make a logical volume of the bytes of an image, or of a raw disk that came from another attempt, or empty.

        Its name is written down before it is there: an attempt that is undone has it removed, too.
        """
        new, name = place / f"{VOLUME_DISK}{NEW}", self._logical.name(place.name)
        write_whole(new, name.encode())
        device = self._logical.make(name, size)
        if base is not None:
            if self._owner is not None:
                os.chown(device, self._owner.uid, self._owner.gid)
            self._logical.fill(name, base.suffix.removeprefix("."), base.name, place, self._owner)
        if received is not None:
            # The agent's own file, whose bytes nothing interprets.
            self._logical.fill(name, "raw", str(received), place, None)
        new.replace(place / VOLUME_DISK)
        settle_directory(place)

    def _clear(self, place: Path) -> None:
        """Remove the files of an attempt, and its logical volume. Raises DriverError."""
        for named in (place / VOLUME_DISK, place / f"{VOLUME_DISK}{NEW}"):
            if named.exists():
                # An older release may have left the file empty on a full disk: all volumes are called alike.
                self._logical.remove(guarded(named.read_text) or self._logical.name(place.name))
        guarded(lambda: shutil.rmtree(place) if place.exists() else None)

    def _copy(self, source: Path, target: Path, *, shared: bool = False) -> None:
        """Copy a file, its holes as holes. `shared`: guests read it and none writes it. Raises DriverError."""
        guarded(lambda: target.unlink(missing_ok=True))
        run(
            ("cp", "--reflink=auto", "--sparse=always", "--", str(source.absolute()), str(target)),
            target.parent,
            None,
            seconds=LONG,
        )

        def give() -> None:
            target.chmod(0o440 if shared else 0o600)
            if self._owner is not None:
                os.chown(target, os.geteuid() if shared else self._owner.uid, self._owner.gid)

        guarded(give)

    def _make_nothing(self, instance: Instance, place: Path) -> None:
        """Volumes are connected just before the guest is made."""

    def _make_blank(self, instance: Instance, place: Path) -> None:
        self._make_root(place, max(instance.flavor.root_gb * GIB, BLANK), None)

    def _make_ephemeral(self, instance: Instance, place: Path) -> None:
        new = self._fresh(place, EPHEMERAL)
        _grow(new, instance.flavor.ephemeral_gb * GIB)
        run(("mkfs.ext4", "-q", "-F", "-L", "ephemeral0", new.name), place, self._owner)
        new.replace(place / EPHEMERAL)

    def _make_swap(self, instance: Instance, place: Path) -> None:
        new = self._fresh(place, SWAP)
        _grow(new, instance.flavor.swap_mb * MIB)
        run(("mkswap", "-q", new.name), place, self._owner)
        new.replace(place / SWAP)


_MAKERS: dict[str, Callable[[GuestDisks, Instance, Path], None]] = {
    DISK: GuestDisks._make_blank,
    EPHEMERAL: GuestDisks._make_ephemeral,
    SWAP: GuestDisks._make_swap,
    VOLUMES: GuestDisks._make_nothing,
}


def root_of(place: Path) -> Path | None:
    """Return the root disk among the files of a guest, if there is one."""
    return next((place / name for name in ROOTS if (place / name).exists()), None)


def _no_disk(instance: InstanceUuid, attempt: int) -> DriverError:
    return DriverError("InstanceNotFound", f"there is no disk of attempt {attempt} of {instance}")


def _beside_root(instance: Instance) -> int:
    """Return the bytes of the disks that the flavor of a server has beside the root disk."""
    return instance.flavor.ephemeral_gb * GIB + instance.flavor.swap_mb * MIB


def _grow(path: Path, size: int) -> None:
    if path.stat().st_size < size:
        os.truncate(path, -(-size // SECTOR) * SECTOR)
