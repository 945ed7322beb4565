"""The images of a host: each is fetched once, kept as a file, and handed to the driver that makes disks from it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec
import structlog

from skep.compute.image_transfers import HostTransfers, Taker
from skep.compute.partial_file import PartialFile
from skep.compute.work import Stopping
from skep.domain.builds import BuildFailure, failure
from skep.domain.errors import Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.images import Image
from skep.neighbours.images.base import BrokenTransfer
from skep.neighbours.images.checked import says_hash
from skep.neighbours.images.tickets import NoTicket

log = structlog.get_logger("skep.compute")

PART = ".part"
"""How the file of an image ends that is not whole."""

PART_SECONDS = 86400
"""So long it is kept by an agent that starts, to be gone on with."""

SMALL_DISK = 4
"""The part of a disk that stays free where all that shall stay free is more."""

SMALL_IMAGE = 16 << 20
"""Bytes: smaller images are taken as long as the disk takes them."""

TRIES = 5
"""How often an image is asked for whose service does not answer: for as long as a process takes to start again."""


class Fetched(msgspec.Struct, frozen=True):
    """What came of a transfer."""

    failure: BuildFailure | None = None
    """None: the file is there."""
    refused: bool = False
    """The taker for which it was asked was refused: another one may not be."""


class DiskUsage(Protocol):
    """The bytes of a disk."""

    @property
    def total(self) -> int:
        """All of them."""

    @property
    def free(self) -> int:
        """Those that nothing is written to."""


class ImageCache:
    """The files of images in a directory of one process. Agents of one process may share it.

    A file is written under another name, synced and renamed, so that what bears an image's name is whole. A transfer
    that was cut goes on where it was, also in the next process. What no
    guest has a link to is removed, the longest unused first, when there is more of it than may be kept, or when a new
    image needs the room.
    """

    def __init__(
        self,
        directory: Path,
        transfers: HostTransfers,
        *,
        largest: int,
        kept: int,
        limit: float,
        free: int = 0,
        pause: float = 1.0,
        disk: Callable[[Path], DiskUsage] = shutil.disk_usage,
    ) -> None:
        """`largest` is the bytes that an image may have, `kept` those of all files that no guest is linked to.

        `free` is the bytes of the disk that stay free for others, at most a quarter of it: less refuses an image.
        A transfer may take `limit` seconds. The second try comes `pause` seconds after the first, each further one
        after twice that time. `disk` tells how full the disk of a directory is.
        """
        self._directory = directory
        self._transfers = transfers
        self._largest = largest
        self._kept = kept
        self._limit = limit
        self._free = free
        self._pause = pause
        self._disk = disk
        self._opened = False
        self._opening = asyncio.Lock()
        self._reserving = asyncio.Lock()
        """Held from the look at the disk until what was found free is counted as used."""
        self._coming = 0
        """Bytes: the sizes of the images that are being fetched, without what is written."""
        self._taken: Counter[str] = Counter()
        self._fetching: dict[str, asyncio.Task[Fetched]] = {}
        """By the name of the file; without those that nothing waits for."""
        self._tasks: set[asyncio.Task[Fetched]] = set()
        self._removing = asyncio.Lock()
        """Held while files are removed: one that is taken meanwhile is found gone, or stays."""
        self._uninterrupted: set[asyncio.Task[None]] = set()
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the name of the file, while a transfer writes or waits to."""

    async def take(self, image: Image, taker: Taker) -> Path | BuildFailure:
        """Return the file of an image, which stays until `release`; or why there is none, and nothing to release.

        What one taker fetched is for all, and a later one is not asked about its right again: the compute API asked
        the image service whether the caller may use this image, with this checksum, before it accepted the server.
        """
        name = _name(image)
        path = self._directory / name
        self._taken[name] += 1
        failed: BuildFailure | None = None
        try:
            async with self._removing:
                there = _touched(path)
            if not there:
                failed = await self._fetched(name, image, taker)
        except BaseException:
            self.release(image)
            raise
        if failed is not None:
            self.release(image)
            return failed
        return path

    def release(self, image: Image) -> None:
        """Let go of an image that was taken. A transfer that no build waits for any more ends."""
        name = _name(image)
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]
            if name in self._fetching:
                self._fetching.pop(name).cancel()

    def holds(self, image: Image) -> bool:
        """Tell whether an image is there now, and count it as used now."""
        return _touched(self._directory / _name(image))

    async def tidy(self) -> None:
        """Remove what is more than may be kept, as after each transfer."""
        await self._tidy()

    async def close(self) -> None:
        """End all transfers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._uninterrupted:
            await asyncio.wait(self._uninterrupted)

    async def _fetched(self, name: str, image: Image, taker: Taker) -> BuildFailure | None:
        """Fetch an image, or wait for the taker that does. One that is refused speaks for itself alone."""
        while True:
            task = self._fetching.get(name)
            asks = task is None
            if task is None:
                task = asyncio.create_task(self._fetch(name, image, taker), name=f"image {image.id}")
                self._fetching[name] = task
                self._tasks.add(task)
                task.add_done_callback(partial(self._ended, name))
            try:
                fetched = await asyncio.shield(task)
            except Stopping:
                if asks:
                    raise
                # The agent stops for whose build it was asked, and this taker's does not: it asks itself.
                continue
            if asks or not fetched.refused:
                return fetched.failure

    def _ended(self, name: str, task: asyncio.Task[Fetched]) -> None:
        self._tasks.discard(task)
        if self._fetching.get(name) is task:
            del self._fetching[name]

    async def _fetch(self, name: str, image: Image, taker: Taker) -> Fetched:
        pause = self._pause
        for tries_left in reversed(range(TRIES)):
            try:
                async with asyncio.timeout(self._limit):
                    await self._download(name, image, taker)
            except TimeoutError:
                return _failed("ImageUnavailable", f"Image {image.id} has not arrived within {self._limit:g} s.")
            except (NotFound, Forbidden) as error:
                return Fetched(failure("ImageUnacceptable", f"Image {image.id}: {error}"), refused=True)
            except NoTicket as error:
                return Fetched(failure("ImageUnavailable", f"Image {image.id}: {error}"), refused=True)
            except TooLarge as error:
                return _failed("NoSpaceLeft", str(error))
            except OSError as error:
                return _failed("StorageUnavailable", f"Image {image.id} cannot be stored: {error}")
            except SkepError as error:
                log.warning("image not fetched", image=image.id, error=str(error), tries_left=tries_left)
                if not tries_left or not isinstance(error, Unavailable):
                    return _failed("ImageUnavailable", f"Image {image.id}: {error}")
            except Stopping:
                raise
            except Exception as error:
                # A bug here must not lose the build: it is tried elsewhere under the name of what was raised.
                log.exception("image transfer failed unexpectedly", image=image.id)
                return _failed(type(error).__name__, str(error))
            else:
                await self._tidy()
                return Fetched()
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last try returns")

    async def _download(self, name: str, image: Image, taker: Taker) -> None:
        """Write the file of an image. Raises what the transfer raises, and OSError."""
        await self._uninterruptedly(self._open())
        # A transfer that was cancelled may still be about to close its own.
        async with self._writing.setdefault(name, asyncio.Lock()):
            await self._continue(name, image, taker)

    async def _continue(self, name: str, image: Image, taker: Taker) -> None:
        """Write what is missing of an image. What came before a cut is gone on with, where a hash tells at the end
        whether it was the image's.
        """
        path = self._directory / f"{name}{PART}"
        held = await asyncio.to_thread(_length, path)
        anew = not says_hash(image) or held >= image.size
        coming = image.size if anew else image.size - held
        async with self._reserving:
            await self._uninterruptedly(self._make_room(coming))
            self._coming += coming
        part = PartialFile(path)
        stays, size = False, 0
        try:
            size = held = await part.make(anew=anew)
            if held:
                log.info("image transfer goes on", image=image.id, at=held)
            transfer = self._transfers.download(image, taker, most=self._largest, held=path if held else None)
            async for piece in transfer:
                size += len(piece)
                await part.write(piece)
                written = min(len(piece), coming)
                coming -= written
                self._coming -= written
            if image.size and size != image.size:
                raise BrokenTransfer(f"it had {image.size} bytes when the server was requested, and has {size} now")
            await part.keep(self._directory / name)
        except (BrokenTransfer, NotFound, Forbidden, TooLarge, OSError):
            raise
        except BaseException:
            stays = says_hash(image) and size > 0
            raise
        finally:
            self._coming -= coming
            await (part.close() if stays else part.remove())
        log.info("image fetched", image=image.id, size=size)

    async def _uninterruptedly(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work whose thread cannot be stopped: it keeps its lock although whoever waits is cancelled."""
        task = asyncio.create_task(work)
        self._uninterrupted.add(task)
        task.add_done_callback(self._uninterrupted.discard)
        await asyncio.shield(task)

    async def _open(self) -> None:
        async with self._opening:
            if not self._opened:
                await asyncio.to_thread(_open, self._directory)
                self._opened = True

    async def _make_room(self, size: int) -> None:
        """Remove files until there is room for one of this size; what is small is not asked about. Raises OSError."""
        if size < SMALL_IMAGE:
            return
        async with self._removing:
            await asyncio.to_thread(
                _make_room, self._directory, frozenset(self._taken), size + self._coming, self._free, self._disk
            )

    async def _tidy(self) -> None:
        """Remove what is more than may be kept. The image that was fetched is good whatever comes of it."""
        try:
            await self._uninterruptedly(self._remove_oldest())
        except OSError as error:
            log.warning("images not removed", error=str(error))

    async def _remove_oldest(self) -> None:
        async with self._removing:
            await asyncio.to_thread(_remove_oldest, self._directory, frozenset(self._taken), self._kept)


