"""What stands inside fake guests: a file for each, which only the owner of the host's directory may read."""

from __future__ import annotations

import os
import shutil
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

    def lay_aside(self, instance: InstanceUuid, attempt: int) -> None:
        """Keep what is inside a guest that is put aside, under its attempt. Raises DriverError."""
        self._rename(self._path(instance), self.kept(instance, attempt))

    def take_up(self, instance: InstanceUuid, attempt: int) -> None:
        """Put what was laid aside under an attempt into its guest. Raises DriverError."""
        self._rename(self.kept(instance, attempt), self._path(instance))

    def copy(self, instance: InstanceUuid, attempt: int, source: Path | None) -> None:
        """Lay a copy of what another attempt had inside aside; None: nothing was inside. Raises DriverError."""
        try:
            self.kept(instance, attempt).unlink(missing_ok=True)
            if source is not None:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                shutil.copyfile(source, self.kept(instance, attempt))
        except OSError as error:
            raise DriverError("StorageUnavailable", str(error)) from error

    def drop(self, instance: InstanceUuid, attempt: int) -> None:
        """Remove what was laid aside under an attempt. Raises DriverError."""
        self.copy(instance, attempt, None)

    def kept(self, instance: InstanceUuid, attempt: int) -> Path:
        """Return where the contents of an attempt put aside are, if it has any."""
        return self._directory / f"{instance}_{attempt}.kept"

    def _rename(self, before: Path, after: Path) -> None:
        try:
            before.replace(after)
        except FileNotFoundError:
            return
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
