"""What the API asks before a server is evacuated from a host that is lost, and the write that begins it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.creating.contents import Secrets, password_of
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import host_mappings
from skep.database.cell import agents, evacuations, instances
from skep.domain.actions import Action, EvacuateTo, Over
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError
from skep.domain.instances import Instance
from skep.messages.to_scheduler import GetHostStates
from skep.transport.base import SCHEDULER

log = structlog.get_logger("skep.api.servers")

SILENT_SINCE = 14
"""Since then the answer has no password, and the driver says whether disks are shared."""
JUDGED_SINCE = 29
"""Since then the scheduler judges a host that is named, unless the body forces it (until 2.67)."""
STOPPED_SINCE = 95
"""Since then the server is left stopped."""
ANSWER_SECONDS = 2.0


class WantedEvacuation(msgspec.Struct, frozen=True, kw_only=True):
    """What the body asks for."""

    host: str | None
    to: EvacuateTo
    password: str
    secrets: bytes


async def wanted(request: ApiRequest, server: Instance, asked: dict[str, Any]) -> WantedEvacuation:
    """Return what is asked for. Raises NotFound for an unknown host, BadRequest for one that cannot be."""
    host = asked.get("host")
    forced = bool(asked.get("force")) if request.version >= JUDGED_SINCE else host is not None
    if forced and host is None:
        raise BadRequest("Can't force to a non-provided destination")
    if asked.get("onSharedStorage"):
        raise BadRequest("onSharedStorage: no host of this cloud shares its disks with others.")
    if host is not None and await request.services.database.read(partial(host_mappings.of_host, host=host)) is None:
        raise NotFound(f"Compute host {host} not found.")
    if host is not None and host == server.host:
        raise BadRequest("The target host can't be the same one.")
    password = password_of(asked)
    return WantedEvacuation(
        host=host,
        to=EvacuateTo(forced=forced, stopped=request.version >= STOPPED_SINCE),
        password=password,
        secrets=request.services.seal(msgspec.json.encode(Secrets(admin_password=password))),
    )


async def check_source(request: ApiRequest, server: Instance) -> None:
    """Raise BadRequest while the host of a server is in use, Conflict when it is not known whether it is."""
    assert server.node is not None
    unknown = Conflict(f"It is not known whether the compute service of {server.host} is down. Try again.")
    try:
        reply = await request.services.transport.call(
            SCHEDULER, GetHostStates(nodes=(server.node,)), timeout=ANSWER_SECONDS
        )
    except SkepError as error:
        log.warning("host states unknown", error=str(error))
        raise unknown from error
    state = next((one for one in reply.hosts if one.node == server.node), None)
    if state is not None and state.up:
        raise BadRequest(f"Compute service of {server.host} is still in use.")
    if server.node not in reply.silent and not (state is not None and state.forced_down):
        raise unknown


def begin(
    connection: Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    wanted: WantedEvacuation,
    now: int,
    *,
    needs_fence: bool,
) -> list[Over] | None:
    """Begin an evacuation of a server as it is in its cell; None when its row does not allow it.

    Raises Conflict where its host has to be fenced first.
    """
    row = instances.get(connection, server.uuid)
    if row is None or row.attempt != server.attempt or row.node is None:
        return None
    agent = agents.get(connection, row.node)
    if needs_fence and agent is not None and agent.fenced_at is None:
        raise Conflict(
            f"Cannot '{action.record}' instance {row.uuid}: its host {row.host} is not fenced. Fence it first "
            f"(`skep host fence {row.host}`)."
        )
    return evacuations.begin(
        connection, row, action, context, now, to=wanted.to, wanted_host=wanted.host, secrets=wanted.secrets
    )
