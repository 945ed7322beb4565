"""Tickets for images: each lets a host read or store the bytes of one image of Skep's own image service, for minutes.

A super conductor writes them and the image service reads them, both by the key that seals secrets of servers. Hosts do
not have that key: for them a ticket is a text to send along.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import msgspec

from skep.domain.clock import SECOND
from skep.domain.decoding import json_decoder
from skep.domain.errors import Conflict, Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.images import Image
from skep.neighbours.answers import IMAGES, ask, decode, send, unreachable
from skep.neighbours.images.answers import asked, bytes_of
from skep.neighbours.images.checked import CountedBytes

HEADER = "X-Skep-Image-Ticket"

TICKET_SECONDS = 300
"""From the ticket to the beginning of the transfer, and for clocks that differ. A transfer that began goes on."""

_MARK = b"skep image ticket "
"""What a ticket begins with: nothing else that the key seals does."""


class NoTicket(SkepError):
    """The host gets no ticket for an image; another build or action may get one."""


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
    store: bool = False
    """Whether it is for storing the bytes; otherwise it is for reading them."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    status: str


def write_ticket(seal: Callable[[bytes], bytes | None], image_id: str, now: int, *, store: bool = False) -> str | None:
    """Return a ticket for reading or storing the bytes of an image, from now on; None where there is no key."""
    content = _Content(image=image_id.lower(), until=now + TICKET_SECONDS * SECOND, store=store)
    sealed = seal(_MARK + msgspec.json.encode(content))
    return None if sealed is None else sealed.decode("ascii")


def image_of(unseal: Callable[[bytes], bytes | None], ticket: str, now: int, *, store: bool = False) -> str | None:
    """Return the id of the image that a ticket is for; None when it is none for this purpose, or over."""
    plain = unseal(ticket.encode())
    if plain is None or not plain.startswith(_MARK):
        return None
    try:
        content = json_decoder(_Content).decode(plain[len(_MARK) :])
    except msgspec.DecodeError:
        return None
    return content.image if now < content.until and content.store == store else None


class TicketedImages:
    """Moves the bytes of images from and to Skep's own image service by tickets."""

    def __init__(self, client: httpx.AsyncClient, *, timeout: float, endpoint: str = "") -> None:
        """For `timeout` seconds nothing may arrive. `endpoint` replaces the address that tickets name."""
        self._client = client
        self._timeout = timeout
        self._endpoint = endpoint.rstrip("/").removesuffix("/v2")

    async def download(
        self, image: Image, ticket: ImageTicket, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        """Give the bytes of an image as it was when its server was requested, but for the first, which `held` has.

        Raises what `ImageTransfers.download` raises.
        """
        url, headers = self._url(image.id, ticket) + "/file", {**asked(held), HEADER: ticket.ticket}
        try:
            async with self._client.stream("GET", url, headers=headers, timeout=self._timeout) as response:
                async for piece in bytes_of(response, image, self._timeout, most, held):
                    yield piece
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise unreachable(IMAGES, url, error) from error

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], ticket: ImageTicket, *, most: int) -> None:
        """Store the bytes of an image that has none: the service takes all of them or none.

        Raises NotFound, Forbidden, Conflict, TooLarge and Unavailable as `ImageTransfers.upload` does.
        """
        url = self._url(image_id, ticket) + "/file"
        headers = {HEADER: ticket.ticket, "Content-Type": "application/octet-stream"}
        counted = aiter(CountedBytes(pieces, most))
        response = await send(IMAGES, self._client, "PUT", url, seconds=self._timeout, headers=headers, content=counted)
        refused = _REFUSED.get(response.status_code)
        if refused is not None:
            raise refused(f"{IMAGES} refused the bytes of {image_id} ({response.status_code})")
        if response.status_code != 204:
            raise Unavailable(f"{IMAGES} answered {response.status_code} to the bytes of {image_id}")

    async def is_stored(self, image_id: str, ticket: ImageTicket) -> bool:
        """Tell whether an image has its bytes. Raises NotFound, Unavailable."""
        url = self._url(image_id, ticket)
        response = await ask(IMAGES, self._client, "GET", url, seconds=self._timeout, headers={HEADER: ticket.ticket})
        if response.status_code == 404:
            raise NotFound(f"image {image_id} is gone")
        if response.status_code != 200:
            raise Unavailable(f"{IMAGES} answered {response.status_code} about {image_id}")
        return decode(IMAGES, response, _Stored).status == "active"

    def _url(self, image_id: str, ticket: ImageTicket) -> str:
        base = self._endpoint or ticket.url.rstrip("/")
        return f"{base}/v2/images/{urllib.parse.quote(image_id, safe='')}"


_REFUSED = {403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge}
"""What the service has against the bytes of an image."""
