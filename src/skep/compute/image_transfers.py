"""How the bytes of images come to a host: by the rights of the request, or by a ticket of each transfer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from skep.domain.context import RequestContext
from skep.domain.images import Image
from skep.neighbours.images.base import ImageTransfers
from skep.neighbours.images.tickets import ImageTicket, NoTicket, TicketedImages


async def _no_ticket() -> ImageTicket:
    raise NoTicket("no cell conductor can be asked for a ticket")


@dataclass(frozen=True)
class Taker:
    """The build that needs an image."""

    context: RequestContext
    ticket: Callable[[], Awaitable[ImageTicket]] = _no_ticket
    """Asks for a ticket for the image. Raises NoTicket where there is none for this build, Unavailable."""


class HostTransfers(Protocol):
    """Carries the bytes of images to a host."""

    def download(self, image: Image, taker: Taker, *, most: int) -> AsyncIterator[bytes]:
        """Give the bytes of an image. Raises what `ImageTransfers.download` raises, and NoTicket."""
        ...


class ByRequest:
    """Transfers that the image service judges by the context of the request."""

    def __init__(self, transfers: ImageTransfers) -> None:
        self._transfers = transfers

    def download(self, image: Image, taker: Taker, *, most: int) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller of the request may use."""
        return self._transfers.download(image.id, taker.context, most=most)


class ByTicket:
    """Transfers from Skep's own image service, each with a ticket."""

    def __init__(self, images: TicketedImages) -> None:
        self._images = images

    async def download(self, image: Image, taker: Taker, *, most: int) -> AsyncIterator[bytes]:
        """Give the bytes of an image for which the build gets a ticket."""
        ticket = await taker.ticket()
        async for piece in self._images.download(image, ticket, most=most):
            yield piece
