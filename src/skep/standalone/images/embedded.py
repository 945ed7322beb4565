"""The port towards images, answered by the store of the same process without HTTP between."""

from __future__ import annotations

from skep.database.api.images import StoredImage, Viewer
from skep.domain.context import RequestContext
from skep.domain.images import Image
from skep.standalone.images.service import StandaloneImages


class EmbeddedImages:
    """An `ImageService` over the embedded store."""

    def __init__(self, images: StandaloneImages) -> None:
        self._images = images

    async def get(self, image_id: str, context: RequestContext) -> Image:
        """Return an image that the caller may use."""
        viewer = Viewer(project_id=context.project_id or None, is_admin=context.is_admin)
        return _image(await self._images.get(image_id.lower(), viewer))


def _image(stored: StoredImage) -> Image:
    return Image(
        id=stored.id,
        name=stored.name or "",
        status=stored.status,
        min_disk=stored.min_disk,
        min_ram=stored.min_ram,
        size=stored.size or 0,
        checksum=stored.checksum,
        container_format=stored.container_format,
        disk_format=stored.disk_format,
        owner=stored.owner,
        properties=stored.properties,
    )
