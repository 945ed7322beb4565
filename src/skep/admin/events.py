"""The event log: for operators all of it, for users what happened to servers of their project."""

from __future__ import annotations

from functools import partial
from typing import Any, TypedDict

import msgspec
from starlette.responses import Response

from skep.admin.event_streams import LAST_EVENT, Show
from skep.admin.requests import AdminRequest, operation
from skep.database.api import events
from skep.database.api.events import EventsWanted, Page, StoredEvent
from skep.database.stored import load
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Forbidden
from skep.domain.ids import is_uuid
from skep.domain.server_events import TYPES
from skep.http.operations import STRING, whole

MOST = 1000
"""Events in one answer."""
USUAL = 100

OPERATORS = "operators"
"""Whose the streams of operators are."""

_QUERY = {"after": STRING, "limit": whole(1, MOST), "type": STRING, "server": STRING}


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


class ListedEvents(TypedDict):
    """Events of one project, and the cursor from which to go on."""

    events: list[ShownEvent]
    next: str
    more: bool


class ListedWholeEvents(TypedDict):
    """Events, and the cursor from which to go on."""

    events: list[WholeEvent]
    next: str
    more: bool


@operation(query={**_QUERY, "project": STRING}, headers=(LAST_EVENT,), faults=(410, 429))
async def index(request: AdminRequest) -> ListedWholeEvents:
    """Answer events of all projects behind a cursor, the oldest first."""
    page = await _page(request, request.query.get("project"))
    return {"events": [_whole(one, page) for one in page.events], "next": page.next, "more": page.more}


@operation(query=_QUERY, headers=(LAST_EVENT,), faults=(410, 429))
async def of_project(request: AdminRequest) -> ListedEvents:
    """Answer events of the caller's project behind a cursor, the oldest first."""
    page = await _page(request, _project(request))
    return {"events": [_shown(one) for one in page.events], "next": page.next, "more": page.more}


async def stream_of_all(request: AdminRequest, after: str | None) -> Response:
    """Tell events of all projects as they come."""
    wanted = _wanted(request, request.query.get("project"))
    return await _stream(request, OPERATORS, wanted, after, _whole)


async def stream_of_project(request: AdminRequest, after: str | None) -> Response:
    """Tell events of the caller's project as they come."""
    wanted = _wanted(request, _project(request))
    return await _stream(request, request.context.project_id, wanted, after, lambda one, _page: _shown(one))


async def _stream(request: AdminRequest, whose: str, wanted: EventsWanted, after: str | None, show: Show) -> Response:
    async def read(behind: str | None) -> Page:
        asked = msgspec.structs.replace(wanted, after=behind)
        return await request.services.database.read(partial(events.page, wanted=asked))

    return await request.services.streams.answer(whose, after or wanted.after, read, show)


def _project(request: AdminRequest) -> str:
    project = request.context.project_id
    if not project:
        raise Forbidden("Events are those of a project: the token has none.")
    if not request.services.sees_server(request.context, project):
        raise Forbidden("Policy does not allow this user to see the servers of the project.")
    return project


async def _page(request: AdminRequest, project: str | None) -> Page:
    return await request.services.database.read(partial(events.page, wanted=_wanted(request, project)))


def _wanted(request: AdminRequest, project: str | None) -> EventsWanted:
    types = frozenset(request.queries.get("type", ()))
    for name in sorted(types - TYPES):
        raise BadRequest(f"type: there is no type of events {name[:80]!r}; docs/events.md lists them.")
    server = request.query.get("server")
    if server is not None and not is_uuid(server):
        raise BadRequest(f"server: expected the id of a server, got {server[:80]!r}.")
    return EventsWanted(
        after=request.query.get("after"),
        limit=request.number("limit") or USUAL,
        types=types,
        server=server,
        project=project,
    )


def _shown(one: StoredEvent) -> ShownEvent:
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


def _whole(one: StoredEvent, page: Page) -> WholeEvent:
    data = {**_decoded(one.data), **_decoded(one.hidden)}
    if one.before_cell is not None:
        data["from_cell"] = page.cells.get(one.before_cell, one.before_cell)
    cell = None if one.cell is None else page.cells.get(one.cell, one.cell)
    return {**_shown(one), "data": data, "cell": cell, "host": one.host}


def _decoded(data: bytes | None) -> dict[str, Any]:
    return {} if data is None else load(data, dict[str, Any])
