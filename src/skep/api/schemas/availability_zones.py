"""Availability zones: answers (Nova's API reference, "Availability zones")."""

from __future__ import annotations

from skep.api.schemas.fields import Array, Map, fields
from skep.api.schemas.shared import TEXT, TEXT_OR_NULL, YES_NO, shown
from skep.api.schemas.validation import AnswerShape

AGENT = fields(shown("active", YES_NO), shown("available", YES_NO), shown("updated_at", TEXT_OR_NULL))
"""`active`: not disabled; `available`: up."""

ZONES = AnswerShape(
    fields(
        shown(
            "availabilityZoneInfo",
            Array(
                item=fields(
                    shown("zoneName", TEXT),
                    shown("zoneState", fields(shown("available", YES_NO))),
                    shown("hosts", Map(value=Map(value=AGENT), nullable=True)),
                )
            ),
        )
    )
)
"""`hosts` is null in the plain list."""
