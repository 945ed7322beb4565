"""Programs of the host that work on disks: started without a shell, with limits, never as root where QEMU is not."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MEMORY = 2 << 30
"""Bytes of address space that a program may have."""
SHORT = 30
"""Seconds of processor time of what only looks at a disk or makes an empty one."""
LONG = 3600
"""Seconds of processor time of what copies a disk."""
_MOST_OF_AN_ERROR = 500
"""Characters"""


class Owner(msgspec.Struct, frozen=True):
    """The user that QEMU runs as, where the agent is root."""

    uid: int
    gid: int


def run(arguments: Sequence[str], directory: Path, owner: Owner | None, *, seconds: int = SHORT) -> bytes:
    """Run a program in a directory, as `owner` where there is one; return what it wrote. Raises DriverError.

    `seconds` are of processor time: one that waits for a slow disk is not ended.
    """
    limits = ("prlimit", f"--as={MEMORY}", f"--cpu={seconds}", "--core=0", "--")
    try:
        done = subprocess.run(  # noqa: S603 - programs and options are words of this package
            [*limits, *arguments],
            cwd=directory,
            env={"PATH": PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            user=None if owner is None else owner.uid,
            group=None if owner is None else owner.gid,
            extra_groups=None if owner is None else (),
        )
    except OSError as error:
        raise DriverError("StorageUnavailable", f"{arguments[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-_MOST_OF_AN_ERROR:]
        name = "NoSpaceLeft" if "No space left" in said else "StorageUnavailable"
        raise DriverError(name, f"{arguments[0]} {arguments[1]} ended with {done.returncode}: {said}")
    return done.stdout
