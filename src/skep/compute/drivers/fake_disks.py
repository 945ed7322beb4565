"""The disks of fake guests: a file for each, so that what was made and not undone can be seen.

A disk is empty, or has the bytes of an image: as a link to the host's file of the image, which takes no room. How large
a disk that was received is stands in a file beside it: no byte is written for room that nothing is in.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid

ROOTS = "roots"
NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
"""Why a file system makes no link: it is another one, knows none, or has too many of this file."""


class RootDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the root disk of an attempt that received it."""

    gb: int
    """GiB; a disk grows with the flavor of its server and never shrinks."""
    generation: int
    """How many attempts have had its content; one that was built is of the first generation."""


_decoder = json_decoder(RootDisk)


class FakeDisks:
    """The disks of one host, each labelled (instance, attempt)."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._roots = directory.with_name(ROOTS)
        self._made = False

    def make(self, instance: InstanceUuid, attempt: int) -> None:
        """Make an empty disk; one that is there stays. Raises DriverError `StorageUnavailable`."""
        try:
            self._make_directory()
            os.close(os.open(self._path(instance, attempt), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    async def make_from(self, instance: InstanceUuid, attempt: int, image: Path) -> None:
        """Make a disk with the bytes of a file; one that is there is made anew. Raises DriverError."""
        self.remove(instance, attempt)
        path = self._path(instance, attempt)
        try:
            self._make_directory()
            try:
                os.link(image, path)
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                await asyncio.to_thread(shutil.copyfile, image, path)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    async def copy(self, instance: InstanceUuid, attempt: int, source: Path, gb: int, root: Path | None) -> None:
        """Make a disk with a copy of a file, of at least `gb` GiB; one that is there is made anew. Raises DriverError.

        `root` is the file that `kept_root` gave for the attempt whose disk it was.
        """
        self.remove(instance, attempt)
        try:
            self._make_directory()
            self._note_root(instance, attempt, gb, root)
            await asyncio.to_thread(shutil.copyfile, source, self._path(instance, attempt))
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def root(self, instance: InstanceUuid, attempt: int) -> RootDisk | None:
        """Return what is known of a root disk; None for one that was built."""
        path = self.kept_root(instance, attempt)
        return None if path is None else _decoder.decode(path.read_bytes())

    def kept_root(self, instance: InstanceUuid, attempt: int) -> Path | None:
        """Return the file with what is known of a root disk, if there is one."""
        path = self._root(instance, attempt)
        return path if path.exists() else None

    def place(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return where the file of a disk is, if it has one."""
        return Path(self._path(instance, attempt))

    def path(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return the file of a disk that is there. Raises DriverError `InstanceNotFound`."""
        path = self.place(instance, attempt)
        if not path.exists():
            raise DriverError("InstanceNotFound", f"there is no disk of attempt {attempt} of {instance}")
        return path

    async def write_to(self, instance: InstanceUuid, attempt: int, file: Path) -> None:
        """Write the bytes of a disk into a file. Raises DriverError."""
        try:
            await asyncio.to_thread(shutil.copyfile, self._path(instance, attempt), file)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def size(self, instance: InstanceUuid, attempt: int) -> int:
        """Return the bytes of a disk; 0 where there is none."""
        try:
            return os.stat(self._path(instance, attempt)).st_size  # noqa: PTH116
        except OSError:
            return 0

    def content(self, instance: InstanceUuid, attempt: int) -> bytes:
        """Return the bytes of a disk. Raises FileNotFoundError."""
        return Path(self._path(instance, attempt)).read_bytes()

    def remove(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove a disk if it is there. Raises DriverError `StorageUnavailable`."""
        try:
            self._root(instance, attempt).unlink(missing_ok=True)
            os.unlink(self._path(instance, attempt))  # noqa: PTH108
        except FileNotFoundError:
            return
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def labels(self) -> tuple[tuple[InstanceUuid, int], ...]:
        """Return whose disks there are: instance and attempt of each."""
        try:
            names = sorted(os.listdir(self._directory))  # noqa: PTH208
        except FileNotFoundError:
            return ()
        return tuple((InstanceUuid(uuid), int(attempt)) for uuid, _, attempt in (name.partition("_") for name in names))

    def _make_directory(self) -> None:
        if not self._made:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)  # noqa: PTH103
            self._made = True

    def _note_root(self, instance: InstanceUuid, attempt: int, gb: int, root: Path | None) -> None:
        before = RootDisk(gb=0, generation=1) if root is None else _decoder.decode(root.read_bytes())
        after = RootDisk(gb=max(gb, before.gb), generation=before.generation + 1)
        self._roots.mkdir(mode=0o700, exist_ok=True)
        self._root(instance, attempt).write_bytes(msgspec.json.encode(after))

    def _root(self, instance: InstanceUuid, attempt: int) -> Path:
        return self._roots / f"{instance}_{attempt}"

    def _path(self, instance: InstanceUuid, attempt: int) -> str:
        return f"{self._directory}/{instance}_{attempt}"
