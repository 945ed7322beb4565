"""The port towards images: what a build must know of the image it boots from."""

from __future__ import annotations

from typing import Protocol

from skep.domain.context import RequestContext
from skep.domain.images import Image


class ImageService(Protocol):
    """Answers for images."""

    async def get(self, image_id: str, context: RequestContext) -> Image:
        """Return an image that the caller in `context` may use.

        Raises NotFound when there is none or it is not visible to the caller, Unavailable when nobody can tell now.
        """
        ...
