"""The disks of guests on their way to the image service: each a file that is sent and removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import structlog

from skep.compute.image_cache import TRIES
from skep.compute.image_transfers import HostStore, Taker
from skep.domain.errors import Conflict, Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.ids import new_uuid
from skep.domain.images import StoreFailure
from skep.neighbours.images import files
from skep.neighbours.images.base import BrokenTransfer
from skep.neighbours.images.tickets import NoTicket

log = structlog.get_logger("skep.compute")


class Unwanted(SkepError):
    """Nobody waits for the image any more."""


class Snapshots:
    """The files are in a directory of one process. What its predecessor left there is removed: nobody sends it."""

    def __init__(self, directory: Path, store: HostStore, *, largest: int, limit: float, pause: float = 1.0) -> None:
        """`largest` is the bytes that an image may have; to send one may take `limit` seconds.

        The second try comes `pause` seconds after the first, each further one after twice that time. Raises OSError.
        """
        self._directory = directory
        self._store = store
        self._largest = largest
        self._limit = limit
        self._pause = pause
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in directory.iterdir():
            left.unlink()

    @contextlib.contextmanager
    def file(self) -> Iterator[Path]:
        """Give the path of a file that is not there yet, and remove it in the end."""
        path = self._directory / new_uuid()
        try:
            yield path
        finally:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("file of a snapshot not removed", file=str(path), error=error.strerror)

    async def send(self, file: Path, image_id: str, taker: Taker, wanted: Callable[[], bool]) -> str | None:
        """Give an image the bytes of a file, all of them or none; return why that failed, or None.

        A service that does not take them now is asked again, as long as the image waits for them.
        An image that has its bytes already got them from an earlier run of the agent, which could not say so.
        """
        try:
            async with asyncio.timeout(self._limit):
                return await self._send(file, image_id, taker, wanted)
        except TimeoutError:
            return StoreFailure.UNAVAILABLE.because(f"image {image_id} was not stored within {self._limit:g} s")
        except OSError as error:
            return f"StorageUnavailable: the snapshot cannot be read: {error.strerror}"

    async def _send(self, file: Path, image_id: str, taker: Taker, wanted: Callable[[], bool]) -> str | None:
        pause, failed, begun = self._pause, "", False

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal begun
            begun = True
            async for piece in _pieces(file, wanted):
                yield piece

        for tries_left in reversed(range(TRIES)):
            try:
                await self._store.upload(image_id, pieces(), taker, most=self._largest)
            except Unwanted:
                return f"GivenUp: nobody waits for image {image_id} any more"
            except NotFound:
                # After a try that failed it is gone because of that: it could not be left with bytes that may be wrong.
                return failed or f"ImageNotFound: image {image_id} was deleted before it was stored"
            except Conflict as error:
                return await self._stored_before(image_id, taker, pieces() if begun else None, error)
            except TooLarge as error:
                return StoreFailure.TOO_LARGE.because(error)
            except (Forbidden, NoTicket) as error:
                return StoreFailure.NOT_AUTHORIZED.because(error)
            except SkepError as error:
                failed = StoreFailure.UNAVAILABLE.because(error)
                if not tries_left or isinstance(error, BrokenTransfer) or not isinstance(error, Unavailable):
                    return failed
                log.warning("image not stored yet", image=image_id, error=str(error), tries_left=tries_left)
            else:
                return None
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last try returns")

    async def _stored_before(
        self, image_id: str, taker: Taker, sent: AsyncIterator[bytes] | None, error: Conflict
    ) -> str | None:
        """Say what is wrong with an image that takes no bytes. What this run `sent` it has whole, or not at all."""
        try:
            stored = await self._store.is_stored(image_id, taker, sent)
        except Unwanted:
            return f"GivenUp: nobody waits for image {image_id} any more"
        except SkepError as unreadable:
            return StoreFailure.UNAVAILABLE.because(unreadable)
        return None if stored else StoreFailure.UNAVAILABLE.because(error)


async def _pieces(file: Path, wanted: Callable[[], bool]) -> AsyncIterator[bytes]:
    with await files.open_bytes(file) as opened:
        async for piece in files.pieces(opened):
            if not wanted():
                raise Unwanted
            yield piece
