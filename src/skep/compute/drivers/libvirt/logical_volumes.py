"""Root disks in logical volumes: what LVM is asked for, by its own programs.

The volume of an attempt is named as its directory. It is empty when it is made, whatever was on the disk before: so no
guest reads what another one left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt import commands
from skep.compute.drivers.libvirt.commands import LONG, SHORT, Owner

PROGRAMS = {"lvcreate": "lvm2", "blkdiscard": "util-linux"}
"""Programs, and the distribution's packages that bring them."""
ROOT = Path("/")
_NAME = re.compile(r"(?!\.{1,2}/)[A-Za-z0-9+_.][A-Za-z0-9+_.-]*/(?!\.{1,2}$)[A-Za-z0-9+_.][A-Za-z0-9+_.-]*")
"""A volume as it is written down: its group, and its name."""


class ProgramRunner(Protocol):
    """Runs a program, as `commands.run`."""

    def __call__(
        self, arguments: Sequence[str], directory: Path, owner: Owner | None, *, seconds: int = SHORT
    ) -> bytes:
        """Return what it wrote. Raises DriverError."""
        ...


class LogicalVolumes:
    """The logical volumes of a host. `group` is that of new ones."""

    def __init__(self, group: str, run: ProgramRunner = commands.run) -> None:
        self._group = group
        self._run = run

    def name(self, attempt: str) -> str:
        """Return how the volume of an attempt is to be written down."""
        return f"{self._group}/{attempt}"

    def make(self, name: str, size: int) -> Path:
        """Make an empty volume, in place of one that is there; return its device. Raises DriverError."""
        self.remove(name)
        group, _, volume = name.partition("/")
        self._run(
            ("lvcreate", "--yes", "--wipesignatures", "n", "--size", f"{size}b", "--name", volume, group), ROOT, None
        )
        device = device_of(name)
        self._run(("blkdiscard", "--zeroout", str(device)), ROOT, None, seconds=LONG)
        return device

    def fill(self, name: str, kind: str, file: str, directory: Path, owner: Owner | None) -> None:
        """Write the bytes of a disk, a file of this format in a directory, into an empty volume. Raises DriverError."""
        # With the cache `writeback` it waits until they are on the disk, with its own choice it does not.
        forms = ("-n", "--target-is-zero", "-t", "writeback", "-f", kind, "-O", "raw")
        self._run(("qemu-img", "convert", "-q", *forms, file, str(device_of(name))), directory, owner, seconds=LONG)

    def remove(self, name: str) -> None:
        """Remove a volume; one that is gone is no error. Raises DriverError."""
        device_of(name)
        group, _, volume = name.partition("/")
        there = self._run(("lvs", "--noheadings", "-o", "lv_name", group), ROOT, None).decode().split()
        if volume in there:
            self._run(("lvremove", "--yes", name), ROOT, None)

    def size(self) -> int:
        """Return the bytes of the group. Raises DriverError."""
        asked = ("vgs", "--noheadings", "--nosuffix", "--units", "b", "-o", "vg_size", self._group)
        said = self._run(asked, ROOT, None).decode().strip()
        if not said.isdigit():
            raise DriverError("StorageUnavailable", f"vgs says of the size of {self._group}: {said}")
        return int(said)


def is_device(path: Path) -> bool:
    """Tell whether a root disk is a device of the host, and not one of the files of a guest."""
    return path.parts[:2] == ("/", "dev")


def device_of(name: str) -> Path:
    """Return the device of a volume. Raises DriverError for what is no name of one."""
    if not _NAME.fullmatch(name):
        raise DriverError("StorageUnavailable", f"{name!r} is no logical volume")
    return Path("/dev") / name
