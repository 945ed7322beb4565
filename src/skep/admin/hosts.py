"""Hosts: what the operator's rows say of them joined with what placement holds of them."""

from __future__ import annotations

import msgspec
import structlog

from skep.admin.answers import (
    AgentBeside,
    AgentOfHost,
    AmountsOfHost,
    AnsweredHost,
    HeldOfHost,
    HostInBrief,
    KnownOfAgent,
    ListedHosts,
    Liveness,
    RefusalOfHost,
)
from skep.admin.every_cell import ask_each
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database.api import host_mappings
from skep.database.api.operator_state import Concerned
from skep.database.cell import agents, host_keys, sessions
from skep.domain.cells import HostMapping
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, NotFound, SkepError
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid, NodeUuid
from skep.http.operations import STRING
from skep.messages.to_scheduler import GetHostStates
from skep.reconciler.operator_state import tell_schedulers
from skep.transport.host_states import host_states

log = structlog.get_logger("skep.admin")

MAX_REASON = 255
"""Characters, as Nova's disabled_reason."""


class HostChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `PATCH /hosts/{host}`; what is not named stays."""

    disabled: bool | None = None
    disabled_reason: str | None = None
    forced_down: bool | None = None

    def check(self) -> None:
        """Refuse a change of nothing and a reason that no list could show. Raises BadRequest."""
        if self.disabled is None and self.disabled_reason is None and self.forced_down is None:
            raise BadRequest("body: expected one of disabled, disabled_reason and forced_down.")
        reason = self.disabled_reason or ""
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise BadRequest(f"disabled_reason: expected at most {MAX_REASON} printable characters.")


@operation(query={"cell": STRING})
async def index(request: AdminRequest) -> ListedHosts:
    """Answer all hosts by name; `?cell=NAME` those of one cell."""
    services = request.services
    mappings = await services.database.read(host_mappings.every)
    if "cell" in request.query:
        wanted = services.cell_named(request.query["cell"]).uuid
        mappings = tuple(mapping for mapping in mappings if mapping.cell == wanted)
    cells = {mapping.cell for mapping in mappings}
    states = await _states(services)
    told = await _agents(services, cells)
    return {
        "hosts": [
            {
                **_view(services, mapping, states),
                **_said_of(told.noted.get(mapping.node)),
                "key_refused_since": _time(told.refused.get(mapping.node)),
                "unsigned": (mapping.cell, mapping.host) in told.unsigned,
            }
            for mapping in sorted(mappings, key=lambda one: one.host)
        ]
    }


@operation()
async def show(request: AdminRequest) -> AnsweredHost:
    """Answer one host by its name or its node's UUID."""
    services = request.services
    mapping = await services.database.read(lambda connection: named(connection, request.params["host"]))
    states = await _states(services, (mapping.node,))
    held = _held(None if states is None else states.get(mapping.node))
    return {"host": {**_view(services, mapping, states), **held, **await _agent(services, mapping)}}


@takes(HostChange)
async def update(request: AdminRequest, change: HostChange) -> AnsweredHost:
    """Write what the operator wants of a host, and publish it. A reason goes when the host is enabled."""
    change.check()
    services = request.services
    now = services.clock.now()

    def unit(connection: Connection) -> NodeUuid:
        mapping = named(connection, request.params["host"])
        disabled = mapping.disabled if change.disabled is None else change.disabled
        if change.disabled_reason is not None and not disabled:
            raise BadRequest("disabled_reason: the host is not disabled.")
        reasoned = change.disabled is not None or change.disabled_reason is not None
        host_mappings.want(
            connection,
            mapping.node,
            now,
            disabled=disabled if reasoned else None,
            disabled_reason=change.disabled_reason,
            forced_down=change.forced_down,
        )
        return mapping.node

    node = await services.database.write(unit, intake=True)
    await tell_schedulers(services.database, services.transport, Concerned(nodes=(node,)))
    return await show(request)


def named(connection: Connection, name: str) -> HostMapping:
    """Return the host of a name or of its node's UUID. Raises NotFound."""
    mapping = None
    if name.isprintable():  # a database need not take anything else
        mapping = host_mappings.of_host(connection, name) or host_mappings.get(connection, NodeUuid(name))
    if mapping is None:
        raise NotFound(f"There is no host {name[:80]!r}.")
    return mapping


async def _states(
    services: AdminServices, nodes: tuple[NodeUuid, ...] | None = None
) -> dict[NodeUuid, HostState] | None:
    """Return host states by node; None when no scheduler answers: what rows say is shown all the same."""
    try:
        states = await host_states(services.transport, GetHostStates(nodes=nodes))
    except SkepError:
        return None
    return {state.node: state for state in states}


async def _agent(services: AdminServices, mapping: HostMapping) -> KnownOfAgent:
    """Say what the cell knows of the agent."""

    def unit(connection: Connection) -> KnownOfAgent:
        since = host_keys.refused(connection).get(mapping.node)
        return {**_said_of(agents.get(connection, mapping.node)), "key_refused_since": _time(since)}

    return await services.cell(mapping.cell).read(unit, within=CELL_SECONDS)


