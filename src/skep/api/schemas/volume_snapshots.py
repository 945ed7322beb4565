"""Snapshots of volumes that the volume service asks for (Nova's API reference, "Assisted volume snapshots")."""

from __future__ import annotations

from skep.api.schemas.fields import String, fields
from skep.api.schemas.shared import ANY_TEXT, asked
from skep.api.schemas.validation import Body, Parameter, Query

_ID = String(min=1, max=255)

CREATE = Body(
    fields(
        asked(
            "snapshot",
            fields(
                asked("volume_id", _ID, required=True),
                asked(
                    "create_info",
                    fields(
                        asked("snapshot_id", _ID, required=True),
                        asked("type", String(choices=("qcow2",)), required=True),
                        asked("new_file", _ID, required=True),
                        asked("id", _ID),
                    ),
                    required=True,
                ),
            ),
            required=True,
        )
    )
)
"""`POST /os-assisted-volume-snapshots`."""

DELETE = Query((Parameter(name="delete_info", type=ANY_TEXT),), closed_since=75)
"""`DELETE /os-assisted-volume-snapshots/{snapshot_id}`."""
