"""A decision log on disk: segments of compressed lines, bounded in all, written by a thread of its own.

The scheduler only puts entries into a queue. What it hands over is never changed again, so the thread can make lines of
it meanwhile; where many wait, the scheduler makes the lines itself, so that it is known how many bytes wait. Nobody
waits for the disk: where it fails or does not keep up, entries are left out until the next segment, which begins with
a snapshot.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, BinaryIO

import msgspec
import structlog

from skep.domain.clock import Clock
from skep.placement.settings import SchedulerSettings
from skep.scheduler.decision_log.entries import SCHEMA, Entry, Header, Kept, Known, encode

SUFFIX = ".jsonl.gz"
MEBIBYTE = 1024 * 1024
SEGMENTS = 8
"""A log within its bound is about so many segments."""
SMALLEST_SEGMENT = 64 * 1024
WRITE_SECONDS = 0.2
"""How often what waits is written; a crash loses no more."""
MOST_WAITING = 200_000
"""Entries that may wait for the disk."""
MOST_WAITING_BYTES = 64 * MEBIBYTE
"""Of lines that may wait: what users ask for may be long."""
UNMEASURED = 512
"""So many entries may wait without being lines yet."""
RETRY_SECONDS = 60.0
"""How long after a failure the next segment begins."""
_GZIP = 31
"""zlib's number for a gzip stream with the largest window."""
_AT_ONCE = 64
"""Records of a snapshot that become lines without letting other threads run."""
_LINES = 1024
"""Lines that are compressed together."""

log = structlog.get_logger("skep.scheduler")


class _Snapshot(msgspec.Struct):
    """What a segment begins with."""

    records: dict[str, dict[str, Any]]
    known: Known


