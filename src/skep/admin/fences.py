"""Fencing: the operator's word that a host is dead, what must be known before it is taken, and how it is taken back."""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec
import structlog

from skep.admin.answers import AnsweredHost
from skep.admin.hosts import named, show
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection, clocks
from skep.database.cell import agents, fences
from skep.domain.cells import HostMapping
from skep.domain.clock import SECOND, isoformat
from skep.domain.errors import Conflict, NotFound, SkepError
from skep.domain.ids import NodeUuid
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply
from skep.transport.base import SCHEDULER, cell_conductor

log = structlog.get_logger("skep.admin")

Heard = Literal["heard", "silent", "unknown"]

WHAT_UNKNOWN_MEANS = (
    "The host may run its servers. If it is heard before the fence is due, the fence is withdrawn and nothing "
    "happens. If it is heard later, it destroys all its guests."
)


class FenceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /hosts/{host}/fence`, which may be left out."""

    although_unknown: bool = False
    """Fence a host of which nobody can tell whether it lives."""


@takes(FenceBody, body_required=False)
async def fence(request: AdminRequest, body: FenceBody) -> AnsweredHost:
    """Mark a host as dead for good: its cell gives up what was on it when the grace is over.

    Only of a host that is forced down and that a living beat of its cell omits: where nobody can tell whether it lives,
    the caller must say `although_unknown`. Raises Conflict otherwise. It may be repeated.
    """
    services = request.services
    mapping = await services.database.read(partial(named, name=request.params["host"]))
    if not mapping.forced_down:
        raise Conflict(f"Host {mapping.host} is not forced down: fencing is for dead hosts. Force it down first.")
    check(mapping.host, await _heard(services, mapping), although_unknown=body.although_unknown)
    grace = round(services.fence_grace_seconds * SECOND)

    def unit(connection: Connection) -> bool:
        now = clocks.now(connection, services.clock)
        return fences.mark(connection, mapping.node, now, now + grace)

    if not await services.cell(mapping.cell).write(unit, intake=True, within=CELL_SECONDS):
        raise NotFound(f"The cell of host {mapping.host} does not know it.")
    await services.transport.cast(cell_conductor(mapping.cell), InstancesChanged(work=("fences",)), request.context)
    log.warning(
        "host fenced",
        host=mapping.host,
        node=mapping.node,
        user=request.context.user_id,
        although_unknown=body.although_unknown,
    )
    return await show(request)


@operation()
async def unfence(request: AdminRequest) -> AnsweredHost:
    """Take the fence of a host back. Raises Conflict when there is none, or when it has taken effect."""
    services = request.services
    mapping = await services.database.read(partial(named, name=request.params["host"]))
    cell = services.cell(mapping.cell)
    if not await cell.write(partial(fences.take_back, node=mapping.node), intake=True, within=CELL_SECONDS):
        agent = await cell.read(partial(agents.get, node=mapping.node), within=CELL_SECONDS)
        raise Conflict(why_not_taken_back(mapping.host, agent))
    # What was given up meanwhile is to be undone by its host.
    work = InstancesChanged(work=("fences", "deletes"))
    await services.transport.cast(cell_conductor(mapping.cell), work, request.context)
    log.warning("fence withdrawn", host=mapping.host, node=mapping.node, user=request.context.user_id)
    return await show(request)


def check(host: str, heard: Heard, *, although_unknown: bool) -> None:
    """Refuse to fence a host that lives, or that may live for all that anybody knows. Raises Conflict."""
    if heard == "heard":
        raise Conflict(
            f"Host {host} is heard by its cell, so it is not dead. To fence it, switch it off and wait until it is "
            "silent."
        )
    if heard == "unknown" and not although_unknown:
        raise Conflict(
            f"It is unknown whether host {host} is dead: no conductor of its cell has listened for long enough, or no "
            f"scheduler knows the host. Wait, or set although_unknown. {WHAT_UNKNOWN_MEANS}"
        )


def why_not_taken_back(host: str, agent: agents.RegisteredAgent | None) -> str:
    """Return why there is no fence that could be taken back."""
    if agent is None or agent.fenced_at is None:
        return f"Host {host} is not fenced."
    since = f" at {isoformat(agent.fence_due_at)}" if agent.fence_due_at is not None else ""
    return (
        f"The fence of host {host} was due{since} and has taken effect: what was on the host is given up. If the host "
        "lives, start its agent: it destroys the guests that it has, and may get new ones."
    )


async def _heard(services: AdminServices, mapping: HostMapping) -> Heard:
    try:
        reply = await services.transport.call(SCHEDULER, GetHostStates(nodes=(mapping.node,)))
    except SkepError as error:
        log.warning("host states unknown", error=str(error))
        return "unknown"
    return heard_of(mapping.node, reply)


def heard_of(node: NodeUuid, reply: GetHostStatesReply) -> Heard:
    """Say whether a host is heard, by what a scheduler answers of it."""
    if node in reply.silent:
        return "silent"
    is_heard = any(state.node == node and state.silent is False for state in reply.hosts)
    return "heard" if is_heard else "unknown"