def _failed(error: str, message: str) -> Fetched:
    return Fetched(failure(error, message))


def _name(image: Image) -> str:
    """Return the name of an image's file; other bytes under the id of an image that is gone are another file."""
    return urllib.parse.quote(f"{image.id}_{image.checksum or ''}", safe="")


def _touched(path: Path) -> bool:
    """Mark a file as used now; False if there is none."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _open(directory: Path) -> None:
    """Make the directory, and remove what interrupted transfers left that nothing has gone on with for long."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in directory.glob(f"*{PART}"):
        if part.stat().st_mtime < time.time() - PART_SECONDS:
            part.unlink(missing_ok=True)


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _make_room(
    directory: Path, taken: frozenset[str], size: int, free: int, usage: Callable[[Path], DiskUsage]
) -> None:
    """Remove unused files, the oldest first, until `size` bytes fit; none, and OSError, if all of them are too few."""
    disk = usage(directory)
    wanted = size + min(free, disk.total // SMALL_DISK)
    if disk.free >= wanted:
        return
    unused = _unused(directory, taken)
    if disk.free + sum(about.st_size for _, about in unused) >= wanted:
        for path, about in unused:
            _remove(path, about.st_size)
            disk = usage(directory)
            if disk.free >= wanted:
                return
    raise OSError(
        errno.ENOSPC, f"no room for {size} bytes with what arrives: {disk.free} are free, of which some stay free"
    )


def _remove_oldest(directory: Path, taken: frozenset[str], kept: int) -> None:
    """Remove unused files, the oldest first, until at most `kept` bytes of such are left."""
    unused = _unused(directory, taken)
    left = sum(about.st_size for _, about in unused)
    for path, about in unused:
        if left <= kept:
            return
        if _remove(path, about.st_size):
            left -= about.st_size


def _unused(directory: Path, taken: frozenset[str]) -> list[tuple[Path, os.stat_result]]:
    """Return the files that nothing is linked to and no build has taken, whole or not, the longest unused first."""
    found = (one for one in _found(directory, taken) if one[1].st_nlink == 1)
    return sorted(found, key=lambda one: one[1].st_mtime_ns)


def _found(directory: Path, taken: frozenset[str]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in directory.iterdir():
        if path.name.removesuffix(PART) in taken:
            continue
        try:
            yield path, path.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("image not removed", image=path.name, error=str(error))


def _remove(path: Path, size: int) -> bool:
    """Remove a file; False if it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("image not removed", image=path.name, error=str(error))
        return False
    log.info("image removed", image=path.name, size=size)
    return True
