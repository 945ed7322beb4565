"""Where the servers of a host would go if they were moved now, and what cannot and why. Nothing is held.

Each is asked of the scheduler as its move would be, one after the other; what earlier ones of the plan would take of a
host is not there for later ones. A cold move for which its cell has no host asks the other cells, as a super conductor
would (`super_conductor/between_cells.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec

from skep.admin import explanations
from skep.admin.every_cell import ask_each
from skep.admin.hosts import named
from skep.admin.placement_answers import AnsweredPlan, PlannedMove, ShownExplanation
from skep.admin.requests import AdminRequest, operation
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.cell import agents, between_cells, builds, residents
from skep.database.cell.builds import Work
from skep.database.hosts_of_servers import hosts_of
from skep.domain.actions import ACTIONS
from skep.domain.builds import Decision, NotReady, NoValidHost, Placed
from skep.domain.cells import HostMapping
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Instance
from skep.domain.leaving import cells_not_asked, in_other_cells
from skep.domain.request_specs import RequestSpec, with_host_names
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """Among which hosts the scheduler is to choose."""

    ignore: tuple[NodeUuid, ...]
    cell: CellUuid | None = None
    exclude_cells: tuple[CellUuid, ...] = ()
    source_cell: CellUuid | None = None
    unread: str = ""
    """Which cells were not asked because they do not answer, as it is added to what is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is asked for every server of one host."""

    services: AdminServices
    context: RequestContext
    mapping: HostMapping
    move: Move
    unable: tuple[NodeUuid, ...]
    """Nodes without the capability for the move."""
    here: _Reach
    elsewhere: _Reach | None
    """For a server that its own cell has no host for; None: no other cell can have a part in the move."""
    room: _Room = field(default_factory=_Room)


@operation()
async def show(request: AdminRequest) -> AnsweredPlan:
    """Answer the plan of one host, by its name or its node's UUID."""
    services = request.services
    mapping = await services.database.read(partial(named, name=request.params["host"]))
    move = await _move_of(services, mapping)
    cell = services.cell(mapping.cell)
    there = await cell.read(partial(residents.on_hosts, hosts=(mapping.host,)), within=CELL_SECONDS)
    unable = await cell.read(partial(_unable, move=move), within=CELL_SECONDS)
    here = _Reach(cell=mapping.cell, ignore=tuple(dict.fromkeys((mapping.node, *unable))))
    elsewhere = await _elsewhere(services, mapping) if move == "migrate" else None
    plan = _Plan(
        services=services,
        context=request.context,
        mapping=mapping,
        move=move,
        unable=unable,
        here=here,
        elsewhere=elsewhere,
    )
    servers: list[PlannedMove] = []
    planned = there[:MOST_SERVERS]
    for start in range(0, len(planned), BATCH):
        uuids = [one.uuid for one in planned[start : start + BATCH]]
        works = await cell.read(partial(_works, uuids=uuids), within=CELL_SECONDS)
        servers += [await _of_server(plan, work) for work in works]
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


async def _elsewhere(services: AdminServices, mapping: HostMapping) -> _Reach | None:
    """Return the hosts of other cells that a cold move from this host may have; None: there can be none."""
    asked = [uuid for uuid in services.cells if uuid != CELL0]
    able, unread = await ask_each(services, partial(between_cells.able, now=services.clock.now()), among=asked)
    own = able.get(mapping.cell)
    if own is None or not own.conductors or mapping.node in own.unable:
        return None
    others = {uuid: one for uuid, one in able.items() if uuid != mapping.cell and one.conductors}
    if not others and not unread:
        return None
    names = ", ".join(sorted(str(services.cell_name(uuid)) for uuid in unread))
    return _Reach(
        ignore=tuple(node for one in others.values() for node in one.unable),
        exclude_cells=tuple(uuid for uuid in services.cells if uuid not in others),
        source_cell=mapping.cell,
        unread=f" (not asked, because they do not answer: {names})" if names else "",
    )


async def _of_server(plan: _Plan, work: Work) -> PlannedMove:
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
    why = _why_not(server, plan.mapping, plan.move, plan.unable)
    if why is not None:
        return {**view, "why_not": why}
    decision, why = await _decided(plan, work, plan.here)
    if isinstance(decision, NoValidHost) and plan.move == "migrate":
        decision, why = await _decided_elsewhere(plan, work, decision, why)
    if isinstance(decision, Placed):
        view["goes_to"] = decision.host
    if not isinstance(decision, NotReady):
        view["explanation"] = _explained(decision)
    return {**view, "why_not": why or None}


async def _decided_elsewhere(plan: _Plan, work: Work, here: NoValidHost, why: str) -> tuple[Decision, str]:
    """Return where a server would go that its cell has no host for; the decision `here` if the others have none."""
    rule = plan.services.kept(plan.context, work.instance)
    if rule is not None:
        return here, cells_not_asked(why, rule)
    if plan.elsewhere is None:
        return here, why
    decision, there = await _decided(plan, work, plan.elsewhere)
    if isinstance(decision, Placed):
        return decision, ""
    return here, in_other_cells(why, f"{there}{plan.elsewhere.unread}")


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


async def _decided(plan: _Plan, work: Work, reach: _Reach) -> tuple[Decision, str]:
    """Return where a server would go within reach, or why it would not; what servers before it take is not there."""
    services = plan.services
    spec = await _spec(services, work, reach)
    full: list[NodeUuid] = []
    while True:
        asked = SelectDestinations(
            spec=spec,
            members=(Member(work.instance.uuid, work.instance.attempt + 1),),
            cell=reach.cell,
            exclude_cells=reach.exclude_cells,
            source_cell=reach.source_cell,
            ignore=tuple(dict.fromkeys((*reach.ignore, *full))),
            home=plan.mapping.node if reach.cell is not None else None,
            alternates=0,
            dry_run=True,
        )
        try:
            [decision] = (await services.transport.call(SCHEDULER, asked)).decisions
        except SkepError as error:
            decision = NotReady(reason=f"no scheduler answered: {error}")
        if isinstance(decision, NotReady):
            return decision, f"not ready: {decision.reason}"
        if isinstance(decision, NoValidHost):
            beside = f" ({len(full)} more would be full by then of servers before it)" if full else ""
            return decision, f"{decision.message()}{beside}"
        if len(full) >= MOST_FULL:
            return decision, ""
        await _know(services, decision.node, plan.room)
        if plan.room.takes(decision.node, spec.resources()):
            return decision, ""
        full.append(decision.node)


async def _spec(services: AdminServices, work: Work, reach: _Reach) -> RequestSpec:
    """Return what a move asks for: no host of its create; across cells with the hosts of servers that hints name."""
    spec = msgspec.structs.replace(
        work.spec, forced_host=None, forced_node=None, requested_host=None, requested_node=None
    )
    named = (*spec.same_host, *spec.different_host)
    if reach.cell is not None or not named:
        return spec
    return with_host_names(spec, await hosts_of(services.database, services.cells, named, within=CELL_SECONDS))


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
