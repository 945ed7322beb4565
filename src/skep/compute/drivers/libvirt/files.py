"""What is done with files of a host, and said by name where its disk does not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from skep.compute.drivers.base import DriverError

T = TypeVar("T")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def guarded(work: Callable[[], T]) -> T:
    """Do something with files; say by name when the disk does not."""
    try:
        return work()
    except OSError as error:
        name = "NoSpaceLeft" if error.errno in _FULL else "StorageUnavailable"
        raise DriverError(name, str(error)) from error


@contextmanager
def handed_out(made: Path, file: Path) -> Iterator[None]:
    """Move a file that is made beside the disks meanwhile to where the agent wants it; it is the agent's then.

    Nothing of it stays where that fails: a disk that it has filled would stay full. Raises DriverError.
    """

    def move() -> None:
        if made.stat().st_uid != os.geteuid():
            os.chown(made, os.geteuid(), os.getegid())
        shutil.move(made, file)

    try:
        yield
        guarded(move)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
