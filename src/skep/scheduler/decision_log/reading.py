"""Reading decision logs: which files there are, and the entries of one, as far as they were written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from skep.scheduler.decision_log.entries import SCHEMA, Entry, Header, UnreadableLine, decode
from skep.scheduler.decision_log.files import SUFFIX

_BLOCK = 1024 * 1024
_GZIP = 31


def segments(path: Path) -> list[Path]:
    """Return the segments of a log, the oldest first: the file itself, or all that are in a directory.

    Raises FileNotFoundError where there is none.
    """
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise FileNotFoundError(f"{path}: there is no decision log")
    return found


def entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of one segment. A last line that was not written to its end is left out.

    Raises Unreadable naming the file and the line, OSError as the disk does.
    """
    number = 0
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = decode(line)
        except UnreadableLine as error:
            raise UnreadableLine(f"{path}, line {number}: {error}") from error
        if number == 1:
            _check_header(path, entry)
        yield entry
    if number == 0:
        raise UnreadableLine(f"{path}: the file has no complete line")


def _check_header(path: Path, entry: Entry) -> None:
    if not isinstance(entry, Header):
        raise UnreadableLine(f"{path}: the first line is not the header of a decision log")
    if entry.schema != SCHEMA:
        raise UnreadableLine(f"{path}: expected format {SCHEMA} of the decision log, got {entry.schema}")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield whole lines of a compressed file that may end anywhere."""
    rest = b""
    stream = zlib.decompressobj(_GZIP)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            try:
                data = stream.decompress(block)
            except zlib.error as error:
                raise UnreadableLine(f"{path}: the file is not compressed or is damaged: {error}") from error
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
