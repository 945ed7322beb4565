"""How images come to a host and leave it: by the rights of the request, or by a ticket of each transfer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skep.domain.context import RequestContext
from skep.domain.images import Image
from skep.neighbours.images.base import ImageExchange, ImageTransfers
from skep.neighbours.images.checked import CheckedBytes
from skep.neighbours.images.tickets import ImageTicket, NoTicket, TicketedImages


async def _no_ticket() -> ImageTicket:
    raise NoTicket("no cell conductor can be asked for a ticket")


@dataclass(frozen=True)
class Taker:
    """The build that needs an image, or the action that makes one."""

    context: RequestContext
    ticket: Callable[[], Awaitable[ImageTicket]] = _no_ticket
    """Asks for a ticket for the image. Raises NoTicket where there is none for it, Unavailable."""


class HostTransfers(Protocol):
    """Carries the bytes of images to a host."""

    def download(self, image: Image, taker: Taker, *, most: int, held: Path | None = None) -> AsyncIterator[bytes]:
        """Give the bytes of an image but for the first, which `held` has.

        Raises what `ImageTransfers.download` raises, and NoTicket.
        """
        ...


class HostStore(Protocol):
    """Stores the bytes of images that a host makes."""

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], taker: Taker, *, most: int) -> None:
        """Store the bytes of an image that has none. Raises what `ImageTransfers.upload` raises, and NoTicket."""
        ...

    async def is_stored(self, image_id: str, taker: Taker, sent: AsyncIterator[bytes] | None) -> bool:
        """Tell whether an image has its bytes: those of `sent`, where that is known.

        Raises BrokenTransfer when it has others, NotFound, Unavailable and NoTicket, and what `sent` raises.
        """
        ...


class ByRequest:
    """Transfers that the image service judges by the context of the request."""

    def __init__(self, transfers: ImageTransfers) -> None:
        self._transfers = transfers

    def download(self, image: Image, taker: Taker, *, most: int, held: Path | None = None) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller of the request may use."""
        return self._transfers.download(image.id, taker.context, most=most, held=held)


class ByTicket:
    """Transfers from Skep's own image service, each with a ticket."""

    def __init__(self, images: TicketedImages) -> None:
        self._images = images

    async def download(
        self, image: Image, taker: Taker, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        """Give the bytes of an image for which the build gets a ticket."""
        ticket = await taker.ticket()
        async for piece in self._images.download(image, ticket, most=most, held=held):
            yield piece


class StoredByRequest:
    """Stores images where the image service judges by the context of the request."""

    def __init__(self, exchange: ImageExchange) -> None:
        self._exchange = exchange

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], taker: Taker, *, most: int) -> None:
        """Store the bytes of an image of the caller's project."""
        await self._exchange.upload(image_id, pieces, taker.context, most=most)

    async def is_stored(self, image_id: str, taker: Taker, sent: AsyncIterator[bytes] | None) -> bool:
        """Tell whether an image that the caller may use has its bytes. Its service may have kept a part of them."""
        image = await self._exchange.get(image_id, taker.context)
        if image.status != "active":
            return False
        if sent is not None:
            passed = CheckedBytes(sent, sys.maxsize)
            async for _ in passed:
                pass
            passed.compare(image)
        return True


class StoredByTicket:
    """Stores images at Skep's own image service, each with a ticket."""

    def __init__(self, images: TicketedImages) -> None:
        self._images = images

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], taker: Taker, *, most: int) -> None:
        """Store the bytes of an image for which the action gets a ticket."""
        await self._images.upload(image_id, pieces, await taker.ticket(), most=most)

    async def is_stored(self, image_id: str, taker: Taker, sent: AsyncIterator[bytes] | None) -> bool:  # noqa: ARG002
        """Tell whether the image of the action has its bytes: Skep's own service keeps all that are sent, or none."""
        return await self._images.is_stored(image_id, await taker.ticket())
