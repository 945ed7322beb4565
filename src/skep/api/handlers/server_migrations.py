"""What may be done to a live migration of a server that is under way."""

from __future__ import annotations

from functools import partial

from skep.api.cells import read_cell
from skep.api.handlers.server_actions import carry_out_and_tell, check_migrating
from skep.api.handlers.server_lookup import find
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import server_migrations
from skep.domain.actions import ACTIONS, Action
from skep.domain.errors import BadRequest, NotFound
from skep.domain.server_migrations import ABORTED_WHILE, ABORTED_WHILE_WAITING, ServerMigration

WAITING_SINCE = 65
"""Since then a migration may be aborted before its copying begins."""


async def abort(request: ApiRequest) -> Answer:
    """`DELETE /servers/{id}/migrations/{migration_id}`: the server stays where it is."""
    action = ACTIONS["live_abort"]
    found = await _of_request(request, action)
    if found is None:
        raise NotFound(_missing(request))
    statuses = ABORTED_WHILE_WAITING if request.version >= WAITING_SINCE else ABORTED_WHILE
    return await carry_out_and_tell(request, action, {"migration": found.uuid, "statuses": list(statuses)})


async def act(request: ApiRequest) -> Answer:
    """`POST /servers/{id}/migrations/{migration_id}/action`: `force_complete` pauses the server until all is copied."""
    action = ACTIONS["live_complete"]
    found = await _of_request(request, action)
    if found is None:
        raise BadRequest(_missing(request))
    return await carry_out_and_tell(request, action, {"migration": found.uuid})


async def _of_request(request: ApiRequest, action: Action) -> ServerMigration | None:
    """Return the live migration that the path names. Raises Conflict when the server is under none."""
    server = await find(request)
    check_migrating(request, server.instance, action)
    if server.cell is None:
        return None
    wanted = partial(server_migrations.of_server, instance=server.instance.uuid, number=request.params["migration_id"])
    return await read_cell(request.services, server.cell, wanted)


def _missing(request: ApiRequest) -> str:
    wanted = request.params["migration_id"][:80]
    return f"Migration {wanted} for server {request.params['id']} could not be found."
