"""What stands inside fake guests: a file for each, which only the owner of the host's directory may read."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.contents import GuestContents
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid


class GuestInsides:
    """The passwords and files of the guests of one host; they go with their guests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, instance: InstanceUuid, attempt: int, contents: GuestContents) -> None:
        """Put contents into a guest. Raises DriverError `StorageUnavailable` when the disk does not take them."""
        path = self._path(instance)
        new = path.with_suffix(".new")
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode({"attempt": attempt, **msgspec.to_builtins(contents)}))
            new.replace(path)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def read(self, instance: InstanceUuid) -> GuestContents | None:
        """Return what is inside a guest, as somebody who has signed in to it would see it."""
        try:
            return json_decoder(GuestContents).decode(self._path(instance).read_bytes())
        except FileNotFoundError:
            return None

    def remove(self, instance: InstanceUuid) -> None:
        """Remove what is inside a guest, what an interrupted write left too. Raises DriverError."""
        path = self._path(instance)
        try:
            for one in (path, path.with_suffix(".new")):
                one.unlink(missing_ok=True)
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def _path(self, instance: InstanceUuid) -> Path:
        return self._directory / f"{instance}.json"
