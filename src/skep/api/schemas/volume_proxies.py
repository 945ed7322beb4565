"""Volumes and snapshots as old clients ask the compute API for them (Nova: "Block Storage proxies", until 2.35)."""

from __future__ import annotations

from skep.api.schemas.fields import Array, Boolean, Integer, Map, String, fields
from skep.api.schemas.shared import COUNT, INTEGER, TEXT, TEXT_OR_NULL, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

MOST_GIB = 2**31 - 1

LIST = Query((Parameter(name="limit", type=COUNT), Parameter(name="offset", type=COUNT)))
"""Lists of volumes and of snapshots."""

_WORD = String(max=255, nullable=True)

VOLUME = Body(
    fields(
        asked(
            "volume",
            fields(
                asked("size", Integer(min=1, max=MOST_GIB), required=True),
                asked("display_name", _WORD),
                asked("display_description", _WORD),
                asked("volume_type", _WORD),
                asked("snapshot_id", _WORD),
                asked("availability_zone", _WORD),
                asked("metadata", Map(value=String(max=255), key_max=255, max=128, nullable=True)),
            ),
            required=True,
        )
    )
)
"""`POST /os-volumes`."""

SNAPSHOT = Body(
    fields(
        asked(
            "snapshot",
            fields(
                asked("volume_id", String(max=255), required=True),
                asked("display_name", _WORD),
                asked("display_description", _WORD),
                asked("force", Boolean()),
            ),
            required=True,
        )
    )
)
"""`POST /os-snapshots`."""

_ATTACHMENT = fields(
    shown("id", TEXT, required=False),
    shown("volumeId", TEXT, required=False),
    shown("serverId", TEXT, required=False),
    shown("device", TEXT, required=False),
)
_VOLUME = fields(
    shown("id", TEXT),
    shown("status", TEXT),
    shown("size", INTEGER),
    shown("availabilityZone", TEXT_OR_NULL),
    shown("createdAt", TEXT),
    shown("displayName", TEXT_OR_NULL),
    shown("displayDescription", TEXT_OR_NULL),
    shown("snapshotId", TEXT_OR_NULL),
    shown("volumeType", TEXT_OR_NULL),
    shown("metadata", Map(value=TEXT)),
    shown("attachments", Array(item=_ATTACHMENT)),
)
VOLUME_SHOWN = AnswerShape(fields(shown("volume", _VOLUME)))
VOLUMES_LISTED = AnswerShape(fields(shown("volumes", Array(item=_VOLUME))))

_SNAPSHOT = fields(
    shown("id", TEXT),
    shown("volumeId", TEXT),
    shown("status", TEXT),
    shown("size", INTEGER),
    shown("createdAt", TEXT),
    shown("displayName", TEXT_OR_NULL),
    shown("displayDescription", TEXT_OR_NULL),
)
SNAPSHOT_SHOWN = AnswerShape(fields(shown("snapshot", _SNAPSHOT)))
SNAPSHOTS_LISTED = AnswerShape(fields(shown("snapshots", Array(item=_SNAPSHOT))))
