"""The file of an image that is not whole yet. Threads write it, each of which ends before the file is removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

Result = TypeVar("Result")


class PartialFile:
    """A file that is kept under another name once it is whole. To be removed at the end, whatever came of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    async def make(self) -> None:
        """Make the file. Raises OSError, also when there is one."""
        await to_its_end(self._make)

    async def write(self, piece: bytes) -> None:
        """Add some bytes. Raises OSError."""
        await to_its_end(self._write, piece)

    async def keep(self, path: Path) -> None:
        """Store the bytes durably and give the file its name. Raises OSError."""
        await to_its_end(self._keep, path)

    async def remove(self) -> None:
        """Close the file, and remove it unless it was kept. Raises OSError."""
        await to_its_end(self._remove)

    def _make(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        left = memoryview(piece)
        while left:
            left = left[self._file.write(left) :]

    def _keep(self, path: Path) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._path.rename(path)

    def _remove(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
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
