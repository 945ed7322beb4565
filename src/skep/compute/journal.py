"""The host's journal: what the agent promised and did, kept across restarts in one append-only file of JSON lines.

An entry is written at once, so it survives the death of the process; `synced` makes it survive the death of the
machine. Only an accepted build is waited for: every other entry that power loss may take is found again by looking
at the guests or by asking the cell conductor, whose answers are the same for a repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import structlog

from skep.compute.attempts import Attempts
from skep.compute.compaction import Compaction, line_of, lines_of
from skep.compute.entries import Entry
from skep.compute.flusher import Flusher
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured, StorageUnavailable

log = structlog.get_logger("skep.compute")

COMPACT_BYTES = 8 * 1024 * 1024
"""A running agent rewrites its journal when it has grown by so much."""

_decoder: msgspec.json.Decoder[Entry] = json_decoder(Entry)


class Journal:
    """One host's journal; `attempts` is what its entries add up to."""

    def __init__(self, path: Path, flusher: Flusher, *, remembered: int = 256) -> None:
        self.attempts = Attempts(remembered)
        self._path = path
        self._flusher = flusher
        self._file = -1
        self._size = 0
        self._compact_at = COMPACT_BYTES
        self._compaction: Compaction | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._unwritten = b""
        """Entries that are taken into account and could not be written, in their order."""
        self._renamed = False
        """The directory does not durably name the file yet."""
        # Held while the file is synced (in a thread) or exchanged.
        self._exchange = threading.Lock()

    def open(self) -> None:
        """Read the journal and compact it.

        Raises Misconfigured when another agent has it open or a line before its end cannot be read.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open_locked(self._path)
        data = self._path.read_bytes()
        entries, self._size = _read(self._path, data)
        for entry in entries:
            self.attempts.apply(entry)
        if self._size < len(data):
            # A full disk may put the compaction off, and the next entry must not be glued to half a line.
            os.ftruncate(self._file, self._size)
        if data != lines_of(self.attempts.snapshot()):
            self._compaction = Compaction(self._path, list(self.attempts.snapshot()))
            self._compact_now(self._compaction)
        _sync_directory(self._path.parent)

    def record(self, entry: Entry) -> None:
        """Write an entry and take it into account.

        Raises StorageUnavailable, and then nothing of it is written or taken into account.
        """
        self._append(entry)
        self.attempts.apply(entry)
        self._compact_if_large()

    def note(self, entry: Entry) -> None:
        """Take an entry into account and write it if that is possible.

        For what has happened already: a full disk must not stop the agent from telling what became of a build. What
        could not be written is written before the next entry, or by `catch_up`.
        """
        try:
            self._append(entry)
        except StorageUnavailable as error:
            self._unwritten += line_of(entry)
            log.error("journal entry not stored", path=str(self._path), entry=type(entry).__name__, error=str(error))
        self.attempts.apply(entry)
        self._compact_if_large()

    def catch_up(self) -> None:
        """Write what could not be written before, if that is possible now."""
        if self._unwritten and self._file >= 0:
            with contextlib.suppress(StorageUnavailable):
                self._write(b"")

    async def synced(self) -> None:
        """Wait until all that was written is durable. Raises StorageUnavailable."""
        await self._flusher.sync(self)

    def sync(self) -> None:
        """Make durable what was written; the flusher calls it in a thread. Raises OSError."""
        with self._exchange:
            compaction, file = self._compaction, self._file
            if file < 0:
                return
            os.fdatasync(file)
            if compaction is not None:
                compaction.sync()
            if self._renamed:
                self._renamed = False
                _sync_directory(self._path.parent)

    async def compacted(self) -> None:
        """Wait for the compaction that is under way, if there is one."""
        if self._compacting is not None:
            await self._compacting

    def close(self) -> None:
        """Make everything durable and let another agent open the journal."""
        self.catch_up()
        with self._exchange:
            if self._file < 0:
                return
            file, self._file = self._file, -1
        try:
            os.fdatasync(file)
        except OSError as error:
            log.error("journal not synced at its closing", path=str(self._path), error=str(error))
        finally:
            os.close(file)

    def _append(self, entry: Entry) -> None:
        if self._file < 0:
            raise StorageUnavailable("the host's journal is closed")
        self._write(line_of(entry))

    def _write(self, last: bytes) -> None:
        line = self._unwritten + last
        try:
            written = os.write(self._file, line)
            if written != len(line):
                # Half a line must not stay: the next entry would be glued to it.
                os.ftruncate(self._file, self._size)
                raise StorageUnavailable("the host's journal cannot be stored: no space left")
        except OSError as error:
            raise StorageUnavailable(f"the host's journal cannot be stored: {error.strerror}") from error
        self._size += written
        self._unwritten = b""
        if self._compaction is not None:
            self._compaction.append(line)

    def _compact_if_large(self) -> None:
        """Begin to compact, beside whatever the event loop does; without one (a tool, a test) at once."""
        if self._size < self._compact_at or self._compaction is not None or self._file < 0:
            return
        compaction = self._compaction = Compaction(self._path, list(self.attempts.snapshot()))
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._compact_now(compaction)
        else:
            self._compacting = loop.create_task(self._compact(compaction), name=f"compact {self._path}")

    async def _compact(self, compaction: Compaction) -> None:
        try:
            await self._flusher.run(compaction.write)
            compaction.catch_up()
            # What was durable in the old file is so in the fresh one before it takes its place.
            await self._flusher.run(self.sync)
            replaced = self._exchange_for(compaction)
        except OSError as error:
            self._not_compacted(error)
            await self._flusher.run(partial(self._close, compaction.abandon))
        else:
            await self._flusher.run(partial(self._close, partial(os.close, replaced)))

    def _compact_now(self, compaction: Compaction) -> None:
        try:
            compaction.write()
            compaction.catch_up()
            os.close(self._exchange_for(compaction))
        except OSError as error:
            self._not_compacted(error)
            compaction.abandon()

    def _exchange_for(self, compaction: Compaction) -> int:
        """Let the fresh file be the journal and return the old one, to be closed when nobody syncs it any more."""
        if self._file < 0:
            raise OSError("the journal was closed")
        compaction.finish()
        replaced, self._file = self._file, compaction.file
        self._size, self._compact_at = compaction.size, compaction.size + COMPACT_BYTES
        self._compaction, self._renamed = None, True
        return replaced

    def _not_compacted(self, error: OSError) -> None:
        self._compaction = None
        self._compact_at = self._size + COMPACT_BYTES
        log.error("journal not compacted", path=str(self._path), error=str(error))

    def _close(self, close: Callable[[], None]) -> None:
        with self._exchange:
            close()


def _open_locked(path: Path) -> int:
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise Misconfigured(f"another agent uses {path}: two agents must not share a directory") from error
    return file


def _read(path: Path, data: bytes) -> tuple[list[Entry], int]:
    """Decode all lines; return them, and how many bytes they have.

    What the death of a machine tore off at the end is left out.
    """
    lines = data.split(b"\n")
    entries: list[Entry] = []
    size = 0
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entries.append(_decoder.decode(line))
        except msgspec.DecodeError as error:
            if any(_readable(later) for later in lines[number:-1]):
                raise Misconfigured(
                    f"{path} line {number} cannot be read ({error}); restore or move the file"
                ) from error
            log.warning("torn end of a journal left out", path=str(path), line=number)
            break
        size += len(line) + 1
    return entries, size


def _readable(line: bytes) -> bool:
    try:
        _decoder.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
