"""Looks at the bytes of images as they pass: how many there are, and their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from skep.domain.errors import TooLarge
from skep.domain.images import Image
from skep.neighbours.images.base import BrokenTransfer
from skep.neighbours.images.files import open_bytes, pieces

CHECKSUM = "md5"
"""What an image service gives as `checksum`."""
USUAL = "sha512"
"""What it gives as `os_hash_value` unless it is told another algorithm (Glance's `hashing_algorithm`)."""
ALGORITHMS = frozenset("sha1 sha224 sha256 sha384 sha512 sha3_224 sha3_256 sha3_384 sha3_512 blake2b blake2s".split())
"""Those of `os_hash_algo` that are known here; of another one the checksum is compared."""


async def whole(
    arriving: AsyncIterator[bytes], image: Image, most: int, held: Path | None = None
) -> AsyncIterator[bytes]:
    """Pass on the bytes of an image, of which the first are in the file `held`: they are looked at, and not passed on.

    Raises TooLarge, before the first byte, when the image has more than `most`, BrokenTransfer when what comes is not
    what the image service says of it, and OSError.
    """
    if image.size > most:
        raise TooLarge(f"image {image.id} has {image.size} bytes, at most {most} are possible")
    start = length(held)
    counted = CheckedBytes(_joined(held, arriving), image.size, _best(image))
    try:
        async for piece in counted:
            if counted.size > start:
                yield piece
    except TooLarge as error:
        raise BrokenTransfer(f"image {image.id} has {image.size} bytes, and more arrived") from error
    counted.compare(image)


def length(held: Path | None) -> int:
    """Return how many of the first bytes of an image are there. Raises OSError."""
    return 0 if held is None else held.stat().st_size


def says_hash(image: Image) -> bool:
    """Tell whether the image service says a hash by which bytes that came in parts can be compared."""
    return bool(_best(image))


async def without(start: int, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Leave out so many bytes: of a service that gives all of them."""
    async for piece in pieces:
        if start < len(piece):
            yield piece[start:]
        start = max(start - len(piece), 0)


async def _joined(held: Path | None, arriving: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if held is not None:
        with await open_bytes(held) as file:
            async for piece in pieces(file):
                yield piece
    async for piece in arriving:
        yield piece


async def nothing() -> AsyncIterator[bytes]:
    """Give the bytes of an image that has none."""
    return
    yield b""


class CountedBytes:
    """Bytes on their way to somewhere."""

    def __init__(self, pieces: AsyncIterator[bytes], most: int) -> None:
        self.size = 0
        self.ended = False
        """Whether all of them have passed."""
        self._pieces = pieces
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the bytes on. Raises TooLarge as soon as there are more than are possible."""
        async for piece in self._pieces:
            self.size += len(piece)
            if self.size > self._most:
                raise TooLarge(f"an image of at most {self._most} bytes is possible")
            yield piece
        self.ended = True


class CheckedBytes(CountedBytes):
    """Bytes whose hashes somebody asks for: to make one takes longer than to store them."""

    def __init__(self, pieces: AsyncIterator[bytes], most: int, algorithms: Iterable[str] = (CHECKSUM, USUAL)) -> None:
        super().__init__(pieces, most)
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in algorithms}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the bytes on. Raises TooLarge as `CountedBytes` does."""
        async for piece in super().__aiter__():
            for made in self._hashes.values():
                made.update(piece)
            yield piece

    def compare(self, image: Image) -> None:
        """Raise BrokenTransfer unless what passed is what the image service says of the image."""
        if (difference := self.differs(image)) is not None:
            raise BrokenTransfer(difference)

    def differs(self, image: Image) -> str | None:
        """Say in what the bytes that passed are not those that the image service says; None: in nothing."""
        if self.size != image.size:
            return f"image {image.id} has {image.size} bytes, and {self.size} passed"
        for name, expected in _said(image).items():
            made = self._hashes.get(name)
            if made is not None and made.hexdigest() != expected:
                passed = made.hexdigest()
                return f"image {image.id} has the checksum {expected} ({name}), and what passed has {passed}"
        return None


def differs_on_disk(path: Path, image: Image) -> str | None:
    """Say in what the bytes of a file are not those that the image service says of the image; None: in nothing.

    Where it says no hash that is known here, nothing is compared. Raises OSError.
    """
    for name in _best(image):
        with path.open("rb") as file:
            made = hashlib.file_digest(file, name).hexdigest()
        if made != (expected := _said(image)[name]):
            return f"image {image.id} has the checksum {expected} ({name}), and the file has {made}"
    return None


def _said(image: Image) -> dict[str, str]:
    """Return what the image service says of an image's bytes, by algorithm; the strongest last."""
    said = {CHECKSUM: image.checksum, image.os_hash_algo: image.os_hash_value}
    return {
        name: value.lower()
        for name, value in said.items()
        if name is not None and value and (name == CHECKSUM or name in ALGORITHMS)
    }


def _best(image: Image) -> list[str]:
    """Return the one algorithm that decides about an image's bytes; none where the service says no hash."""
    return list(_said(image))[-1:]
