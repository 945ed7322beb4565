"""What guests wrote to their consoles: read from the end, and kept within bounds while the agent runs.

QEMU appends to the file and never cuts it; a guest can write as much as it likes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

LOOK = 10.0
"""Seconds between two looks at the sizes of the files."""


def end_of(path: Path, most: int) -> bytes:
    """Return the last bytes of a file, nothing of one that is not there. Raises OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    try:
        size = os.fstat(file).st_size
        return os.pread(file, most, max(size - most, 0))
    finally:
        os.close(file)


def trim(path: Path, keep: int) -> None:
    """Cut a file that is more than twice as large down to its last `keep` bytes. Raises OSError.

    Who appends to it goes on behind them. What is written in the moment of the cut may be lost.
    """
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(file).st_size
        if size > 2 * keep:
            end = os.pread(file, keep, size - keep)
            os.ftruncate(file, 0)
            os.write(file, end)
    finally:
        os.close(file)


def copy_end(path: Path, to: Path, most: int) -> None:
    """Make a file of the last bytes of another, for the host that a guest goes to. Raises OSError."""
    to.write_bytes(end_of(path, most))


def go_on_writing(before: Path, console: Path) -> None:
    """Write what a guest said elsewhere into its console, unless something is there. Raises OSError."""
    file = os.open(console, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not os.fstat(file).st_size and before.exists():
            os.write(file, before.read_bytes())
    finally:
        os.close(file)


class ConsoleTrimmer:
    """Looks at the files now and then, in a thread of its own."""

    def __init__(self, files: Callable[[], Iterable[Path]], keep: int, prune: Callable[[], None]) -> None:
        """`prune` removes what else has grown old meanwhile. Raises OSError."""
        self._files = files
        self._keep = keep
        self._prune = prune
        self._uncut: frozenset[Path] = frozenset()
        """Which could not be cut when they were looked at last."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="libvirt-consoles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the looking."""
        self._ended.set()
        self._thread.join()

    def cut(self) -> None:
        """Look at all files once. One that cannot be cut is told of once, and keeps no other from it."""
        uncut = set()
        for path in self._files():
            try:
                trim(path, self._keep)
            except FileNotFoundError:
                log.debug("a guest ended while the consoles were looked at")
            except OSError as error:
                uncut.add(path)
                if path not in self._uncut:
                    log.warning("the console of a guest cannot be cut: %s", error)
        self._uncut = frozenset(uncut)

    def _run(self) -> None:
        while not self._ended.wait(LOOK):
            try:
                self.cut()
            except OSError as error:
                log.warning("the consoles of guests cannot be looked at: %s", error)
            try:
                self._prune()
            except OSError as error:
                log.warning("the bytes of an image cannot be removed: %s", error)
