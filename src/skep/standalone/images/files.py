"""The bytes of images: a file per image that appears whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
import structlog

from skep.domain.errors import StorageUnavailable
from skep.neighbours.images.files import open_bytes
from skep.standalone.images.refusals import Beyond

log = structlog.get_logger("skep.images")

PIECE = 1 << 20
"""Bytes that are held in memory before they go to the disk."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_TEXT = "Image storage media is full: the rest of the disk is not for images."


class Space(Protocol):
    """How large a disk is, in bytes."""

    @property
    def total(self) -> int:
        """All of it."""

    @property
    def free(self) -> int:
        """What a process that is not root may still write."""


NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]+")


def file_name(image_id: str, created_at: int) -> str:
    """Return the name of an image's file. An image made anew under an old id has a file of its own."""
    return f"{image_id}.{created_at}"


class Received(msgspec.Struct, frozen=True):
    """What arrived."""

    size: int
    md5: str
    sha512: str


class ImageFiles:
    """A directory with one file per image, and `incoming/` for what is not whole yet."""

    def __init__(
        self,
        directory: Path,
        kept_free: Callable[[int], int] = lambda _total: 0,
        space: Callable[[Path], Space] = shutil.disk_usage,
    ) -> None:
        """`kept_free` says how many bytes stay free on a disk of that size: the databases may be on it as well."""
        self._directory = directory
        self._kept_free = kept_free
        self._space = space
        self._incoming = directory / "incoming"
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)

    def sweep(self, kept: set[str]) -> int:
        """Remove what an interrupted upload or delete left; `kept` are names of files in use."""
        left = [*self._incoming.iterdir(), *(path for path in self._directory.iterdir() if path.is_file())]
        orphans = [path for path in left if path.parent == self._incoming or path.name not in kept]
        for path in orphans:
            path.unlink()
        return len(orphans)

    def check_room(self, more: int) -> None:
        """Refuse bytes that would leave less of the disk free than is kept.

        Raises TooLarge.
        """
        space = self._space(self._incoming)
        kept = self._kept_free(space.total)
        if space.free - more < kept:
            log.warning(
                "no room for an image", bytes=more, free=space.free, kept_free=kept, setting="[images] free_mib"
            )
            raise Beyond("disk", FULL_TEXT)

    @contextlib.asynccontextmanager
    async def receive(self, name: str, limit: int) -> AsyncIterator[Incoming]:
        """Take in the bytes of an image; unless they are kept, nothing is left of them.

        Raises TooLarge when the disk is full, StorageUnavailable when it fails.
        """
        target = self._path(name)
        incoming = Incoming(self._incoming / f"{target.name}.{uuid.uuid4().hex}", target, limit, self.check_room)
        try:
            await incoming.open()
            yield incoming
        finally:
            incoming.discard()

    async def open(self, name: str) -> BinaryIO:
        """Open the bytes of an image for reading. A caller that is cancelled leaves nothing open.

        Raises FileNotFoundError.
        """
        return await open_bytes(self._path(name))

    async def remove(self, name: str) -> None:
        """Remove the bytes of an image; whoever reads them still gets them whole."""
        await asyncio.to_thread(self._path(name).unlink, missing_ok=True)

    def _path(self, name: str) -> Path:
        """Return the path of a file. Only a UUID and a number make a name, so no path leads out of the directory."""
        if not NAME.fullmatch(name):
            raise ValueError("not the name of an image's file")
        return self._directory / name


class Incoming:
    """Bytes on their way in."""

    def __init__(self, partial: Path, target: Path, limit: int, check_room: Callable[[int], None]) -> None:
        self._partial = partial
        self._target = target
        self._limit = limit
        self._check_room = check_room
        self._size = 0
        self._waiting = bytearray()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha512 = hashlib.sha512()
        self._file: BinaryIO | None = None
        # Keeps a thread that still writes apart from a caller that was cancelled and closes the file.
        self._lock = threading.Lock()
        self._over = False
        """Nothing is written any more: a thread may come later than the end of the upload that began it."""

    async def open(self) -> None:
        """Make the file."""
        await asyncio.to_thread(self._guarded, self._create)

    async def write(self, chunk: bytes) -> None:
        """Add some bytes.

        Raises TooLarge beyond the limit or when the disk is full, StorageUnavailable when it fails.
        """
        self._size += len(chunk)
        if self._size > self._limit:
            raise Beyond("size", f"The incoming image is too large: it has more than {self._limit} bytes.")
        self._waiting += chunk
        if len(self._waiting) >= PIECE:
            await asyncio.to_thread(self._guarded, self._flush)

    async def keep(self) -> Received:
        """Make the bytes the image's own, durably.

        Raises TooLarge when the disk is full, StorageUnavailable when it fails.
        """
        await asyncio.to_thread(self._guarded, self._finish)
        return Received(self._size, self._md5.hexdigest(), self._sha512.hexdigest())

    def discard(self) -> None:
        """Remove what was not kept."""
        with self._lock:
            self._over = True
            try:
                if self._file is not None:
                    self._file.close()
                self._partial.unlink(missing_ok=True)
            except OSError as error:
                # The caller is told of what failed first; the next start sweeps what is left here.
                log.warning("partial image not removed", path=str(self._partial), error=error.strerror)
            finally:
                self._file = None

    def _guarded(self, work: Callable[[], None]) -> None:
        with self._lock:
            try:
                work()
            except OSError as error:
                if error.errno in FULL:
                    raise Beyond("disk", FULL_TEXT) from error
                raise StorageUnavailable(f"the image cannot be stored: the disk fails ({error.strerror})") from error

    def _create(self) -> None:
        if self._over:
            return
        self._file = self._partial.open("xb", buffering=0)

    def _flush(self) -> None:
        if self._file is None:
            return
        self._check_room(len(self._waiting))
        view = memoryview(self._waiting)
        self._md5.update(view)
        self._sha512.update(view)
        written = 0
        while written < len(view):
            written += self._file.write(view[written:])
        view.release()
        self._waiting.clear()

    def _finish(self) -> None:
        self._flush()
        if self._file is None:
            return
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self._partial.replace(self._target)
        descriptor = os.open(self._target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
