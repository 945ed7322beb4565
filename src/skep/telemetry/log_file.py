"""A log file of one process: JSON lines, readable by its owner only, of bounded size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LARGEST = 64 << 20
"""Bytes after which a file becomes its own predecessor (`NAME.1`), whose own predecessor goes."""


class LogFile:
    """Appends lines. A file that cannot be written costs its lines, never the work that they are about."""

    def __init__(self, path: Path, largest: int = LARGEST, *, descriptors: tuple[int, ...] = ()) -> None:
        """The file, and the directory that it is in, are made with the first line.

        `descriptors` lead into the file too, also into each that follows it: what is written there past this class
        (the last words of an interpreter) stands beside the lines.
        """
        self.path = path
        self.lost = 0
        """Lines that could not be written since the last that could."""
        self._largest = largest
        self._descriptor: int | None = None
        self._size = 0
        self._descriptors = descriptors

    def write(self, line: str) -> None:
        """Append a line."""
        data = f"{line}\n".encode(errors="replace")
        try:
            if self._descriptor is None or self._size + len(data) > self._largest:
                self._open()
            if self.lost:
                data = f'{{"event": "log lines lost", "lines": {self.lost}}}\n'.encode() + data
            assert self._descriptor is not None
            self._size += os.write(self._descriptor, data)
            self.lost = 0
        except OSError:
            self.lost += 1

    def close(self) -> None:
        """Close the file; a further line opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size + 1 >= self._largest or self._size:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        for number in self._descriptors:
            os.dup2(self._descriptor, number)
