"""What the API asks before a server is moved to another host, and the writes that begin it."""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from skep.api.handlers.server_hosts import host_states
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import host_mappings
from skep.database.cell import agents, cold_moves, instances
from skep.domain.actions import Action, Over
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Unavailable
from skep.domain.instances import Instance

log = structlog.get_logger("skep.api.servers")

TO_HOST = "os_compute_api:os-migrate-server:migrate:host"
HOSTS_SINCE = 56


async def wanted_host(request: ApiRequest, server: Instance, asked: Any) -> str | None:
    """Return the host that the body names, None where it names none.

    Raises Forbidden for callers who may name none; BadRequest for a host that is unknown or the server's own.
    """
    host = (asked or {}).get("host") if request.version >= HOSTS_SINCE and isinstance(asked, dict) else None
    if host is None:
        return None
    request.authorize(rule=TO_HOST, project_id=server.project_id, user_id=server.user_id)
    if await request.services.database.read(partial(host_mappings.of_host, host=host)) is None:
        raise BadRequest(f"Compute host {host} could not be found.")
    if host == server.host:
        raise BadRequest("The target host can't be the same one.")
    return str(host)


async def check_source(request: ApiRequest, server: Instance) -> None:
    """Raise Conflict when the host of a server is known to be down. While no scheduler answers, none is known to be."""
    try:
        states = await host_states(request.services)
    except Unavailable as error:
        log.warning("host states unknown", error=str(error))
        return
    for state in states:
        if state.usage.host == server.host and not state.up:
            raise Conflict(f"Compute service of {server.host} is unavailable at this time.")


def begin(
    connection: Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    host: str | None = None,
) -> list[Over] | None:
    """Begin a move or a revert of a server as it is in its cell; None when its row does not allow it.

    Raises Conflict when its host takes part in no move, BadRequest for a revert without a finished move.
    """
    row = instances.get(connection, server.uuid)
    if row is None or row.attempt != server.attempt:
        return None
    if action.name == "revert_resize":
        return cold_moves.begin_revert(connection, row, action, context, now)
    if row.node in agents.without(connection, "MoveStep", str(action.capability)):
        raise Conflict(
            f"Cannot '{action.record}' instance {row.uuid}: the requested functionality is not supported. Its host "
            f"lacks the capability `{action.capability}`."
        )
    return cold_moves.begin(connection, row, action, context, now, wanted_host=host)
