"""The disks of fake guests: an empty file for each, so that what was made and not undone can be seen."""

from __future__ import annotations

import os
from pathlib import Path

from skep.compute.drivers.base import DriverError
from skep.domain.ids import InstanceUuid


class FakeDisks:
    """The disks of one host, each labelled (instance, attempt)."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._made = False

    def make(self, instance: InstanceUuid, attempt: int) -> None:
        """Make a disk; one that is there stays. Raises DriverError `StorageUnavailable`."""
        try:
            if not self._made:
                os.makedirs(self._directory, mode=0o700, exist_ok=True)  # noqa: PTH103
                self._made = True
            os.close(os.open(self._path(instance, attempt), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def remove(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove a disk if it is there. Raises DriverError `StorageUnavailable`."""
        try:
            os.unlink(self._path(instance, attempt))  # noqa: PTH108
        except FileNotFoundError:
            return
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def labels(self) -> tuple[tuple[InstanceUuid, int], ...]:
        """Return whose disks there are: instance and attempt of each."""
        try:
            names = sorted(os.listdir(self._directory))  # noqa: PTH208
        except FileNotFoundError:
            return ()
        return tuple((InstanceUuid(uuid), int(attempt)) for uuid, _, attempt in (name.partition("_") for name in names))

    def _path(self, instance: InstanceUuid, attempt: int) -> str:
        return f"{self._directory}/{instance}_{attempt}"
