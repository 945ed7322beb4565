"""One rewriting of a journal beside its use: a thread writes a fresh file, which takes up what is written meanwhile.

begun ──write (thread)──> written ──catch_up──> both files take every entry ──sync, finish──> the fresh one only
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from skep.compute.entries import Entry

_encoder = msgspec.json.Encoder()


def line_of(entry: Entry) -> bytes:
    """Return an entry as it stands in a journal."""
    return _encoder.encode(entry) + b"\n"


def lines_of(entries: Iterable[Entry]) -> bytes:
    """Return entries as they stand in a journal."""
    return b"".join(line_of(entry) for entry in entries)


class Compaction:
    """A fresh journal in the making. `write` and `sync` are for threads, all else is for the event loop."""

    def __init__(self, path: Path, entries: list[Entry]) -> None:
        self.file = -1
        self.size = 0
        self.caught_up = False
        self._entries = entries
        self._fresh = path.with_suffix(".new")
        self._path = path
        self._missed: list[bytes] = []
        self._error: OSError | None = None

    def write(self) -> None:
        """Write what is known of all instances. Raises OSError."""
        self._put(lines_of(self._entries))
        os.fdatasync(self.file)

    def catch_up(self) -> None:
        """Take up what was appended meanwhile; from now on the fresh file gets every entry at once."""
        self.caught_up = True
        for line in self._missed:
            self.append(line)
        self._missed.clear()

    def append(self, line: bytes) -> None:
        """Take one line more. A failure ends the compaction (see `finish`), never what the line is about."""
        if not self.caught_up:
            self._missed.append(line)
            return
        try:
            written = os.write(self.file, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._error = error
        self.size += len(line)

    def sync(self) -> None:
        """Make durable what the fresh file has. Raises OSError."""
        if self.caught_up:
            os.fdatasync(self.file)

    def finish(self) -> None:
        """Put the fresh file in the place of the journal. Raises OSError when it lacks something."""
        if self._error is not None:
            raise self._error
        self._fresh.replace(self._path)

    def abandon(self) -> None:
        """Close what was begun; the journal stays as it is."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _put(self, data: bytes) -> None:
        self.file = os.open(self._fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        view = memoryview(data)
        while view:
            view = view[os.write(self.file, view) :]
        self.size = len(data)
