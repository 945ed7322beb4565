"""Hosts as old clients ask for them (Nova's API reference, "Hosts"), until 2.42."""

from __future__ import annotations

from skep.api.schemas.fields import Array, String, fields
from skep.api.schemas.shared import ANY_TEXT, INTEGER, TEXT, asked, shown
from skep.api.schemas.validation import AnswerShape, Body, Parameter, Query

LAST = 42
"""Microversion until which they are there."""

LIST = Query((Parameter(name="zone", type=ANY_TEXT),))
"""`GET /os-hosts`."""

_YES_NO = String(choices=tuple(form(word) for word in ("enable", "disable") for form in (str, str.title, str.upper)))
UPDATE = Body(fields(asked("status", _YES_NO), asked("maintenance_mode", _YES_NO)))
"""`PUT /os-hosts/{host}`."""

LISTED = AnswerShape(
    fields(
        shown("hosts", Array(item=fields(shown("host_name", TEXT), shown("service", TEXT), shown("zone", TEXT)))),
    )
)
_RESOURCE = fields(
    shown("host", TEXT),
    shown("project", TEXT),
    shown("cpu", INTEGER),
    shown("memory_mb", INTEGER),
    shown("disk_gb", INTEGER),
)
SHOWN = AnswerShape(fields(shown("host", Array(item=fields(shown("resource", _RESOURCE))))))
UPDATED = AnswerShape(fields(shown("host", TEXT), shown("status", TEXT)))
