"""Where the files of a cold move stand on its target while they arrive, until the driver has made its disks of them.

Each attempt that is a target has a directory of its own. A file that is not whole yet stays when the agent ends: what
there is of it need not come again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from skep.compute.attempts import InstanceRecord
from skep.compute.disk_wire import BLOCK, ZEROS
from skep.compute.drivers.base import DriverError
from skep.compute.partial_file import to_its_end
from skep.domain.disk_doors import DiskManifest, OfferedFile
from skep.domain.ids import InstanceUuid, is_uuid


class Arrivals:
    """The directories of all targets on one host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self, move: str, attempt: int) -> Path:
        """Return the directory of a target; it need not be there. Raises DriverError for what names no move."""
        if not is_uuid(move):
            raise DriverError("InvalidInput", f"{move[:80]} names no move")
        return self._directory / f"{move}.{attempt}"

    async def make(self, move: str, attempt: int, manifest: DiskManifest) -> Path:
        """Return the directory of a target, in which nothing is but what is offered. Raises DriverError, also where the
        disk has not enough room."""
        place = self.place(move, attempt)
        await to_its_end(_make, place, manifest)
        return place

    async def leave(self, move: str, attempt: int) -> None:
        """Remove the directory of a target; none is no error."""
        await to_its_end(lambda: shutil.rmtree(self.place(move, attempt), ignore_errors=True))

    def sweep(self, records: Mapping[InstanceUuid, InstanceRecord]) -> None:
        """Remove the directories of targets that do not wait for disks any more."""
        awaited = {
            self.place(one.move, attempt).name
            for record in records.values()
            for attempt, one in record.open.items()
            if one.move and not one.received and attempt > record.terminate_up_to
        }
        with contextlib.suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if path.name not in awaited:
                    shutil.rmtree(path, ignore_errors=True)


class ArrivingFile:
    """A file of an offer, as far as it is there. Raises DriverError where it cannot be written."""

    def __init__(self, place: Path, offered: OfferedFile) -> None:
        self.path = place / offered.name
        self.offered = offered
        self.size = 0
        """Bytes that are there."""
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None

    async def open(self) -> None:
        """Take up what is there of it: all of that is read."""
        await to_its_end(self._open)

    async def add(self, piece: bytes) -> None:
        """Add bytes."""
        await to_its_end(self._add, piece)

    async def add_hole(self, length: int) -> None:
        """Add zeros that take no room."""
        await to_its_end(self._add_hole, length)

    def is_as_offered(self) -> bool:
        """Tell whether a file that is whole has the digest that was offered."""
        return self._digest.hexdigest() == self.offered.digest

    async def store(self) -> None:
        """Have the disk of this host hold what is there durably, which may take minutes."""
        await to_its_end(self._store)

    async def empty(self) -> None:
        """Begin anew."""
        await to_its_end(self._empty)

    async def close(self) -> None:
        """Leave the file as it is."""
        await to_its_end(self._close)

    def _open(self) -> None:
        with _said():
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)
            if os.fstat(self._file.fileno()).st_size > self.offered.size:
                self._empty()
            while block := self._file.read(BLOCK):
                self._digest.update(block)
                self.size += len(block)

    def _add(self, piece: bytes) -> None:
        with _said():
            left = memoryview(piece)
            while left:
                left = left[self._opened.write(left) :]
            self._digest.update(piece)
            self.size += len(piece)

    def _add_hole(self, length: int) -> None:
        with _said():
            self.size += length
            self._opened.truncate(self.size)
            self._opened.seek(self.size)
            while length > 0:
                self._digest.update(memoryview(ZEROS)[: min(length, BLOCK)])
                length -= BLOCK

    def _store(self) -> None:
        with _said():
            os.fsync(self._opened.fileno())

    def _empty(self) -> None:
        with _said():
            self._opened.truncate(0)
            self._opened.seek(0)
            self.size, self._digest = 0, hashlib.sha256()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def _opened(self) -> BinaryIO:
        assert self._file is not None
        return self._file


class ArrivingFiles:
    """All files of an offer. They stay open from one connection to the next, so that none is read twice."""

    def __init__(self) -> None:
        self._files: dict[str, ArrivingFile] = {}

    async def take_up(self, place: Path, manifest: DiskManifest) -> int:
        """Have a file for each one that is offered; return how many bytes were there and had to be read for that.

        Raises DriverError.
        """
        offers = {one.name: one for one in manifest.files}
        for name, file in tuple(self._files.items()):
            if file.offered != offers.get(name):
                await file.close()
                del self._files[name]
        read = 0
        for offered in manifest.files:
            if offered.name not in self._files:
                file = self._files[offered.name] = ArrivingFile(place, offered)
                await file.open()
                read += file.size
        return read

    def __iter__(self) -> Iterator[ArrivingFile]:
        """Return one after the other."""
        return iter(self._files.values())

    async def store(self) -> dict[str, Path]:
        """Store all files durably, and return where they are. Raises DriverError."""
        for file in self:
            await file.store()
        return {name: file.path for name, file in self._files.items()}

    async def close(self) -> None:
        """Leave all files as they are."""
        async with contextlib.AsyncExitStack() as closing:
            for file in self:
                closing.push_async_callback(file.close)


def _make(place: Path, manifest: DiskManifest) -> None:
    names = {one.name for one in manifest.files}
    with _said():
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        there = 0
        for path in place.iterdir():
            if path.name in names and path.is_file() and not path.is_symlink():
                there += path.stat().st_blocks * 512
            else:
                path.unlink()
        wanted = sum(one.stored for one in manifest.files) - there
        if wanted > shutil.disk_usage(place).free:
            raise OSError(errno.ENOSPC, f"there is no room for {wanted} more bytes")


@contextlib.contextmanager
def _said() -> Iterator[None]:
    """Say what the file system does not do as a driver would."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        kind = "NoSpaceLeft" if full else "StorageUnavailable"
        raise DriverError(kind, f"disks that arrive cannot be stored: {error.strerror}") from error
