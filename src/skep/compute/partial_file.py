"""The file of an image that is not whole yet. Threads write it, each of which ends before the file is removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

Result = TypeVar("Result")


class PartialFile:
    """A file that is kept under another name once it is whole. To be removed or closed at the end, whatever came of it:
    what was closed may be gone on with.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    async def make(self, *, anew: bool) -> int:
        """Make the file, or unless `anew` go on with one that is there; return its bytes. Raises OSError."""
        return await to_its_end(self._make, anew)

    async def write(self, piece: bytes) -> None:
        """Add some bytes. Raises OSError."""
        await to_its_end(self._write, piece)

    async def keep(self, path: Path) -> None:
        """Store the bytes durably and give the file its name. Raises OSError."""
        await to_its_end(self._keep, path)

    async def close(self) -> None:
        """Close the file; it stays. Raises OSError."""
        await to_its_end(self._close)

    async def remove(self) -> None:
        """Close the file, and remove it unless it was kept. Raises OSError."""
        await to_its_end(self._remove)

    def _make(self, anew: bool) -> int:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        if anew:
            self._file.truncate(0)
        return os.fstat(descriptor).st_size

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]

    def _keep(self, path: Path) -> None:
        assert self._file is not None
        os.fchmod(self._file.fileno(), 0o400)
        os.fsync(self._file.fileno())
        self._path.rename(path)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _remove(self) -> None:
        try:
            self._close()
        finally:
            self._path.unlink(missing_ok=True)


async def to_its_end(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run work in a thread, wait for its end and return its result. A task that is cancelled meanwhile is so then.

    Nothing stops a thread: what it has in hand can be closed and removed only once it has ended.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()
        raise cancelled
    return running.result()
