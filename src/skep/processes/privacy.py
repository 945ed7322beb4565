"""Keeps files to their owner: what this process makes from now on, and what stands below a directory already."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

UMASK = 0o077
WRITING = 0o022
CLOSED = 0o077
"""What others may do with a file that is for its owner only: nothing."""
PASSED = 0o066
"""What others may not do with a directory that another user has to get through: look into it, and write."""


def begin() -> None:
    """Make whatever this process and its children write from now on their owner's only."""
    os.umask(UMASK)


def make_parents(path: Path) -> None:
    """Make the directories above one of ours: others may get through them, and not write, unless that is forbidden."""
    before = os.umask(0)
    os.umask(before | WRITING)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def close(path: Path, passed: Collection[Path] = ()) -> bool:
    """Take from others what they may do with one file or directory; tell whether that was anything."""
    return _closed(str(path), None, PASSED if path in passed else CLOSED)


def tighten(root: Path, passed: Collection[Path] = (), left: Collection[Path] = ()) -> int:
    """Take from others what they may do with `root` and all below it; return how many entries were changed.

    Nothing is given that was not there. Through `passed` directories others may still go if they could; what is `left`
    belongs to another user, with all below it. Links are not followed. One that is absent is no fault.
    """
    changed = int(close(root, passed))
    if root.is_symlink() or not root.is_dir():
        return changed
    # The outermost comes first: from then on nobody else changes what is looked at below.
    for folder, names, files, descriptor in os.fwalk(root, follow_symlinks=False):
        here = Path(folder)
        names[:] = [name for name in names if here / name not in left]
        changed += sum(
            _closed(name, descriptor, PASSED if here / name in passed else CLOSED) for name in (*names, *files)
        )
    return changed


def is_open(path: Path) -> bool:
    """Tell whether others may look into a directory, or write."""
    return bool(path.stat().st_mode & PASSED)


def _closed(name: str, directory: int | None, forbidden: int) -> bool:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        mode = stat.S_IMODE(found.st_mode)
        is_ours = os.geteuid() in (0, found.st_uid)
        if not mode & forbidden or not is_ours or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            return False
        os.chmod(name, mode & ~forbidden, dir_fd=directory)
    except FileNotFoundError:  # another process of the installation has removed it meanwhile
        return False
    return True
