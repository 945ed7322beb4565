"""Events that other services tell of servers (Nova's API reference, "Create external events")."""

from __future__ import annotations

from skep.api.microversions import MAXIMUM
from skep.api.schemas.fields import Array, Integer, Object, String, fields
from skep.api.schemas.shared import TEXT, UUID, asked, shown
from skep.api.schemas.validation import AnswerShape, Body

_SINCE = (
    ("network-changed", 1),
    ("network-vif-plugged", 1),
    ("network-vif-unplugged", 1),
    ("network-vif-deleted", 1),
    ("volume-extended", 51),
    ("power-update", 76),
    ("accelerator-request-bound", 82),
    ("volume-reimaged", 93),
)
"""Name of an event -> the microversion from which it is taken."""

TAGGED = frozenset({"volume-extended", "power-update", "accelerator-request-bound"})
"""Events that mean nothing without a tag."""


def _event() -> Object:
    starts = sorted({since for _, since in _SINCE})
    ends = [*(start - 1 for start in starts[1:]), MAXIMUM]
    names = []
    for start, end in zip(starts, ends, strict=True):
        kind = String(choices=tuple(name for name, since in _SINCE if since <= start))
        names.append(asked("name", kind, since=start, until=end, required=True))
    return fields(
        asked("server_uuid", UUID, required=True),
        *names,
        asked("status", String(choices=("failed", "completed", "in-progress"))),
        asked("tag", String(max=255)),
    )


CREATE = Body(fields(asked("events", Array(item=_event(), min=1), required=True)))
"""`POST /os-server-external-events`."""

_TAKEN = fields(
    shown("server_uuid", UUID),
    shown("name", TEXT),
    shown("status", TEXT),
    shown("tag", TEXT, required=False),
    shown("code", Integer()),
)
CREATED = AnswerShape(fields(shown("events", Array(item=_TAKEN))))
