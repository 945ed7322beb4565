"""The ports towards images: what a build has to know of one, images that are made of servers, the bytes of images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.images import DescribedImage, Discarded, Image, ImageSelection, ImagesPage, NewImage


class BrokenTransfer(Unavailable):
    """The bytes that arrived are not those of the image: too few, too many, or of another checksum."""


class ImageService(Protocol):
    """Answers for images."""

    async def get(self, image_id: str, context: RequestContext) -> Image:
        """Return an image that the caller in `context` may use.

        Raises NotFound when it does not exist or is not visible to the caller, Unavailable when the service does not
        answer.
        """
        ...


class ImageRecords(Protocol):
    """Makes and removes images in Skep's own name: whether a user may is for the caller to know."""

    async def create(self, new: NewImage) -> None:
        """Make an image that waits for its bytes.

        Raises BadRequest, Forbidden or TooLarge for what the service does not take, Conflict when an image has the id,
        or had it, Unavailable when the service does not answer: then there may be such an image.
        """
        ...

    async def activate(self, image_id: str, context: RequestContext) -> None:
        """Have an image of the caller's project that waits for its bytes be active without any.

        Raises as `ImageTransfers.upload`.
        """
        ...

    async def discard(self, image_id: str) -> Discarded:
        """Delete an image unless it has its bytes or is protected; return what became of it.

        Raises Unavailable when the service does not answer, or does not do it: then it is to be asked again.
        """
        ...

    async def delete(self, image_id: str) -> None:
        """Delete an image with its bytes; one that is gone is no error.

        Raises Forbidden for one that is protected, Unavailable when the service does not answer, or does not do it.
        """
        ...

    async def backups(self, owner: str, instance: str, backup_type: str) -> list[str]:
        """Return the ids of a project's backups of this type of a server that have their bytes, the newest first.

        Raises Unavailable when the service does not answer.
        """
        ...


class ImagesOfUsers(Protocol):
    """Does with images what their users ask, in their own names: the image service judges what they may.

    `token` is the caller's own. Every method raises Unauthenticated when the service does not take it, Forbidden for
    what the caller may not, Unavailable when the service does not answer.
    """

    async def select(self, selection: ImageSelection, context: RequestContext, token: str) -> ImagesPage:
        """Return the images that the caller sees, the newest first.

        Raises BadRequest when the marker is no image that he sees.
        """
        ...

    async def describe(self, image_id: str, context: RequestContext, token: str) -> DescribedImage:
        """Return an image. Raises NotFound when the caller sees none of that id."""
        ...

    async def change(
        self, image: DescribedImage, properties: dict[str, str], context: RequestContext, token: str
    ) -> DescribedImage:
        """Give an image these properties instead of those it was described with; return it as it is then.

        Raises BadRequest for a property that the service does not take, NotFound, Conflict when the image has others
        by now, TooLarge for more than it keeps.
        """
        ...

    async def remove(self, image_id: str, context: RequestContext, token: str) -> None:
        """Delete an image. Raises NotFound, Conflict when it is in use."""
        ...


class ImageTransfers(Protocol):
    """Carries the bytes of images piece by piece, in bounded memory."""

    def download(
        self, image_id: str, context: RequestContext, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller in `context` may use, but for the first, which `held` has.

        With those they are the image's only when the iterator ends without an error. Raises NotFound when there is no
        such image, or it has no bytes; TooLarge when it has more than `most`; BrokenTransfer when size or checksum are
        others; Unavailable when the transfer breaks off; OSError where `held` cannot be read.
        """
        ...

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], context: RequestContext, *, most: int) -> Image:
        """Store the bytes of an image of the caller's project that has none, and return the image as it is then.

        Raises NotFound when there is no such image, Forbidden when it is of another project, Conflict, before the first
        byte, when it is not queued for bytes, TooLarge when there are more than `most` or the service takes no more,
        BrokenTransfer when it stored others than were sent, Unavailable when the transfer breaks off. After an error
        the image has no bytes, or those that an earlier upload gave it; one that got bytes which may be wrong is
        deleted, where the service still answers. Where it does not, the maker of the image has to delete it.
        """
        ...


class ImageExchange(ImageService, ImageTransfers, Protocol):
    """What a host needs that fetches images and stores some."""
