"""Looks at the bytes of images as they pass: how many there are, and their checksum."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from skep.domain.errors import TooLarge
from skep.domain.images import Image
from skep.neighbours.images.base import BrokenTransfer


async def whole(pieces: AsyncIterator[bytes], image: Image, most: int) -> AsyncIterator[bytes]:
    """Pass on the bytes of an image.

    Raises TooLarge, before the first byte, when the image has more than `most`, and BrokenTransfer when what comes is
    not what the image service says of it.
    """
    if image.size > most:
        raise TooLarge(f"image {image.id} has {image.size} bytes, at most {most} are possible")
    counted = CheckedBytes(pieces, image.size)
    try:
        async for piece in counted:
            yield piece
    except TooLarge as error:
        raise BrokenTransfer(f"image {image.id} has {image.size} bytes, and more arrived") from error
    counted.compare(image)


class CountedBytes:
    """Bytes on their way to somewhere."""

    def __init__(self, pieces: AsyncIterator[bytes], most: int) -> None:
        self.size = 0
        self._pieces = pieces
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the bytes on. Raises TooLarge as soon as there are more than are possible."""
        async for piece in self._pieces:
            self.size += len(piece)
            if self.size > self._most:
                raise TooLarge(f"an image of at most {self._most} bytes is possible")
            yield piece


class CheckedBytes(CountedBytes):
    """Bytes whose checksum somebody asks for: to make it takes longer than to store them."""

    def __init__(self, pieces: AsyncIterator[bytes], most: int) -> None:
        super().__init__(pieces, most)
        self._md5 = hashlib.md5(usedforsecurity=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pass the bytes on. Raises TooLarge as `CountedBytes` does."""
        async for piece in super().__aiter__():
            self._md5.update(piece)
            yield piece

    def compare(self, image: Image) -> None:
        """Raise BrokenTransfer unless what passed is what the image service says of the image."""
        if self.size != image.size:
            raise BrokenTransfer(f"image {image.id} has {image.size} bytes, and {self.size} passed")
        checksum = self._md5.hexdigest()
        if image.checksum is not None and image.checksum != checksum:
            raise BrokenTransfer(f"image {image.id} has the checksum {image.checksum}, and what passed has {checksum}")
