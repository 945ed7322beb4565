"""Files of agents that are whole or not there, whatever ends the process or the machine."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in place of what is there, if anything; no other user may read it. Raises OSError.

    The owner of what is there keeps it, where root writes.

    What is written under another name before that name is the file's is left behind by a crash, and written over.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if os.geteuid() == 0 and path.exists():
            there = path.stat()
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def settle_file(path: Path) -> None:
    """Wait until a file, or what a directory itself says, is on the disk. Raises OSError."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def settle_directory(directory: Path) -> None:
    """Wait until the files of a directory, and their names and its own, are on the disk. Raises OSError."""
    for path in (*filter(Path.is_file, directory.iterdir()), directory, directory.parent):
        settle_file(path)
