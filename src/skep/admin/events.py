"""The event log: for operators all of it, for users what happened to servers of their project."""

from __future__ import annotations

from functools import partial
from typing import TypedDict

import msgspec
from starlette.responses import Response

from skep.admin.event_streams import LAST_EVENT, Show
from skep.admin.requests import AdminRequest, operation
from skep.database.api import events
from skep.database.api.event_views import ShownEvent, WholeEvent, shown_event, whole_event
from skep.database.api.events import EventsWanted, Page
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


@operation(query={**_QUERY, "project": STRING}, headers=(LAST_EVENT,), faults=(410,))
async def index(request: AdminRequest) -> ListedWholeEvents:
    """Answer events of all projects behind a cursor, the oldest first."""
    page = await _page(request, request.query.get("project"))
    return {"events": [whole_event(one, page) for one in page.events], "next": page.next, "more": page.more}


@operation(query=_QUERY, headers=(LAST_EVENT,), faults=(410,))
async def of_project(request: AdminRequest) -> ListedEvents:
    """Answer events of the caller's project behind a cursor, the oldest first."""
    page = await _page(request, _project(request))
    return {"events": [shown_event(one) for one in page.events], "next": page.next, "more": page.more}


async def stream_of_all(request: AdminRequest, after: str | None) -> Response:
    """Tell events of all projects as they come."""
    wanted = _wanted(request, request.query.get("project"))
    return await _stream(request, OPERATORS, wanted, after, whole_event)


async def stream_of_project(request: AdminRequest, after: str | None) -> Response:
    """Tell events of the caller's project as they come."""
    wanted = _wanted(request, _project(request))
    return await _stream(request, request.context.project_id, wanted, after, lambda one, _page: shown_event(one))


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
