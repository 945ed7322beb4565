"""The bytes of a host's disk: what guests were promised, what they have not written of it yet, and what images take.

Schedulers promise disks by their sizes. What images take is taken from what may be promised, but for copies that no
guest uses: those go when the disk gets short.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bases import NEW
from skep.compute.drivers.libvirt.formats import read_qcow2
from skep.compute.image_cache import DiskUsage

BLOCK = 512
"""Bytes in which the kernel counts what a file takes."""
RESCUE = "rescue"
"""The disk of a rescue, in qcow2. It counts as far as it is larger than the disks of its server together."""
OF_IMAGES = ("base.", f"{RESCUE}.")
"""How the names of files with the bytes of images begin."""


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is on a disk, in bytes."""

    images: int
    """What images take that guests use, and those that the agent has fetched."""
    promised: int
    """The disks of guests, as large as they may become. Of two attempts of a server the larger one counts."""
    owed: int
    """What guests have not written of their disks."""


class RoomSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a disk is promised."""

    reserved: int = 0
    """Bytes that are not."""
    ratio: float = 1.0
    """So many times what is left."""
    fetched: Path | None = None
    """The directory of the images that the agent has fetched."""


class _Place(msgspec.Struct, kw_only=True):
    """What the directory of an attempt has."""

    promised: int = 0
    written: int = 0
    rescue: int = 0
    rescue_written: int = 0

    def with_rescue(self) -> _Place:
        """Return what it has, the disk of a rescue as far as that counts."""
        more = max(self.rescue - self.promised, 0)
        return _Place(promised=self.promised + more, written=self.written + min(self.rescue_written, more))


class _Coming(msgspec.Struct, kw_only=True):
    """What an attempt is about to get."""

    disks: int
    image: int = 0
    """Bytes of an image that are being copied for it."""


class DiskRoom:
    """The disk on which the guests of a host are. All calls look at its files; they may be made by several threads."""

    def __init__(
        self,
        guests: Path,
        settings: RoomSettings,
        *,
        overlay: str,
        whole: Collection[str],
        usage: Callable[[Path], DiskUsage] | None = None,
    ) -> None:
        """`guests` has a directory for each attempt. In it `overlay` is a disk in qcow2, `whole` are disks as large as
        their files, holes and all. `usage` tells how full the disk is."""
        self._guests = guests
        self._settings = settings
        self._overlay = overlay
        self._whole = whole
        self._usage = usage
        self._coming: dict[str, _Coming] = {}
        """By the name of the attempt's directory."""
        self._looking = threading.Lock()
        """Held from a look at the files until what was found free is noted as taken."""

    def use(self) -> DiskUse:
        """Return what is on the disk. Raises OSError."""
        with self._looking:
            return self._use()

    def owed(self, directory: Path | None = None) -> int:
        """Return how many bytes have to be free for guests, as far as disks are promised once; 0 of a directory that is
        on another disk. Raises OSError."""
        if directory is not None and directory.stat().st_dev != self._guests.stat().st_dev:
            return 0
        return int(self.use().owed / max(self._settings.ratio, 1.0))

    def take(self, place: Path, disks: int, image: int) -> None:
        """Note that an attempt gets disks of so many bytes, and so many of an image that no guest uses yet.

        A server that is promised nothing more by it, as in a rebuild or a rescue, gets what is free. Raises DriverError
        `NoSpaceLeft` where the bytes were promised to others; OSError.
        """
        with self._looking:
            before = self._use().promised
            self._coming[place.name] = _Coming(disks=disks, image=image)
            usage = shutil.disk_usage(self._guests) if self._usage is None else self._usage(self._guests)
            use = self._use()
            room = int((usage.total - self._settings.reserved - use.images) * self._settings.ratio)
            if use.promised > room and (use.promised > before or usage.free < image):
                del self._coming[place.name]
                raise DriverError(
                    "NoSpaceLeft",
                    f"servers were promised {use.promised} bytes of disks, and beside images there is room for {room}",
                )

    def has_image(self, place: Path) -> None:
        """Note that the bytes of an image are where they belong, or come no more."""
        with self._looking:
            if place.name in self._coming:
                self._coming[place.name].image = 0

    def forget(self, place: Path) -> None:
        """Note that there is nothing of an attempt any more."""
        with self._looking:
            self._coming.pop(place.name, None)

    def _use(self) -> DiskUse:
        images: dict[int, int] = {}
        servers: dict[str, int] = {}
        owed = 0
        for directory in _entries(self._guests):
            coming = self._coming.get(directory.name)
            found = _Place()
            for entry in _entries(directory):
                self._count(entry, found, images, is_coming=coming is not None and coming.image > 0)
            found = found.with_rescue()
            if coming is not None:
                found.promised = max(found.promised, coming.disks)
            server = directory.name.rpartition("_")[0]
            servers[server] = max(servers.get(server, 0), found.promised)
            owed += max(found.promised - found.written, 0)
        arriving = sum(one.image for one in self._coming.values())
        return DiskUse(
            images=sum(images.values()) + arriving + self._of_agent(), promised=sum(servers.values()), owed=owed
        )

    def _of_agent(self) -> int:
        """Return the bytes of the images that the agent has fetched, where they are on the same disk."""
        if self._settings.fetched is None:
            return 0
        mine = self._guests.stat().st_dev
        found = (_stat(entry) for entry in _entries(self._settings.fetched))
        return sum(about.st_blocks * BLOCK for about in found if about is not None and about.st_dev == mine)

    def _count(self, entry: os.DirEntry[str], found: _Place, images: dict[int, int], *, is_coming: bool) -> None:
        """Count one file of an attempt; that of an image by its inode, since guests share it."""
        about = _stat(entry)
        if about is None:
            return
        taken = about.st_blocks * BLOCK
        name = entry.name.removesuffix(NEW)
        if name.startswith(OF_IMAGES):
            if not (is_coming and entry.name.endswith(NEW)):
                images[about.st_ino] = taken
        elif name in self._whole:
            found.promised += max(about.st_size, taken)
            found.written += taken
        elif entry.name == self._overlay:
            found.promised += max(_size(Path(entry.path)), taken)
            found.written += taken
        elif entry.name == RESCUE:
            found.rescue = max(_size(Path(entry.path)), taken)
            found.rescue_written = taken


def _size(path: Path) -> int:
    """Return the bytes of the disk in a qcow2 file; 0 of one that cannot be read."""
    try:
        return read_qcow2(path).size
    except (FileNotFoundError, DriverError):
        return 0


def _entries(directory: os.DirEntry[str] | Path) -> Iterator[os.DirEntry[str]]:
    """Yield what is in a directory; nothing of one that has gone meanwhile."""
    try:
        with os.scandir(directory) as found:
            yield from found
    except FileNotFoundError:
        return


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
