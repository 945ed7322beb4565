"""Where the servers of a host would go if they were moved now, and what cannot and why. Nothing is held.

Each is asked of the scheduler as its move would be, one after the other; what earlier ones of the plan would take of a
host is not there for later ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec

from skep.admin import explanations
from skep.admin.hosts import named
from skep.admin.placement_answers import AnsweredPlan, PlannedMove, ShownExplanation
from skep.admin.requests import AdminRequest, operation
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.cell import agents, builds, residents
from skep.database.cell.builds import Work
from skep.domain.actions import ACTIONS
from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.cells import HostMapping
from skep.domain.errors import SkepError
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance
from skep.domain.resources import Resources
from skep.domain.states import task_state, vm_state
from skep.messages.to_scheduler import GetHostStates, Member, SelectDestinations
from skep.transport.base import SCHEDULER

MOST_SERVERS = 1000
"""Of one plan; the others are counted."""
BATCH = 50
"""Servers that are read at once."""
MOST_FULL = 50
"""Hosts that a plan has filled are left out for a server, up to so many."""

Move = Literal["migrate", "evacuate"]


@dataclass
class _Room:
    """What is free on hosts when the moves that were planned so far are done."""

    free: dict[NodeUuid, Resources] = field(default_factory=dict)

    def takes(self, node: NodeUuid, wanted: Resources) -> bool:
        """Take from a host what a server wants; False where that is not there."""
        free = self.free[node]
        if any(free.get(name, 0) < amount for name, amount in wanted.items()):
            return False
        self.free[node] = {name: amount - wanted.get(name, 0) for name, amount in free.items()}
        return True


@operation()
async def show(request: AdminRequest) -> AnsweredPlan:
    """Answer the plan of one host, by its name or its node's UUID."""
    services = request.services
    mapping = await services.database.read(partial(named, name=request.params["host"]))
    move = await _move_of(services, mapping)
    cell = services.cell(mapping.cell)
    there = await cell.read(partial(residents.on_hosts, hosts=(mapping.host,)), within=CELL_SECONDS)
    unable = await cell.read(partial(_unable, move=move), within=CELL_SECONDS)
    room = _Room()
    servers: list[PlannedMove] = []
    planned = there[:MOST_SERVERS]
    for start in range(0, len(planned), BATCH):
        uuids = [one.uuid for one in planned[start : start + BATCH]]
        works = await cell.read(partial(_works, uuids=uuids), within=CELL_SECONDS)
        servers += [await _of_server(services, mapping, move, work, unable, room) for work in works]
    goes = sum(one["goes_to"] is not None for one in servers)
    return {
        "plan": {
            "host": mapping.host,
            "cell": services.cell_name(mapping.cell),
            "move": move,
            "servers": servers,
            "go": goes,
            "stay": len(servers) - goes,
            "not_planned": len(there) - len(planned),
        }
    }


async def _move_of(services: AdminServices, mapping: HostMapping) -> Move:
    """Return how servers leave the host: a cold move needs it alive."""
    reply = await services.transport.call(SCHEDULER, GetHostStates(nodes=(mapping.node,)))
    is_up = any(state.up for state in reply.hosts if state.node == mapping.node)
    return "migrate" if is_up else "evacuate"


def _unable(connection: Connection, move: Move) -> tuple[NodeUuid, ...]:
    return tuple(agents.without(connection, "MoveStep", str(ACTIONS[move].capability)))


def _works(connection: Connection, uuids: list[InstanceUuid]) -> list[Work]:
    return [work for uuid in uuids if (work := builds.work(connection, uuid)) is not None]


async def _of_server(
    services: AdminServices,
    mapping: HostMapping,
    move: Move,
    work: Work,
    unable: tuple[NodeUuid, ...],
    room: _Room,
) -> PlannedMove:
    server = work.instance
    view: PlannedMove = {
        "server": server.uuid,
        "name": server.name,
        "vm_state": vm_state(server.state),
        "task_state": task_state(server.state, server.task),
        "flavor": server.flavor.name,
        "goes_to": None,
        "why_not": None,
        "explanation": None,
    }
    why = _why_not(server, mapping, move, unable)
    if why is not None:
        return {**view, "why_not": why}
    decision, full = await _decided(services, mapping, work, unable, room)
    match decision:
        case Placed():
            return {**view, "goes_to": decision.host, "explanation": _explained(decision)}
        case NotReady():
            return {**view, "why_not": f"not ready: {decision.reason}"}
        case NoValidHost():
            beside = f" ({full} more would be full by then of servers before it)" if full else ""
            return {**view, "why_not": f"{decision.message()}{beside}", "explanation": _explained(decision)}


def _explained(decision: Placed | NoValidHost) -> ShownExplanation | None:
    return explanations.explanation(decision.explanation, admin=True) if decision.explanation else None


def _why_not(server: Instance, mapping: HostMapping, move: Move, unable: tuple[NodeUuid, ...]) -> str | None:
    """Return why the API would refuse the move; None: it would begin."""
    action = ACTIONS[move]
    if server.launched_at is None:
        return "it was never built"
    if action.begins_in is not None and server.state not in action.begins_in:
        return f"it cannot {move} in vm_state {vm_state(server.state)}"
    if server.task is not None and server.task not in action.overrides:
        return f"it cannot {move} in task_state {task_state(server.state, server.task)}"
    if move == "migrate" and mapping.node in unable:
        return f"its host lacks the capability `{action.capability}`"
    return None


async def _decided(
    services: AdminServices, mapping: HostMapping, work: Work, unable: tuple[NodeUuid, ...], room: _Room
) -> tuple[Placed | NoValidHost | NotReady, int]:
    """Return where a server would go, and how many hosts fit but for the servers before it."""
    spec = msgspec.structs.replace(
        work.spec, forced_host=None, forced_node=None, requested_host=None, requested_node=None
    )
    full: list[NodeUuid] = []
    while True:
        asked = SelectDestinations(
            spec=spec,
            members=(Member(work.instance.uuid, work.instance.attempt + 1),),
            cell=mapping.cell,
            ignore=tuple(dict.fromkeys((mapping.node, *unable, *full))),
            alternates=0,
            dry_run=True,
        )
        try:
            [decision] = (await services.transport.call(SCHEDULER, asked)).decisions
        except SkepError as error:
            return NotReady(reason=f"no scheduler answered: {error}"), len(full)
        if not isinstance(decision, Placed) or len(full) >= MOST_FULL:
            return decision, len(full)
        await _know(services, decision.node, room)
        if room.takes(decision.node, spec.resources()):
            return decision, len(full)
        full.append(decision.node)


async def _know(services: AdminServices, node: NodeUuid, room: _Room) -> None:
    """See what is free on a host, the first time that a server of the plan may go there."""
    if node in room.free:
        return
    reply = await services.transport.call(SCHEDULER, GetHostStates(nodes=(node,)))
    room.free[node] = {}
    for state in reply.hosts:
        claimed = [claim.resources for claim in state.claims]
        room.free[node] = {
            name: inventory.capacity - state.usage.used.get(name, 0) - sum(one.get(name, 0) for one in claimed)
            for name, inventory in state.usage.inventory.items()
        }
