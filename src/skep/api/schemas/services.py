"""Services: bodies, queries and answers (Nova's API reference, "Compute services")."""

from __future__ import annotations

from skep.api.schemas.aggregates import HOST
from skep.api.schemas.fields import Array, Boolean, Field, String, fields
from skep.api.schemas.hypervisors import IDENTIFIER
from skep.api.schemas.shared import ANY_TEXT, NAME, TEXT, TEXT_OR_NULL, YES_NO, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

REASON = String(
    min=1, max=255, pattern=r"^[^\x00-\x1f\x7f]*$", description="why it is disabled, up to 255 printable characters"
)

_NAMED = (asked("host", HOST, required=True), asked("binary", NAME, required=True))
ENABLE = Body(fields(*_NAMED))
DISABLE = Body(fields(*_NAMED))
DISABLE_LOG_REASON = Body(fields(*_NAMED, asked("disabled_reason", REASON, required=True)))
FORCE_DOWN = Body(fields(*_NAMED, asked("forced_down", Boolean(), required=True)))
"""2.11 to 2.52."""
UPDATE = Body(
    fields(
        asked("status", String(choices=("enabled", "disabled"))),
        asked("disabled_reason", REASON),
        asked("forced_down", Boolean()),
    )
)
"""Since 2.53."""

LIST = Query((Parameter(name="host", type=ANY_TEXT), Parameter(name="binary", type=ANY_TEXT)), closed_since=75)

_SERVICE: tuple[Field, ...] = (
    shown("id", IDENTIFIER),
    shown("binary", TEXT),
    shown("host", TEXT),
    shown("zone", TEXT),
    shown("status", TEXT),
    shown("state", TEXT),
    shown("updated_at", TEXT_OR_NULL),
    shown("disabled_reason", TEXT_OR_NULL),
    shown("forced_down", YES_NO, since=11),
)
LISTED = AnswerShape(fields(shown("services", Array(item=fields(*_SERVICE)))))
SHOWN = AnswerShape(fields(shown("service", fields(*_SERVICE))))
CHANGED = AnswerShape(
    fields(
        shown(
            "service",
            fields(
                shown("host", TEXT),
                shown("binary", TEXT),
                shown("status", TEXT, required=False),
                shown("disabled_reason", TEXT, required=False),
                shown("forced_down", YES_NO, required=False),
            ),
        )
    )
)
"""What the actions before 2.53 answer."""
