"""How a service of images is asked for the bytes of one, and what its answer says."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from skep.domain.errors import NotFound, Unavailable
from skep.domain.images import Image
from skep.neighbours.answers import IMAGES, PLAIN, flowing
from skep.neighbours.images.base import BrokenTransfer
from skep.neighbours.images.checked import length, whole, without
from skep.neighbours.images.files import PIECE

_NO_PART = frozenset({206, 400, 416})
"""Answers to a request for a part that is not given: Glance says 400 of an image in a store that reads from the
beginning only, as by HTTP."""
_FROM = re.compile(r"bytes ([0-9]+)-[0-9]+/[0-9*]+")


def asked(held: Path | None) -> dict[str, str]:
    """Return the headers of a request for the bytes of an image but for those that `held` has. Raises OSError."""
    start = length(held)
    return {**PLAIN, **({"Range": f"bytes={start}-"} if start else {})}


async def bytes_of(
    response: httpx.Response, image: Image, seconds: float, most: int, held: Path | None
) -> AsyncIterator[bytes]:
    """Give the bytes of an image that `held` has not, of a service that gives these, or all.

    For `seconds` nothing may arrive. Raises what `ImageTransfers.download` raises, and OSError.
    """
    if response.status_code in (204, 404):
        raise NotFound(f"image {image.id} has no bytes, or is gone")
    start = length(held)
    arriving = flowing(IMAGES, response, seconds, PIECE)
    if response.status_code == 200:
        arriving = without(start, arriving)
    elif start and response.status_code in _NO_PART and _begin(response) != start:
        # What is held would stand in the way of the next try, too.
        raise BrokenTransfer(f"{IMAGES} does not go on with the bytes of {image.id}: {response.status_code}")
    elif response.status_code != 206 or _begin(response) != start:
        raise Unavailable(f"{IMAGES} answered {response.status_code} for the bytes of {image.id}")
    async for piece in whole(arriving, image, most, held):
        yield piece


def _begin(response: httpx.Response) -> int | None:
    found = _FROM.fullmatch(response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None
