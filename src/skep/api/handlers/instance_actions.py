"""What was done to a server and how it went: actions and their events.

The events of a create are the attempts of its build, so that each host that was tried is seen with its reason.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from skep.api.cells import LIST_SECONDS, read_cell
from skep.api.handlers.server_lookup import CellUnreadable, LocatedServer, find
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.server_answers import PARTIAL_SINCE
from skep.api.views import instance_actions as views
from skep.database import Connection
from skep.database.api import build_requests
from skep.database.cell import actions, attempts, moves
from skep.database.cell.actions import CREATE, Action, ActionEvent, ActionQuery
from skep.database.engine import Unit
from skep.database.histories import with_earlier
from skep.domain.builds import AttemptRecord
from skep.domain.clock import parse_iso
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import CellUuid, InstanceUuid

EVENTS = "os_compute_api:os-instance-actions:events"
OF_DELETED_SINCE = 21
PAGED_SINCE = 58
EVENTS_FOR_ALL_SINCE = 51
HOSTS_SINCE = 62
DETAILS_SINCE = 84
MORE = 2
"""Actions read beyond a page: one says that there is a next page, and the create may not be of the time asked for."""

_Attempts: TypeAlias = tuple[list[AttemptRecord], list[CellUuid]]
"""The attempts of a server in its cell, and the cells that it has left."""


async def index(request: ApiRequest) -> Answer:
    """List the actions of a server, newest first."""
    query = _query(request)
    listed = [one for one in await _listed(request, query) if query.takes(one)]
    limit = query.limit - MORE
    shown = [views.action(one) for one in listed[:limit]]
    body: dict[str, object] = {"instanceActions": shown}
    if request.version >= PAGED_SINCE and len(listed) > limit and shown:
        path = f"servers/{shown[-1]['instance_uuid']}/os-instance-actions"
        body["links"] = request.links.next(path, request.raw_query, shown[-1]["request_id"])
    return Answer(body)


async def show(request: ApiRequest) -> Answer:
    """Show one action with its events."""
    found = await _find(request)
    wanted = request.params["request_id"]
    action, tried = await _action(request, found, wanted)
    if action is None:
        raise NotFound(f"Action for request_id {wanted[:80]} on instance {found.instance.uuid} not found")
    body = views.action(action)
    trusted = request.allowed(EVENTS)
    if trusted or request.version >= EVENTS_FOR_ALL_SINCE:
        details = request.version >= DETAILS_SINCE and request.allowed(f"{EVENTS}:details")
        body["events"] = [
            views.event(
                one,
                found.instance.project_id,
                hosts=trusted and request.version >= HOSTS_SINCE,
                tracebacks=trusted,
                details=details,
            )
            for one in await _events(request, found, action, tried)
        ]
    return Answer({"instanceAction": body})


def _query(request: ApiRequest) -> ActionQuery:
    """Return which actions are asked for: before there were pages the newest, as many as a page has at most."""
    if request.version < PAGED_SINCE:
        return ActionQuery(limit=request.services.settings.max_limit + MORE)
    limit, marker = request.page()
    since, before = _time(request, "changes-since"), _time(request, "changes-before")
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
    query = ActionQuery(limit=limit + MORE, marker=marker)
    bounds = {"since": since, "before": before}
    return replace(query, **{name: bound for name, bound in bounds.items() if bound is not None})


async def _listed(request: ApiRequest, query: ActionQuery) -> list[Action]:
    """Return the actions; of a server whose cell cannot be read the create, which is known above it (2.69)."""
    try:
        found = await _find(request)
        return await _page(request, found, query)
    except CellUnreadable as error:
        if request.version < PARTIAL_SINCE:
            raise
        spec = await request.services.database.read(partial(build_requests.spec_of, instance=error.mapping.instance))
        return _alone(views.known_create(error.mapping, spec.user_id if spec is not None else ""), query)


async def _find(request: ApiRequest) -> LocatedServer:
    return await find(request, deleted=request.version >= OF_DELETED_SINCE)


async def _page(request: ApiRequest, found: LocatedServer, query: ActionQuery) -> list[Action]:
    if found.cell is None:
        return _alone(views.create_of(found.instance), query)
    listed, _ = await _known(request, found, partial(actions.page_of, instance=found.instance.uuid, query=query))
    if listed is None:
        raise _no_marker(query)
    return listed


def _alone(create: Action, query: ActionQuery) -> list[Action]:
    """Return what there is of a server of which nothing is known but its create."""
    if query.marker is None:
        return [create]
    if query.marker != create.request_id:
        raise _no_marker(query)
    return []


def _no_marker(query: ActionQuery) -> BadRequest:
    return BadRequest(f"marker [{(query.marker or '')[:80]}] not found")


async def _action(request: ApiRequest, found: LocatedServer, wanted: str) -> tuple[Action | None, list[AttemptRecord]]:
    """Return the action of a request, and of a create its attempts."""
    if found.cell is None:
        create = views.create_of(found.instance)
        return (create if create.request_id == wanted else None), []

    def unit(connection: Connection) -> list[Action]:
        one = actions.one_of(connection, found.instance.uuid, wanted)
        return [] if one is None else [one]

    known, tried = await _known(request, found, unit)
    return (known[0] if known else None), tried


async def _known(
    request: ApiRequest, found: LocatedServer, read: Unit[list[Action] | None]
) -> tuple[list[Action] | None, list[AttemptRecord]]:
    """Return what is read of the actions of a server, a create with what became of it, and the attempts of that."""
    assert found.cell is not None
    uuid = found.instance.uuid

    def unit(connection: Connection) -> tuple[list[Action] | None, _Attempts | None]:
        listed = read(connection)
        with_create = any(one.action == CREATE for one in listed or ())
        return listed, _attempts_in(connection, uuid) if with_create else None

    listed, attempted = await read_cell(request.services, found.cell, unit)
    if listed is None or attempted is None:
        return listed, []
    tried = await _with_earlier(request, found, attempted)
    return [views.with_outcome(one, found.instance, tried) if one.action == CREATE else one for one in listed], tried


async def _events(
    request: ApiRequest, found: LocatedServer, action: Action, tried: list[AttemptRecord]
) -> list[ActionEvent]:
    if found.cell is None:
        return []
    if action.action == CREATE:
        return views.create_events(tried, found.instance)
    unit = partial(actions.events_of, instance=found.instance.uuid, request_id=action.request_id)
    return await read_cell(request.services, found.cell, unit)


def _attempts_in(connection: Connection, uuid: InstanceUuid) -> _Attempts:
    return attempts.history(connection, uuid), moves.cells_left(connection, uuid)


async def _with_earlier(request: ApiRequest, found: LocatedServer, attempted: _Attempts) -> list[AttemptRecord]:
    """Return the attempts in the cell of a server with those in the cells that it has left."""
    here, left = attempted
    others = [one for one in left if one != found.cell]
    return await with_earlier(request.services.cells, here, others, found.instance.uuid, within=LIST_SECONDS)


def _time(request: ApiRequest, name: str) -> int | None:
    text = request.first(name)
    if text is None:
        return None
    try:
        return parse_iso(text)
    except ValueError:
        raise BadRequest(f"Invalid input for query parameters {name}. Value: {text[:80]}. It is no time") from None
