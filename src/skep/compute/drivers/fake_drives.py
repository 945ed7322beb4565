"""The config drives of fake guests: a directory for each attempt, with the files as a guest would read them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from skep.compute.drivers.base import DriverError
from skep.domain.ids import InstanceUuid

HALF_MADE = ".new"
"""Behind the name of a drive that is being made."""


class FakeDrives:
    """The config drives of one host, which only the owner of its directory may read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return where the drive of an attempt is, if it has one."""
        return self._directory / f"{instance}_{attempt}"

    def write(self, instance: InstanceUuid, attempt: int, files: Mapping[str, bytes]) -> None:
        """Make a drive, in place of one that is there. Raises DriverError `StorageUnavailable`."""
        place = self.place(instance, attempt)
        new = place.with_name(f"{place.name}{HALF_MADE}")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for old in (new, place):
                shutil.rmtree(old, ignore_errors=True)
            for name, content in files.items():
                file = new / name
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.write_bytes(content)
            new.rename(place)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def read(self, instance: InstanceUuid, attempt: int) -> dict[str, bytes] | None:
        """Return the files by their paths; None: the attempt has no drive."""
        place = self.place(instance, attempt)
        if not place.exists():
            return None
        return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}

    def remove(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove the drive of an attempt, what an interrupted write left too. Raises DriverError."""
        place = self.place(instance, attempt)
        try:
            for one in (place, place.with_name(f"{place.name}{HALF_MADE}")):
                if one.exists():
                    shutil.rmtree(one)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error
