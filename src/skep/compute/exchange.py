"""The exchange: a directory that several hosts see, through which the disks of a move go from one to another.

The source offers the files of a guest that is put aside, the target takes them, and whoever is done with the move
withdraws them. An offer is whole or not there, and each file bears its digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from skep.compute.drivers.base import DriverError
from skep.domain.decoding import json_decoder
from skep.domain.ids import is_uuid

MANIFEST = "manifest.json"
MARK = ".seen"
BLOCK = 1024 * 1024


class Exchange:
    """The offers of all moves, each in a directory named after its migration."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def offer(self, move: str, files: Mapping[str, Path]) -> None:
        """Give the files of a move, over what was offered before. Raises DriverError `StorageUnavailable`."""
        try:
            await asyncio.to_thread(self._offer, move, files)
        except OSError as error:
            raise DriverError("StorageUnavailable", f"disks not offered: {error}") from error

    async def take(self, move: str) -> Mapping[str, Path]:
        """Return the files of a move. Raises DriverError when they are not there or damaged."""
        try:
            return await asyncio.to_thread(self._take, move)
        except (OSError, msgspec.DecodeError) as error:
            raise DriverError("StorageUnavailable", f"disks of move {move} not taken: {error}") from error

    async def offers(self, move: str) -> bool:
        """Tell whether the files of a move are there."""
        return await asyncio.to_thread((self._of(move) / MANIFEST).exists)

    async def meet(self, move: str, attempt: int) -> None:
        """Leave a mark by which the other host of a move sees that the one of this attempt has this exchange, too.

        Raises DriverError `StorageUnavailable`.
        """
        mark = self._mark(move, attempt)

        def leave() -> None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch()

        try:
            await asyncio.to_thread(leave)
        except OSError as error:
            raise DriverError("StorageUnavailable", f"the exchange cannot be written: {error}") from error

    async def meets(self, move: str, attempt: int) -> bool:
        """Tell whether the host of this attempt has left its mark here; that of one before it says nothing of it."""
        return await asyncio.to_thread(self._mark(move, attempt).exists)

    async def withdraw(self, move: str) -> None:
        """Remove the files of a move, and the marks of all its attempts; none is no error."""
        for home in (self._of(move), self._fresh(move)):
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._remove_marks, move)

    def place(self, move: str, attempt: int) -> Path:
        """Return the directory where both sides of a live migration to this attempt meet; it need not be there."""
        return self._of(move) / f"attempt-{attempt}"

    async def leave(self, move: str, attempt: int) -> None:
        """Remove the place of a live migration to this attempt; none is no error."""
        await asyncio.to_thread(_leave, self.place(move, attempt))

    def _offer(self, move: str, files: Mapping[str, Path]) -> None:
        home, fresh = self._of(move), self._fresh(move)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700, parents=True)
        digests = {}
        for name, path in files.items():
            _link_or_copy(path, fresh / name)
            digests[name] = _digest(fresh / name)
        (fresh / MANIFEST).write_bytes(msgspec.json.encode(digests))
        shutil.rmtree(home, ignore_errors=True)
        fresh.rename(home)

    def _take(self, move: str) -> dict[str, Path]:
        home = self._of(move)
        digests = json_decoder(dict[str, str]).decode((home / MANIFEST).read_bytes())
        elsewhere = [name for name in digests if name != Path(name).name or (home / name).is_symlink()]
        if elsewhere:
            raise OSError(f"{elsewhere[0][:80]!r} names no file of an offer")
        files = {name: home / name for name in digests}
        damaged = [name for name, digest in digests.items() if _digest(files[name]) != digest]
        if damaged:
            raise OSError(f"{', '.join(damaged)} differs from what was offered")
        return files

    def _of(self, move: str) -> Path:
        """Return the directory of a move. Raises DriverError for a name that is no UUID: it could lead elsewhere."""
        if not is_uuid(move):
            raise DriverError("InvalidInput", f"{move[:80]} names no move")
        return self._directory / move

    def _mark(self, move: str, attempt: int) -> Path:
        return self._of(move).with_suffix(f".{attempt}{MARK}")

    def _remove_marks(self, move: str) -> None:
        for mark in self._directory.glob(f"{self._of(move).name}.*{MARK}"):
            mark.unlink(missing_ok=True)

    def _fresh(self, move: str) -> Path:
        """Return where an offer is made, before it is there."""
        return self._of(move).with_suffix(".new")


def _leave(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def _link_or_copy(source: Path, target: Path) -> None:
    """Put a file where others find it: as a link where the file system allows, since nobody changes it now."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
