"""Aggregates: bodies and answers (Nova's API reference, "Host aggregates")."""

from __future__ import annotations

from skep.api.schemas.fields import Array, Field, Map, String, fields
from skep.api.schemas.shared import (
    INTEGER,
    METADATA_KEY,
    NAME,
    TEXT,
    TEXT_OR_NULL,
    UUID,
    YES_NO,
    asked,
    shown,
)
from skep.api.schemas.validation import AnswerShape, Body
from skep.domain.image_caching import MOST_IMAGES
from skep.domain.wording import UNSEEN

HOST = String(min=1, max=255, pattern=r"^[a-zA-Z0-9._-]*$", description="a host's name: letters, digits, `.`, `_`, `-`")
ZONE_NAME = String(
    min=1,
    max=255,
    nullable=True,
    pattern=rf"^[^\s:{UNSEEN}]([^:{UNSEEN}]*[^\s:{UNSEEN}])?$",
    description="a zone's name, printable, without a colon",
)
METADATA = Map(value=String(max=255, nullable=True), key_pattern=METADATA_KEY)
"""Null removes a key."""

CREATE = Body(
    fields(
        asked(
            "aggregate",
            fields(asked("name", NAME, required=True), asked("availability_zone", ZONE_NAME)),
            required=True,
        )
    )
)
UPDATE = Body(
    fields(asked("aggregate", fields(asked("name", NAME), asked("availability_zone", ZONE_NAME)), required=True))
)
ADD_HOST = Body(fields(asked("add_host", fields(asked("host", HOST, required=True)), required=True)))
REMOVE_HOST = Body(fields(asked("remove_host", fields(asked("host", HOST, required=True)), required=True)))
SET_METADATA = Body(fields(asked("set_metadata", fields(asked("metadata", METADATA, required=True)), required=True)))
CACHE = Body(
    fields(asked("cache", Array(item=fields(asked("id", UUID, required=True)), min=1, max=MOST_IMAGES), required=True))
)

_BASIC: tuple[Field, ...] = (
    shown("id", INTEGER),
    shown("uuid", UUID, since=41),
    shown("name", TEXT),
    shown("availability_zone", TEXT_OR_NULL),
    shown("created_at", TEXT_OR_NULL),
    shown("updated_at", TEXT_OR_NULL),
    shown("deleted", YES_NO),
    shown("deleted_at", TEXT_OR_NULL),
)
WHOLE = fields(*_BASIC, shown("hosts", Array(item=TEXT)), shown("metadata", Map(value=TEXT)))

CREATED = AnswerShape(fields(shown("aggregate", fields(*_BASIC))))
"""A new aggregate has no hosts and says nothing of its metadata."""
SHOWN = AnswerShape(fields(shown("aggregate", WHOLE)))
LISTED = AnswerShape(fields(shown("aggregates", Array(item=WHOLE))))