class DecisionLog:
    """One scheduler's log in a directory, which other schedulers and earlier runs may share."""

    def __init__(
        self,
        directory: Path,
        settings: SchedulerSettings,
        clock: Clock,
        *,
        most_bytes: int,
        release: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most_bytes`: of all files in the directory. Nothing is touched before `open`."""
        self.segment = 0
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._release = release
        self._monotonic = monotonic
        self._waiting: deque[Entry | bytes | _Snapshot] = deque()
        self._put_bytes = self._taken_bytes = 0
        """Of lines ever put into the queue, which the scheduler counts, and taken from it, which the thread does."""
        self._collects = False
        self._left_out = False
        """Entries were left out because the disk did not keep up."""
        self._wants_snapshot = False
        self._stop = Event()
        self._thread: Thread | None = None
        self._writer = _Writer(directory, most_bytes)

    # --- the scheduler's side -----------------------------------------------------------------------

    def open(self, run: str) -> None:
        """Begin to write in the name of a scheduler's life; the first segment begins at the next moment that suits."""
        self._run = run
        self._wants_snapshot = True
        self._thread = Thread(target=self._write_all, name="decision-log", daemon=True)
        self._thread.start()

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next segment is to begin."""
        return self._wants_snapshot

    def begin(self, records: dict[str, dict[str, Any]], known: Known) -> None:
        """Begin a segment by a snapshot."""
        self._wants_snapshot = False
        self._collects = True
        self.segment += 1
        self._waiting.append(_Snapshot(records, known))

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the lines that wait for the disk; the first entries that wait are no lines yet."""
        return self._put_bytes - self._taken_bytes

    def note(self, entry: Entry) -> None:
        """Take the next entry."""
        if not self._collects:
            return
        waiting = len(self._waiting)
        if waiting < UNMEASURED:
            self._waiting.append(entry)
            return
        line = encode(entry)
        if waiting >= MOST_WAITING or self.waiting_bytes + len(line) > MOST_WAITING_BYTES:
            log.warning(
                "decision log fell behind and began again with a snapshot",
                waiting=waiting,
                bytes=self.waiting_bytes,
            )
            self._collects, self._left_out = False, True
            return
        self._put_bytes += len(line)
        self._waiting.append(line)

    def close(self) -> None:
        """Write what waits and end. Waits for the disk."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------

    def _write_all(self) -> None:
        again = float("inf")
        while True:
            last = self._stop.wait(WRITE_SECONDS)
            try:
                if self._write_waiting() or self._left_out:
                    self._left_out, self._wants_snapshot = False, True
                if last:
                    self._writer.end()
            except Exception as error:  # noqa: BLE001  # the scheduler goes on whatever becomes of its log
                log.error("decision log not written", directory=str(self._directory), error=str(error))
                self._collects = False
                self._leave_out_waiting()
                self._writer.abandon()
                again = self._monotonic() + RETRY_SECONDS
            if self._monotonic() >= again:
                again, self._wants_snapshot = float("inf"), True
            if last:
                return

    def _write_waiting(self) -> bool:
        """Write what waits now; tell whether the segment is full."""
        writer = self._writer
        lines: list[bytes] = []
        some = len(self._waiting)
        for _ in range(some):
            item = self._waiting.popleft()
            if isinstance(item, bytes):
                self._taken_bytes += len(item)
            if isinstance(item, _Snapshot) or len(lines) == _LINES:
                writer.write(lines)
                lines = []
            if isinstance(item, _Snapshot):
                self._begin_segment(item)
            else:
                lines.append(item if isinstance(item, bytes) else encode(item))
        writer.write(lines)
        if some:
            writer.flush()
        return writer.is_full

    def _leave_out_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if isinstance(item, bytes):
                self._taken_bytes += len(item)

    def _begin_segment(self, snapshot: _Snapshot) -> None:
        header = Header(
            schema=SCHEMA,
            release=self._release,
            run=self._run,
            segment=self.segment,
            at=self._clock.now(),
            settings=self._settings,
        )
        self._writer.begin(f"{header.at:016d}-{self._run[:8]}-{self.segment:06d}{SUFFIX}")
        self._writer.write([encode(header)])
        for page in _pages(snapshot.records):
            self._writer.write(page)
        self._writer.write([encode(snapshot.known)])
        self._writer.snapshot_ends()


def _pages(records: dict[str, dict[str, Any]]) -> Iterator[list[bytes]]:
    """Yield lines, a few at a time: compressing them is when other threads may run."""
    page: list[bytes] = []
    for namespace, values in records.items():
        for name, value in values.items():
            page.append(encode(Kept(namespace, name, value)))
            if len(page) == _AT_ONCE:
                yield page
                page = []
    yield page


class _Writer:
    """The files. All methods but the first raise OSError as the disk does."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        self._directory = directory
        self._most = most_bytes
        self._file: BinaryIO | None = None
        self._path: Path | None = None
        self._stream: Any = None
        self._size = 0
        self._full_at = 0

    @property
    def is_full(self) -> bool:
        """Whether the next segment is due."""
        return self._file is not None and self._size >= self._full_at

    def begin(self, name: str) -> None:
        """End the segment under way and begin another; the oldest files go where there are too many."""
        self.end()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = self._directory / name
        self._file = self._path.open("wb")
        self._path.chmod(0o600)
        self._stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        self._size = 0
        self._full_at = max(self._most // SEGMENTS, SMALLEST_SEGMENT)
        self._make_room()

    def snapshot_ends(self) -> None:
        """A segment takes at least as much after its snapshot as the snapshot took, or most would be snapshots."""
        self.flush()
        self._full_at = max(self._full_at, 2 * self._size)
        self._make_room()

    def write(self, lines: list[bytes]) -> None:
        """Append lines; without a segment they are none of anything."""
        if self._file is not None and lines:
            self._put(self._stream.compress(b"\n".join(lines) + b"\n"))

    def flush(self) -> None:
        """Hand all that was appended to the system, so that it can be read."""
        if self._file is not None:
            self._put(self._stream.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()

    def end(self) -> None:
        """End the segment under way, if any."""
        if self._file is not None:
            self._put(self._stream.flush())
            self._file.flush()
            self.abandon()

    def abandon(self) -> None:
        """Let the segment be as it is: what was written can be read."""
        if self._file is not None:
            file, self._file = self._file, None
            # What could not be written was told already; closing tries it once more, and closes all the same.
            with contextlib.suppress(OSError):
                file.close()

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._size += len(data)

    def _make_room(self) -> None:
        """Remove the oldest files, so that this segment fits in full."""
        files = [path for path in sorted(self._directory.glob(f"*{SUFFIX}")) if path != self._path]
        sizes = {path: path.stat().st_size for path in files}
        total = sum(sizes.values()) + self._full_at
        for path in files:
            if total <= self._most:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path]
