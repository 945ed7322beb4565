"""The port towards images, answered by the store of the same process without HTTP between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from skep.database.api.images import ImageQuery, StoredImage, Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound
from skep.domain.images import MOST_BACKUPS, Discarded, Image, NewImage, backup_properties
from skep.neighbours.images.checked import CountedBytes, length, nothing, whole
from skep.neighbours.images.files import pieces
from skep.standalone.images.service import EVERYBODY, StandaloneImages


class EmbeddedImages:
    """An `ImageService`, `ImageRecords` and `ImageTransfers`, over the embedded store."""

    def __init__(self, images: StandaloneImages) -> None:
        self._images = images

    async def get(self, image_id: str, context: RequestContext) -> Image:
        """Return an image that the caller may use."""
        return _image(await self._images.get(image_id.lower(), viewer_of(context)))

    async def create(self, new: NewImage) -> None:
        """Make an image that waits for its bytes."""
        await self._images.create(new.fields(), EVERYBODY)

    async def activate(self, image_id: str, context: RequestContext) -> None:
        """Have an image be active without bytes."""
        await self.upload(image_id, nothing(), context, most=0)

    async def discard(self, image_id: str) -> Discarded:
        """Delete an image unless it has its bytes or is protected."""
        return await self._images.discard(image_id.lower())

    async def delete(self, image_id: str) -> None:
        """Delete an image with its bytes."""
        try:
            await self._images.delete(image_id.lower(), EVERYBODY)
        except NotFound:
            return

    async def backups(self, owner: str, instance: str, backup_type: str) -> list[str]:
        """Return the ids of a project's backups of this type of a server, the newest first."""
        query = ImageQuery(
            one_of={"owner": (owner,), "status": ("active",)},
            properties=backup_properties(instance, backup_type),
            sort=(("created_at", True),),
            limit=MOST_BACKUPS,
        )
        return [image.id for image in (await self._images.select(query, None, EVERYBODY)).images]

    async def download(
        self, image_id: str, context: RequestContext, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller may use."""
        stored, file = await self._images.read(image_id.lower(), viewer_of(context))
        if file is None:
            raise NotFound(f"image {image_id} has no bytes")
        with file:
            file.seek(length(held))
            async for piece in whole(pieces(file), _image(stored), most, held):
                yield piece

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], context: RequestContext, *, most: int) -> Image:
        """Store the bytes of an image of the caller's project."""
        counted = CountedBytes(pieces, most)
        # Nothing is asked for after it: what failed then would leave bytes that nobody knows of.
        return _image(await self._images.upload(image_id.lower(), aiter(counted), viewer_of(context)))


def viewer_of(context: RequestContext) -> Viewer:
    """Return for whom images are looked up."""
    return Viewer(project_id=context.project_id or None, is_admin=context.is_admin)


def _image(stored: StoredImage) -> Image:
    return Image(
        id=stored.id,
        name=stored.name or "",
        status=stored.status,
        min_disk=stored.min_disk,
        min_ram=stored.min_ram,
        size=stored.size or 0,
        checksum=stored.checksum,
        os_hash_algo=stored.os_hash_algo,
        os_hash_value=stored.os_hash_value,
        container_format=stored.container_format,
        disk_format=stored.disk_format,
        owner=stored.owner,
        properties=stored.properties,
    )
