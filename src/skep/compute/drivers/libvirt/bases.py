"""The bytes of images below the disks of guests: one file for each image, which all its guests share by hard links.

A file with one link is of no guest. It stays for the next server of its image, for a time that counts from the end of
the last guest (the kernel notes when a file lost a link), and as long as there is room.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.formats import FORMATS
from skep.compute.whole_file import settle_file
from skep.domain.images import Image
from skep.neighbours.images.checked import differs_on_disk

log = logging.getLogger(__name__)

NEW = ".new"
"""Behind the name of a file that is not whole yet."""
FREE_PART = 16
"""Where less than this part of the disk is free, or less than guests were promised, the bytes of images that no guest
uses go."""


class BasesKept(msgspec.Struct, frozen=True, kw_only=True):
    """How much stays that no guest uses."""

    seconds: float = 86400.0
    """So long after the end of its last guest."""
    most: int = 10 << 30
    """Bytes of all of them."""


class ImageBases:
    """The bytes of images of one host. All calls may wait for the disk."""

    def __init__(
        self, directory: Path, kept: BasesKept, copy: Callable[[Path, Path], None], owed: Callable[[], int]
    ) -> None:
        """`copy` makes one file of another that is only read; `owed` tells how many bytes have to stay free for what
        guests were promised. The directory is there."""
        self._directory = directory
        self._kept = kept
        self._copy = copy
        self._owed = owed
        self._linking = threading.Lock()
        self._checked: set[str] = set()
        """Names of files whose bytes were seen to be their image's since the agent started."""

    def link(self, image: Image, file: Path, base: Path, take: Callable[[int], None]) -> None:
        """Give a guest the bytes of an image; `file` has them, for where there are none yet. Raises OSError.

        `take` is told how many bytes it takes that no guest took before; what it raises ends it.
        Raises DriverError `StorageUnavailable` where what was written is not what the image service says of the image.
        """
        shared = self._directory / _key(image, base.suffix)
        if self._linked(shared, base) and self._is_good(image, shared, base):
            take(0)  # it is among what guests use already
            self._make_room(self._owed())
            return
        size = file.stat().st_blocks * 512
        take(size)
        self._make_room(size + self._owed())
        new = base.with_name(f"{base.name}{NEW}")
        self._copy(file, new)
        if (difference := differs_on_disk(new, image)) is not None:
            new.unlink()
            raise DriverError("StorageUnavailable", f"the disk does not give back what was written: {difference}")
        # What guests write later is worth nothing without what is under it.
        settle_file(new)
        with self._linking:
            self._checked.add(shared.name)
            if not shared.exists():
                os.link(new, shared)
        new.replace(base)

    def prune(self) -> None:
        """Remove what no guest uses and is too old, or too much. Raises OSError."""
        ends = time.time() - self._kept.seconds
        with self._linking:
            left = self._kept.most
            # The newest come first, so the oldest are too much.
            for path, about in reversed(self._unused()):
                left -= about.st_blocks * 512
                if about.st_ctime < ends or left < 0:
                    self._remove(path)
        self._make_room(max(shutil.disk_usage(self._directory).total // FREE_PART, self._owed()))

    def _make_room(self, size: int) -> None:
        """Remove what no guest uses, the oldest first, until so many bytes are free. Raises OSError."""
        with self._linking:
            for path, _ in self._unused():
                if shutil.disk_usage(self._directory).free >= size:
                    return
                self._remove(path)

    def _unused(self) -> list[tuple[Path, os.stat_result]]:
        """Return the files of no guest, the longest unused first."""
        found = [(path, path.stat()) for path in self._directory.iterdir()]
        return sorted((one for one in found if one[1].st_nlink == 1), key=lambda one: one[1].st_ctime_ns)

    def _remove(self, path: Path) -> None:
        path.unlink()
        self._checked.discard(path.name)
        log.info("the bytes of an image that no guest uses were removed: %s", path.name)

    def _linked(self, shared: Path, base: Path) -> bool:
        """Link to bytes that are there; tell whether there are any."""
        with self._linking:
            base.unlink(missing_ok=True)
            try:
                os.link(shared, base)
            except FileNotFoundError:
                return False
            return True

    def _is_good(self, image: Image, shared: Path, base: Path) -> bool:
        """Tell whether bytes that stayed are still the image's; what is not is made anew for the guests to come."""
        if shared.name in self._checked:
            return True
        difference = differs_on_disk(base, image)
        if difference is None:
            self._checked.add(shared.name)
            return True
        log.error("the bytes of an image on this disk are damaged, and taken for no more guests: %s", difference)
        with self._linking:
            base.unlink(missing_ok=True)
            shared.unlink(missing_ok=True)
        return False


def base_of(place: Path) -> Path | None:
    """Return the bytes of an image among the files of a guest, if there are any."""
    return next((place / f"base.{one}" for one in FORMATS if (place / f"base.{one}").exists()), None)


def _key(image: Image, suffix: str) -> str:
    said = "\n".join((image.id, image.checksum or "", image.os_hash_value or ""))
    return f"{hashlib.sha256(said.encode()).hexdigest()[:40]}{suffix}"
