"""Hosts: what the operator's rows say of them joined with what placement holds of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from skep.admin.requests import AdminRequest
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database.api import host_mappings
from skep.database.api.operator_state import Concerned
from skep.database.cell import agents, fences
from skep.domain.cells import HostMapping
from skep.domain.clock import SECOND, isoformat_micro
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError
from skep.domain.hosts import HostState
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_cell_conductor import InstancesChanged
from skep.messages.to_scheduler import GetHostStates
from skep.reconciler.operator_state import tell_schedulers
from skep.transport.base import cell_conductor
from skep.transport.host_states import host_states

log = structlog.get_logger("skep.admin")

HEARD_SECONDS = 10
"""A host that was heard so lately is not dead."""

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
            raise BadRequest("The body changes nothing: name disabled, disabled_reason or forced_down.")
        reason = self.disabled_reason or ""
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise BadRequest(f"disabled_reason: expected at most {MAX_REASON} printable characters.")


async def index(request: AdminRequest) -> Any:
    """Answer all hosts by name; `?cell=NAME` those of one cell."""
    request.only_query("cell")
    services = request.services
    mappings = await services.database.read(host_mappings.every)
    if "cell" in request.query:
        wanted = services.cell_named(request.query["cell"]).uuid
        mappings = tuple(mapping for mapping in mappings if mapping.cell == wanted)
    states, stale = await _states(services), await _stale_agents(services, {mapping.cell for mapping in mappings})
    return {
        "hosts": [
            {**_view(services, mapping, states), "stale_agent": stale.get(mapping.node)}
            for mapping in sorted(mappings, key=lambda one: one.host)
        ]
    }


async def show(request: AdminRequest) -> Any:
    """Answer one host by its name or its node's UUID."""
    request.only_query()
    services = request.services
    mapping = await services.database.read(lambda connection: _named(connection, request.params["host"]))
    view = _view(services, mapping, await _states(services, (mapping.node,)), whole=True)
    return {"host": {**view, **await _agent(services, mapping)}}


async def update(request: AdminRequest) -> Any:
    """Write what the operator wants of a host, and publish it. A reason goes when the host is enabled."""
    request.only_query()
    change = request.read_body(HostChange)
    change.check()
    services = request.services
    now = services.clock.now()

    def unit(connection: sa.Connection) -> NodeUuid:
        mapping = _named(connection, request.params["host"])
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


async def fence(request: AdminRequest) -> Any:
    """Write that a host is dead for good: its cell gives up all that was on it.

    Only of a host that is forced down and silent, for a living one would have to destroy its guests. Raises Conflict
    otherwise. It may be repeated.
    """
    request.only_query()
    services = request.services
    mapping = await services.database.read(lambda connection: _named(connection, request.params["host"]))
    if not mapping.forced_down:
        raise Conflict(f"Host {mapping.host} is not forced down: fencing is for dead hosts. Force it down first.")
    await _check_silent(services, mapping)
    unit = partial(fences.declare, node=mapping.node, now=services.clock.now())
    if not await services.cell(mapping.cell).write(unit, intake=True, within=CELL_SECONDS):
        raise NotFound(f"The cell of host {mapping.host} does not know it.")
    await services.transport.cast(cell_conductor(mapping.cell), InstancesChanged(), request.context)
    log.warning("host fenced", host=mapping.host, node=mapping.node, user=request.context.user_id)
    return await show(request)


async def _check_silent(services: AdminServices, mapping: HostMapping) -> None:
    states = await host_states(services.transport, GetHostStates(nodes=(mapping.node,)))
    heard = max((state.last_heard for state in states if state.node == mapping.node), default=0)
    seconds = (services.clock.now() - heard) / SECOND
    if seconds < HEARD_SECONDS:
        raise Conflict(
            f"Host {mapping.host} was heard {seconds:.0f} s ago: it is not dead. Switch it off and wait "
            f"{HEARD_SECONDS} s, or leave its servers to it."
        )


def _named(connection: sa.Connection, name: str) -> HostMapping:
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


async def _agent(services: AdminServices, mapping: HostMapping) -> dict[str, Any]:
    """Say what the cell knows of the agent: since when the host is fenced, and whether two agents have its identity."""
    agent = await services.cell(mapping.cell).read(partial(agents.get, node=mapping.node), within=CELL_SECONDS)
    if agent is None:
        return {"fenced_at": None, "stale_agent": None}
    fenced_at = isoformat_micro(agent.fenced_at) if agent.fenced_at is not None else None
    return {"fenced_at": fenced_at, "stale_agent": _stale(agent)}


async def _stale_agents(services: AdminServices, cells: set[CellUuid]) -> dict[NodeUuid, dict[str, Any] | None]:
    """Return the older agents that spoke beside younger ones, by node; of a cell that does not answer none is known."""
    found: dict[NodeUuid, dict[str, Any] | None] = {}
    for cell in cells & services.cells.keys():
        try:
            spoke = await services.cell(cell).read(agents.stale, within=CELL_SECONDS)
        except SkepError as error:
            log.warning("agents of a cell are not known", cell=services.cell_name(cell), error=str(error))
            continue
        found |= {agent.node: _stale(agent) for agent in spoke}
    return found


def _stale(agent: agents.Agent) -> dict[str, Any] | None:
    """Say which older agent spoke with the identity of the host's agent, and when it did last."""
    if agent.stale_at is None:
        return None
    return {"incarnation": agent.stale_incarnation, "heard_at": isoformat_micro(agent.stale_at)}


def _refused(state: HostState) -> dict[str, str] | None:
    """Say why what the host reports now is not taken: what is shown is its last report that was."""
    if state.refused is None:
        return None
    return {"since": isoformat_micro(state.refused.since), "because": state.refused.reason}


def _view(
    services: AdminServices, mapping: HostMapping, states: dict[NodeUuid, HostState] | None, *, whole: bool = False
) -> dict[str, Any]:
    state = None if states is None else states.get(mapping.node)
    view: dict[str, Any] = {
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
    }
    if whole and state is not None:
        view |= {
            "hypervisor_type": state.usage.hypervisor_type,
            "hypervisor_hostname": state.usage.hypervisor_hostname,
            "host_ip": state.usage.host_ip,
            "traits": sorted(state.usage.traits),
            "aggregates": list(state.aggregates),
            "incarnation": state.incarnation,
            "report": state.seq,
            "generation": state.generation,
            "last_heard": isoformat_micro(state.last_heard) if state.last_heard else None,
            "claimed_by": [
                {"instance": claim.instance, "attempt": claim.attempt, "resources": claim.resources}
                for claim in state.claims
            ],
        }
    return view


def _liveness(mapping: HostMapping, states: dict[NodeUuid, HostState] | None, state: HostState | None) -> str:
    """Say how a host is: `up`, `down` (forced), `silent`, `unreported`; `unknown` where no scheduler answers."""
    if mapping.forced_down:
        return "down"
    if states is None:
        return "unknown"
    if state is None:
        return "unreported"
    return "up" if state.up else "silent"


def _resources(state: HostState) -> dict[str, dict[str, int]]:
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
