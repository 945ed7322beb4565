"""Config drives: an ISO 9660 file with the label `config-2`, whose names Linux reads by Rock Ridge and Windows by
Joliet."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from skep.compute.drivers.libvirt.commands import Owner

if TYPE_CHECKING:
    import pycdlib

VOLUME = "config-2"


def write_drive(files: Mapping[str, bytes], path: Path) -> None:
    """Write an ISO file that holds these files, by their paths. Raises OSError."""
    drive = _drive()
    drive.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=VOLUME)
    try:
        places: dict[PurePosixPath, str] = {PurePosixPath("/"): ""}
        for number, directory in enumerate(_directories(files)):
            places[directory] = f"{places[directory.parent]}/D{number}"
            drive.add_directory(places[directory], rr_name=directory.name, joliet_path=str(directory))
        for number, (name, content) in enumerate(files.items()):
            file = PurePosixPath("/", name)
            place = f"{places[file.parent]}/F{number}.;1"
            drive.add_fp(io.BytesIO(content), len(content), place, rr_name=file.name, joliet_path=str(file))
        with path.open("wb") as written:
            drive.write_fp(written)
    finally:
        drive.close()


def lay_out(directory: Path, files: Mapping[str, bytes], owner: Owner | None) -> None:
    """Have files in a directory that QEMU's user, the owner, reads and no other. Raises OSError."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    if owner is not None:
        # The directory last: what is below it is out of the owner's reach as long as it is given away.
        for path in (*sorted(directory.rglob("*"), reverse=True), directory):
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)


def read_drive(path: Path) -> dict[str, bytes]:
    """Return the files of a config drive by their paths. Raises OSError."""
    drive = _drive()
    drive.open(str(path))
    try:
        return dict(_files(drive))
    finally:
        drive.close()


def _drive() -> pycdlib.PyCdlib:
    import pycdlib  # few machines have it, and most of what knows of disks does without

    return pycdlib.PyCdlib()


def _files(drive: pycdlib.PyCdlib) -> Iterator[tuple[str, bytes]]:
    for directory, _, names in drive.walk(rr_path="/"):
        for name in names:
            file, content = str(PurePosixPath(directory, name)), io.BytesIO()
            drive.get_file_from_iso_fp(content, rr_path=file)
            yield file.removeprefix("/"), content.getvalue()


def _directories(files: Mapping[str, bytes]) -> list[PurePosixPath]:
    """Return all directories of the files below the root, each behind the one that holds it."""
    found = {parent for name in files for parent in PurePosixPath("/", name).parents}
    return sorted(found - {PurePosixPath("/")})
