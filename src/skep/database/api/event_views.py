"""Events as readers see them: of lists, streams and webhooks."""

from __future__ import annotations

from typing import Any, TypedDict

from skep.database.api.events import Page, StoredEvent
from skep.database.stored import load
from skep.domain.clock import isoformat_micro


class ShownEvent(TypedDict):
    """An event as its project sees it."""

    cursor: str
    time: str
    type: str
    server: str
    project_id: str
    user_id: str | None
    request_id: str | None
    attempt: int | None
    data: dict[str, Any]


class WholeEvent(ShownEvent):
    """An event as operators see it."""

    cell: str | None
    host: str | None


def shown_event(one: StoredEvent) -> ShownEvent:
    """Return an event as its project sees it."""
    return {
        "cursor": one.cursor,
        "time": isoformat_micro(one.time) + "Z",
        "type": one.type,
        "server": one.instance,
        "project_id": one.project_id,
        "user_id": one.user_id,
        "request_id": one.request_id,
        "attempt": one.attempt,
        "data": _decoded(one.data),
    }


def whole_event(one: StoredEvent, page: Page) -> WholeEvent:
    """Return an event as operators see it."""
    data = {**_decoded(one.data), **_decoded(one.hidden)}
    if one.before_cell is not None:
        data["from_cell"] = page.cells.get(one.before_cell, one.before_cell)
    cell = None if one.cell is None else page.cells.get(one.cell, one.cell)
    return {**shown_event(one), "data": data, "cell": cell, "host": one.host}


def _decoded(data: bytes | None) -> dict[str, Any]:
    return {} if data is None else load(data, dict[str, Any])
