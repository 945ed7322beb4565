"""Images as old clients ask the compute API for them (Nova's API reference, "Images", "Image metadata")."""

from __future__ import annotations

from skep.api.microversions import PROXIES_LAST
from skep.api.schemas.fields import Array, Map, fields
from skep.api.schemas.servers import METADATA_ITEM, METADATA_SET
from skep.api.schemas.shared import (
    ANY_TEXT,
    COUNT,
    INTEGER,
    LINKS,
    PAGING,
    TEXT,
    TEXT_OR_NULL,
    TIMESTAMP,
    page_links,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Parameter, Query

LAST, LAST_OF_METADATA = PROXIES_LAST, 38
"""Microversions until which images, and their metadata, are in the compute API."""

OWN_PROPERTY = "property-"
"""How filters begin that narrow a list by properties of images; any name may follow."""

LIST = Query(
    (
        *PAGING,
        *(Parameter(name=name, type=ANY_TEXT) for name in ("name", "status", "changes-since", "server", "type")),
        *(Parameter(name=name, type=COUNT) for name in ("minRam", "minDisk")),
    )
)
"""`GET /images` and `GET /images/detail`."""

_BRIEF = (shown("id", TEXT), shown("name", TEXT_OR_NULL), shown("links", LINKS))
_IMAGE = fields(
    *_BRIEF,
    shown("status", TEXT),
    shown("progress", INTEGER),
    shown("created", TIMESTAMP),
    shown("updated", TIMESTAMP),
    shown("minDisk", INTEGER),
    shown("minRam", INTEGER),
    shown("metadata", Map(value=TEXT)),
    shown("server", fields(shown("id", TEXT), shown("links", LINKS)), required=False),
    shown("OS-EXT-IMG-SIZE:size", INTEGER),
    shown("OS-DCF:diskConfig", TEXT, required=False),
)
LISTED = AnswerShape(fields(shown("images", Array(item=fields(*_BRIEF))), page_links("images")))
DETAILED = AnswerShape(fields(shown("images", Array(item=_IMAGE)), page_links("images")))
SHOWN = AnswerShape(fields(shown("image", _IMAGE)))

METADATA = AnswerShape(fields(shown("metadata", Map(value=TEXT))))
META = AnswerShape(fields(shown("meta", Map(value=TEXT))))

SET = METADATA_SET
"""`POST` and `PUT /images/{image_id}/metadata`."""
SET_ITEM = METADATA_ITEM
"""`PUT /images/{image_id}/metadata/{key}`."""
