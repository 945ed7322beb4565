"""Databases that went back in time: how they recover, whom they wait for, and what is left to an operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import structlog

from skep.admin import deciding
from skep.admin.answers import AnsweredDecision, AnsweredRecovery, HostWaitedFor, OpenDecision, RecoveringDatabase
from skep.admin.every_cell import ask_all, ask_each
from skep.admin.requests import AdminRequest, operation, takes
from skep.admin.services import CELL_SECONDS
from skep.audit import doubts
from skep.audit.difference import MEANINGS, Difference
from skep.database import Connection
from skep.database.api import recovery as above
from skep.database.cell import recovery as below
from skep.database.timelines import RecoveryRow
from skep.domain.clock import isoformat_micro
from skep.domain.errors import BadRequest, Conflict
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import LostPort
from skep.messages.to_cell_conductor import InstancesChanged
from skep.transport.base import cell_conductor

log = structlog.get_logger("skep.admin")


class Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /recovery/servers/{id}`: one of the three."""

    keep: str | None = None
    """The host whose guest is the server."""
    undo: str | None = None
    """The host whose guest is destroyed."""
    go_on: bool = False
    """Nothing of it is anywhere: the row goes on as it stands."""

    def check(self) -> None:
        """Raise BadRequest unless it says exactly one thing."""
        if sum((self.keep is not None, self.undo is not None, self.go_on)) != 1:
            raise BadRequest("body: expected one of keep (a host), undo (a host) and go_on (true).")


@operation()
async def show(request: AdminRequest) -> AnsweredRecovery:
    """Answer which databases recover and since when, which hosts they wait for, and what an operator has to decide."""
    services = request.services
    state, open_above = await services.database.read(_of_api)
    answered, unread = await ask_each(services, _of_cell)
    databases = [_database("api", state)]
    hosts: list[HostWaitedFor] = []
    decisions = [_open(None, one) for one in open_above]
    for uuid, (state, awaited, open_here) in answered.items():
        name = str(services.cell_name(uuid))
        databases.append(_database(name, state))
        hosts += [{"host": one.host, "cell": name, "node": one.node} for one in awaited]
        decisions += [_open(name, one) for one in open_here]
    return {
        "recovery": {
            "databases": [one for one in databases if one is not None],
            "hosts": hosts,
            "decisions": decisions,
            "unread": [f"cell {services.cell_name(uuid)}: {error}" for uuid, error in unread.items()],
        }
    }


@operation()
async def release(request: AdminRequest) -> AnsweredRecovery:
    """Wait no longer for a host to tell what it has. Raises Conflict when it is not waited for."""
    services, name = request.services, request.params["host"]
    for uuid, awaited in (await ask_all(services, below.awaited_hosts)).items():
        for one in awaited:
            if name in (one.host, one.node):
                unit = partial(below.release, node=one.node, now=services.clock.now())
                await services.cell(uuid).write(unit, intake=True, within=CELL_SECONDS)
                await _nudge(request, uuid)
                log.warning("host released", host=one.host, node=one.node, user=request.context.user_id)
                return await show(request)
    raise Conflict(f"host: no recovery waits for a report of {name[:80]!r}; see GET /recovery.")


@takes(Decision)
async def decide(request: AdminRequest, decision: Decision) -> AnsweredDecision:
    """Do with a server in doubt what the operator says."""
    services, uuid = request.services, InstanceUuid(request.params["id"])
    decision.check()
    if decision.go_on:
        lost = await deciding.go_on(services, uuid)
        outcome = _with_lost("goes on", lost)
    else:
        host = decision.keep or decision.undo or ""
        found = await deciding.found(services, uuid, host, keep=decision.keep is not None)
        if decision.undo is not None:
            await deciding.undo(services, found)
            outcome = f"attempt {found.guest.attempt} on {host} is undone"
        else:
            lost = await deciding.keep(services, found)
            outcome = _with_lost(f"attempt {found.guest.attempt} on {host} is the server", lost)
        await _nudge(request, found.cell)
    log.warning("server in doubt decided", instance=uuid, outcome=outcome, user=request.context.user_id)
    return {"server": {"id": uuid, "outcome": outcome}}


def _with_lost(outcome: str, lost: Sequence[LostPort]) -> str:
    """Return what became of a server, with the interfaces that it has lost."""
    return "; ".join([outcome, *(one.for_operator for one in lost)])


async def _nudge(request: AdminRequest, cell: CellUuid) -> None:
    await request.services.transport.cast(cell_conductor(cell), InstancesChanged(), request.context)


def _of_api(connection: Connection) -> tuple[RecoveryRow | None, list[Difference]]:
    return above.under_way(connection), list(doubts.above(connection))


def _of_cell(connection: Connection) -> tuple[RecoveryRow | None, list[below.AwaitedHost], list[Difference]]:
    return below.under_way(connection), below.awaited_hosts(connection), doubts.left(connection)


def _open(cell: str | None, one: Difference) -> OpenDecision:
    return {
        "server": one.subject,
        "kind": one.kind,
        "meaning": MEANINGS[one.kind],
        "cell": cell,
        "doubt": one.evidence.get("doubt"),
        "guests": one.evidence.get("guests", []),
    }


def _database(name: str, state: RecoveryRow | None) -> RecoveringDatabase | None:
    if state is None:
        return None
    return {"name": name, "timeline": state.timeline, "since": isoformat_micro(state.since), "reason": state.reason}