def _said_of(agent: agents.RegisteredAgent | None) -> AgentOfHost:
    """Say whether the host is fenced, and whether two agents have its identity."""
    if agent is None:
        return {"fenced_at": None, "fence_due_at": None, "fence_in_effect": False, "stale_agent": None}
    return {
        "fenced_at": _time(agent.fenced_at),
        "fence_due_at": _time(agent.fence_due_at),
        "fence_in_effect": agent.fence_in_effect,
        "stale_agent": _stale(agent),
    }


def _time(at: int | None) -> str | None:
    return isoformat_micro(at) if at is not None else None


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What cells know of their agents."""

    noted: dict[NodeUuid, agents.RegisteredAgent]
    """Agents of fenced hosts, and those beside which an older one spoke."""
    refused: dict[NodeUuid, int]
    """Since when an agent of a node is refused for its key."""
    unsigned: set[tuple[CellUuid, str]]
    """Hosts that may be unsigned."""


async def _agents(services: AdminServices, cells: set[CellUuid]) -> _Told:
    """Return what is known of the agents of these cells; of a cell that does not answer it is nothing."""
    told, unread = await ask_each(services, _noted, among=cells)
    for cell, error in unread.items():
        log.warning("agents of a cell not read", cell=services.cell_name(cell), error=str(error))
    return _Told(
        noted={agent.node: agent for noted, _, _ in told.values() for agent in noted},
        refused={node: since for _, refused, _ in told.values() for node, since in refused.items()},
        unsigned={(cell, host) for cell, (_, _, hosts) in told.items() for host in hosts},
    )


def _noted(connection: Connection) -> tuple[list[agents.RegisteredAgent], dict[NodeUuid, int], list[str]]:
    return agents.noted(connection), host_keys.refused(connection), sessions.unsigned(connection)


def _stale(agent: agents.RegisteredAgent) -> AgentBeside | None:
    """Say which older agent spoke with the identity of the host's agent, and when it did last."""
    if agent.stale_at is None:
        return None
    return {"incarnation": agent.stale_incarnation, "heard_at": isoformat_micro(agent.stale_at)}


def _refused(state: HostState) -> RefusalOfHost | None:
    """Say why what the host reports now is not taken: what is shown is its last report that was."""
    if state.refused is None:
        return None
    return {"since": isoformat_micro(state.refused.since), "because": state.refused.reason}


def _view(services: AdminServices, mapping: HostMapping, states: dict[NodeUuid, HostState] | None) -> HostInBrief:
    state = None if states is None else states.get(mapping.node)
    return {
        "host": mapping.host,
        "node": mapping.node,
        "cell": services.cell_name(mapping.cell),
        "state": _liveness(mapping, states, state),
        "disabled": mapping.disabled,
        "disabled_reason": mapping.disabled_reason,
        "forced_down": mapping.forced_down,
        "zone": state.zone if state else None,
        "servers": state.usage.servers if state else None,
        "failed_builds": state.usage.failed_builds if state else None,
        "claims": len(state.claims) if state else None,
        "resources": _resources(state) if state else {},
        "refused": _refused(state) if state else None,
        "unfit": (state.usage.unfit or None) if state else None,
    }


def _held(state: HostState | None) -> HeldOfHost:
    if state is None:
        return {}
    return {
        "hypervisor_type": state.usage.hypervisor_type,
        "hypervisor_hostname": state.usage.hypervisor_hostname,
        "host_ip": state.usage.host_ip,
        "traits": sorted(state.usage.traits),
        "aggregates": list(state.aggregates),
        "incarnation": state.incarnation,
        "report": state.seq,
        "capabilities": list(state.usage.capabilities),
        "hung_calls": list(state.usage.hung_calls),
        "generation": state.generation,
        "last_heard": isoformat_micro(state.last_heard) if state.last_heard else None,
        "claimed_by": [
            {"instance": claim.instance, "attempt": claim.attempt, "resources": claim.resources}
            for claim in state.claims
        ],
    }


def _liveness(mapping: HostMapping, states: dict[NodeUuid, HostState] | None, state: HostState | None) -> Liveness:
    """Say how a host is: `deleting`, `up`, `down` (forced), `silent`, `unreported`; `unknown` where nobody can tell."""
    if mapping.deleting_at is not None:
        return "deleting"
    if mapping.forced_down:
        return "down"
    if states is None:
        return "unknown"
    if state is None:
        return "unreported"
    if state.up:
        return "up"
    return "silent" if state.silent else "unknown"


def _resources(state: HostState) -> dict[str, AmountsOfHost]:
    """Return per resource class what may be given out, what the host counts and what is only claimed."""
    claimed: dict[str, int] = {}
    for claim in state.claims:
        for name, amount in claim.resources.items():
            claimed[name] = claimed.get(name, 0) + amount
    return {
        name: {
            "capacity": inventory.capacity,
            "used": state.usage.used.get(name, 0),
            "claimed": claimed.get(name, 0),
            "free": inventory.capacity - state.usage.used.get(name, 0) - claimed.get(name, 0),
        }
        for name, inventory in sorted(state.usage.inventory.items())
    }
