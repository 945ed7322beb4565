"""Rows of the route table for images, which old clients ask the compute API for instead of the image service."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import images
from skep.api.roles import ANY_TOKEN
from skep.api.routing import Route
from skep.api.schemas import images as schemas
from skep.api.schemas.images import LAST, LAST_OF_METADATA

_IMAGE = "/images/{image_id}"
_METADATA = f"{_IMAGE}/metadata"
_ITEM = f"{_METADATA}/{{key}}"

# Nova has no rules of its own for them: the image service judges the caller's token.
_image = partial(Route, rule=ANY_TOKEN, until=LAST)
_items = partial(Route, rule=ANY_TOKEN, until=LAST_OF_METADATA)

IMAGE_ROUTES: tuple[Route, ...] = (
    _image("GET", "/images", images.index, query=schemas.LIST, response=schemas.LISTED),
    _image("GET", "/images/detail", images.detail, query=schemas.LIST, response=schemas.DETAILED),
    _image("GET", _IMAGE, images.show, response=schemas.SHOWN),
    _image("DELETE", _IMAGE, images.delete, status=204),
    _items("GET", _METADATA, images.metadata, response=schemas.METADATA),
    _items("POST", _METADATA, images.add_items, body=schemas.SET, response=schemas.METADATA),
    _items("PUT", _METADATA, images.replace_items, body=schemas.SET, response=schemas.METADATA),
    _items("GET", _ITEM, images.show_item, response=schemas.META),
    _items("PUT", _ITEM, images.set_item, body=schemas.SET_ITEM, response=schemas.META),
    _items("DELETE", _ITEM, images.delete_item, status=204),
)
