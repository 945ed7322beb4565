"""What was done to a server and how it went: actions and their events.

The events of a create are the attempts of its build, so that each host that was tried is seen with its reason.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from skep.api.cells import LIST_SECONDS, read_cell
from skep.api.handlers.server_lookup import CellUnreadable, LocatedServer, find
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.server_answers import PARTIAL_SINCE
from skep.api.views import instance_actions as views
from skep.database import Connection
from skep.database.api import build_requests
from skep.database.cell import actions, attempts, moves
from skep.database.cell.actions import Action, ActionEvent
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
MOST = 2**31
"""Actions of a server: all of them."""

_Attempts: TypeAlias = tuple[list[AttemptRecord], list[CellUuid]]
"""The attempts of a server in its cell, and the cells that it has left."""


async def index(request: ApiRequest) -> Answer:
    """List the actions of a server, newest first."""
    listed = await _listed(request)
    if request.version < PAGED_SINCE:
        return Answer({"instanceActions": [views.action(one) for one in listed]})
    limit, marker = request.page()
    listed = _in_time(request, listed)
    if marker is not None:
        listed = _after(listed, marker)
    shown = [views.action(one) for one in listed[:limit]]
    body: dict[str, object] = {"instanceActions": shown}
    if len(listed) > limit and shown:
        path = f"servers/{shown[-1]['instance_uuid']}/os-instance-actions"
        body["links"] = request.links.next(path, request.raw_query, shown[-1]["request_id"])
    return Answer(body)


async def show(request: ApiRequest) -> Answer:
    """Show one action with its events."""
    found = await _find(request)
    wanted = request.params["request_id"]
    action = next((one for one in await _actions(request, found) if one.request_id == wanted), None)
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
            for one in await _events(request, found, action)
        ]
    return Answer({"instanceAction": body})


async def _listed(request: ApiRequest) -> list[Action]:
    """Return the actions; of a server whose cell cannot be read the create, which is known above it (2.69)."""
    try:
        return await _actions(request, await _find(request))
    except CellUnreadable as error:
        if request.version < PARTIAL_SINCE:
            raise
        spec = await request.services.database.read(partial(build_requests.spec_of, instance=error.mapping.instance))
        return [views.known_create(error.mapping, spec.user_id if spec is not None else "")]


async def _find(request: ApiRequest) -> LocatedServer:
    return await find(request, deleted=request.version >= OF_DELETED_SINCE)


async def _actions(request: ApiRequest, found: LocatedServer) -> list[Action]:
    if found.cell is None:
        return [views.create_of(found.instance)]
    uuid = found.instance.uuid

    def unit(connection: Connection) -> tuple[list[Action], _Attempts]:
        return actions.list_of(connection, uuid, limit=MOST), _attempts_in(connection, uuid)

    listed, attempted = await read_cell(request.services, found.cell, unit)
    tried = await _with_earlier(request, found, attempted)
    return [views.with_outcome(one, found.instance, tried) if one.action == "create" else one for one in listed]


async def _events(request: ApiRequest, found: LocatedServer, action: Action) -> list[ActionEvent]:
    if found.cell is None:
        return []
    if action.action == "create":
        return views.create_events(await _attempts(request, found), found.instance)
    unit = partial(actions.events_of, instance=found.instance.uuid, request_id=action.request_id)
    return await read_cell(request.services, found.cell, unit)


async def _attempts(request: ApiRequest, found: LocatedServer) -> list[AttemptRecord]:
    """Return all attempts of a server, also those in cells that it has left."""
    assert found.cell is not None
    unit = partial(_attempts_in, uuid=found.instance.uuid)
    return await _with_earlier(request, found, await read_cell(request.services, found.cell, unit))


def _attempts_in(connection: Connection, uuid: InstanceUuid) -> _Attempts:
    return attempts.history(connection, uuid), moves.cells_left(connection, uuid)


async def _with_earlier(request: ApiRequest, found: LocatedServer, attempted: _Attempts) -> list[AttemptRecord]:
    """Return the attempts in the cell of a server with those in the cells that it has left."""
    here, left = attempted
    others = [one for one in left if one != found.cell]
    return await with_earlier(request.services.cells, here, others, found.instance.uuid, within=LIST_SECONDS)


def _in_time(request: ApiRequest, listed: list[Action]) -> list[Action]:
    since, before = _time(request, "changes-since"), _time(request, "changes-before")
    if since is not None and before is not None and since > before:
        raise BadRequest("The value of changes-since must be less than or equal to changes-before.")
    return [
        one
        for one in listed
        if (since is None or (one.updated_at or one.started_at) >= since)
        and (before is None or (one.updated_at or one.started_at) <= before)
    ]


def _time(request: ApiRequest, name: str) -> int | None:
    text = request.first(name)
    if text is None:
        return None
    try:
        return parse_iso(text)
    except ValueError:
        raise BadRequest(f"Invalid input for query parameters {name}. Value: {text[:80]}. It is no time") from None


def _after(listed: list[Action], marker: str) -> list[Action]:
    for index, one in enumerate(listed):
        if one.request_id == marker:
            return listed[index + 1 :]
    raise BadRequest(f"marker [{marker[:80]}] not found")
