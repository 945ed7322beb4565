"""Tickets for images: each lets a host read the bytes of one image from Skep's own image service, for some minutes.

A super conductor writes them and the image service reads them, both by the key that seals secrets of servers. Hosts do
not have that key: for them a ticket is a text to send along.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec

from skep.domain.clock import SECOND
from skep.domain.decoding import json_decoder
from skep.domain.errors import NotFound, SkepError, Unavailable
from skep.domain.images import Image
from skep.neighbours.images.checked import whole
from skep.neighbours.service_session import unreachable

HEADER = "X-Skep-Image-Ticket"

TICKET_SECONDS = 300
"""From the ticket to the beginning of the transfer, and for clocks that differ. A transfer that began goes on."""

PIECE = 1 << 20
"""Bytes that are held in memory."""

_MARK = b"skep image ticket "
"""What a ticket begins with: nothing else that the key seals does."""


class NoTicket(SkepError):
    """The host gets no ticket for an image; another server's build may get one."""


class ImageTicket(msgspec.Struct, frozen=True, kw_only=True):
    """What a host gets."""

    url: str
    """Address of the image service, without `/v2`."""
    ticket: str

    def __repr__(self) -> str:
        """Leaves the ticket out."""
        return f"ImageTicket(url={self.url!r})"


class _Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    image: str
    until: int
    """Microseconds since 1970."""


def write_ticket(seal: Callable[[bytes], bytes | None], image_id: str, now: int) -> str | None:
    """Return a ticket for the bytes of an image, from now on; None where there is no key."""
    content = _Content(image=image_id.lower(), until=now + TICKET_SECONDS * SECOND)
    sealed = seal(_MARK + msgspec.json.encode(content))
    return None if sealed is None else sealed.decode("ascii")


def image_of(unseal: Callable[[bytes], bytes | None], ticket: str, now: int) -> str | None:
    """Return the id of the image that a ticket is for; None when it is none, or over."""
    plain = unseal(ticket.encode())
    if plain is None or not plain.startswith(_MARK):
        return None
    try:
        content = json_decoder(_Content).decode(plain[len(_MARK) :])
    except msgspec.DecodeError:
        return None
    return content.image if now < content.until else None


class TicketedImages:
    """Fetches the bytes of images from Skep's own image service by tickets."""

    def __init__(self, client: httpx.AsyncClient, *, timeout: float, endpoint: str = "") -> None:
        """For `timeout` seconds nothing may arrive. `endpoint` replaces the address that tickets name."""
        self._client = client
        self._timeout = timeout
        self._endpoint = endpoint.rstrip("/").removesuffix("/v2")

    async def download(self, image: Image, ticket: ImageTicket, *, most: int) -> AsyncIterator[bytes]:
        """Give the bytes of an image as it was when its server was requested.

        Raises what `ImageTransfers.download` raises.
        """
        base = self._endpoint or ticket.url.rstrip("/")
        url = f"{base}/v2/images/{urllib.parse.quote(image.id, safe='')}/file"
        headers = {HEADER: ticket.ticket}
        try:
            async with self._client.stream("GET", url, headers=headers, timeout=self._timeout) as response:
                if response.status_code in (204, 404):
                    raise NotFound(f"image {image.id} has no bytes, or is gone")
                if response.status_code != 200:
                    raise Unavailable(f"the image service answered {response.status_code} for the bytes of {image.id}")
                async for piece in whole(response.aiter_raw(PIECE), image, most):
                    yield piece
        except httpx.HTTPError as error:
            raise unreachable(url, error) from error
