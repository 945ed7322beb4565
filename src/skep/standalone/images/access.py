"""Which images somebody sees, and which he may change."""

from __future__ import annotations

from skep.database import Connection
from skep.database.api import images
from skep.database.api.images import StoredImage, Viewer
from skep.domain.errors import Forbidden, NotFound


def visible(connection: Connection, image_id: str, viewer: Viewer) -> StoredImage:
    """Return an image.

    Raises NotFound when there is none that the viewer may see.
    """
    image = images.get(connection, image_id, viewer)
    if image is None:
        raise NotFound(f"No image found with ID {image_id}")
    return image


def own(image: StoredImage, viewer: Viewer) -> StoredImage:
    """Return an image that is the viewer's to change.

    Raises Forbidden.
    """
    if owns(image, viewer):
        return image
    raise Forbidden("You are not permitted to modify this image.")


def owns(image: StoredImage, viewer: Viewer) -> bool:
    """Tell whether an image is of the viewer's project; all are an admin's."""
    return viewer.is_admin or (image.owner is not None and image.owner == viewer.project_id)
