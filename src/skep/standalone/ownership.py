"""Whom a new file belongs to: root that writes among the files of another user leaves them to that user."""

from __future__ import annotations

import os
from pathlib import Path


def give(descriptor: int, place: Path) -> None:
    """Give an open file to the owner of the file in this place, or of its directory where there is none yet.

    Only root gives: what another user writes is its own.
    """
    if os.geteuid() != 0:
        return
    try:
        owner = place.stat()
    except FileNotFoundError:
        owner = place.parent.stat()
    os.fchown(descriptor, owner.st_uid, owner.st_gid)


def open_lock(path: Path) -> int:
    """Open a lock file that only its owner may use; a new one belongs to the owner of its directory."""
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        give(lock, path.parent)
        return lock
