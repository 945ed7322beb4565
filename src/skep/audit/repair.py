"""What is done about differences. Each mend looks again, in the statement that changes something, whether it is right.

What schedulers, quota and the network service count differently is mended by itself (`AUTOMATIC`). The rest of what can
be mended (`ON_DEMAND`) is left to the operator's word. `NEVER` says of all other kinds why nobody but a human can
decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable
from functools import partial

import msgspec

from skep.audit import interfaces, mends, volumes
from skep.audit.difference import Difference, Kind
from skep.audit.lost_cells import keep_in_cell0
from skep.audit.sources import Sources
from skep.database import Connection
from skep.database.api import build_requests, quotas, server_groups
from skep.database.cell import agents, guest_secrets, missing_hosts, owed
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.domain.claims import ClaimKey
from skep.domain.clock import Clock
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, ReleaseClaims, ReleaseSlots, Slot
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

Mend = Callable[[Sources, Difference], Awaitable[bool | str]]
"""Mends one difference; False when it is none any more, or cannot be mended now, a sentence where that has cost
something."""

NEVER: dict[Kind, str] = {
    "mapping_without_request": "the build request is lost; delete the server",
    "mapping_without_row": "only the cell's own backup has the row; restore it, or delete the server",
    "row_without_mapping": "which of the two databases is right is not known here; there may be a guest",
    "open_attempt_of_deleted": "the host has not reported that nothing is left; start its agent, or fence the host",
    "row_without_attempt": "only the host knows whether there is a guest",
    "host_without_agent": "the agent registers when it starts; delete a host that no longer exists",
    "host_counts_other_servers": "a guest that no row knows is never touched; a guest that is missing is not remade",
    "server_without_spec": "the RequestSpec is lost; delete the server",
    "staged_elsewhere": "the super conductor's own passes remove it, when the cell can be written",
    "away_everywhere": "a database went back in time; which host of its migration has the newest disks is not known",
    "host_not_told": "start its agent, or release a host that will not come back: `skep recovery release`",
    "server_in_doubt": "decide which guest is the server: `skep recovery keep`, `undo` or `go-on`",
    "server_deleted_since": "delete the server, or have it built again: `skep recovery go-on`",
    "guest_missing": "delete the server, or restore its guest on the host",
    "guest_unknown": "decide whether the guest is a server: `skep recovery keep` or `undo`",
    "group_policy_broken": "only a move of a server would repair it; Skep moves no server by itself",
}
"""Kinds that are never repaired, and why, or what to do."""


MENDED = "mended"


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """One difference and what came of mending it."""

    difference: Difference
    outcome: str
    """`mended`, also with what it has cost, `would be mended`, `no longer there`, or why it was not."""

    @property
    def done(self) -> bool:
        """Whether something was changed."""
        return self.outcome.startswith(MENDED)


async def repair(
    sources: Sources, found: Iterable[Difference], *, only: Container[Kind] | None = None, dry_run: bool
) -> list[Mended]:
    """Mend differences as far as a right mend is known; one that fails does not hold up the others.

    `only`: leave all other kinds alone. A dry run says what would be done.
    """
    return [
        Mended(difference=one, outcome=await _mend(sources, one, dry_run=dry_run))
        for one in found
        if only is None or one.kind in only
    ]


async def _mend(sources: Sources, difference: Difference, *, dry_run: bool) -> str:
    mend = AUTOMATIC.get(difference.kind) or ON_DEMAND.get(difference.kind)
    if mend is None:
        return f"never repaired: {NEVER[difference.kind]}"
    if dry_run:
        return "would be mended"
    try:
        done = await mend(sources, difference)
    except SkepError as error:
        return f"not mended: {error}"
    outcome = "no longer there" if not done else MENDED if done is True else f"{MENDED}: {done}"
    log.warning("difference", kind=difference.kind, subject=difference.subject, outcome=outcome)
    return outcome


def _key(difference: Difference) -> ClaimKey:
    evidence = difference.evidence
    return ClaimKey(
        InstanceUuid(difference.subject), evidence["attempt"], NodeUuid(evidence["node"]), evidence.get("group")
    )


async def _release_claim(sources: Sources, difference: Difference) -> bool:
    reply = await sources.transport.call(SCHEDULER, ReleaseClaims(claims=(_key(difference),)))
    return reply.released > 0


async def _release_slot(sources: Sources, difference: Difference) -> bool:
    reply = await sources.transport.call(SCHEDULER, ReleaseSlots(slots=(_key(difference),)))
    return reply.released > 0


async def _assert_slot(sources: Sources, difference: Difference) -> bool:
    evidence = difference.evidence
    slot = Slot(key=_key(difference), policy=evidence["policy"], max_server_per_host=evidence["max_server_per_host"])
    cell = CellUuid(evidence["cell"])
    epoch = await sources.epoch()
    # One slot is not all that the cell has to tell.
    told = AssertClaims(cell=cell, epoch=epoch, claims=(), slots=(slot,), more=True)
    reply = await sources.transport.call(SCHEDULER, told)
    return reply.epoch == epoch and not reply.refused


def _above(unit: Callable[[Connection, str], bool]) -> Mend:
    """Make a mend of a unit of the API database that is about one instance or project."""

    async def mend(sources: Sources, difference: Difference) -> bool:
        return await sources.api.write(partial(_about, unit=unit, subject=difference.subject))

    return mend


def _in_cell(unit: Callable[[Connection, str], bool]) -> Mend:
    """Make a mend of a unit of the cell that the evidence names."""

    async def mend(sources: Sources, difference: Difference) -> bool:
        cell = sources.cell_named(difference.evidence["cell"])
        return await cell.write(partial(_about, unit=unit, subject=difference.subject))

    return mend


def _about(connection: Connection, unit: Callable[[Connection, str], bool], subject: str) -> bool:
    return unit(connection, subject)


async def _charge(sources: Sources, difference: Difference) -> bool:
    """Charge a server by what its row (or its build request) says that it is."""
    subject = InstanceUuid(difference.subject)
    server = await sources.server(subject, difference.evidence["cell"])
    if server is None:
        return False
    return await sources.api.write(partial(mends.charge, server=server))


async def _recharge(sources: Sources, difference: Difference) -> bool:
    """Charge a server what its row says that it is."""
    cell, subject = sources.cell_named(difference.evidence["cell"]), InstanceUuid(difference.subject)
    charge = await cell.read(partial(owed.now, uuid=subject))
    if charge is None:
        return False
    return await sources.api.write(partial(quotas.recharge_at_rest, instance=subject, owed=charge))


async def _map_anew(sources: Sources, difference: Difference) -> bool:
    """Have an agent mapped again that nobody maps; one that is mapped to another cell is for the operator."""
    if difference.evidence["mapping"] is not None:
        return False
    cell = sources.cell_named(difference.evidence["cell"])
    return await cell.write(partial(agents.unmark_mapped, node=difference.evidence["node"]))


async def _give_up_attempt(sources: Sources, difference: Difference) -> bool:
    """Close an attempt on a host that its cell does not know."""
    cell, subject = sources.cell_named(difference.evidence["cell"]), InstanceUuid(difference.subject)
    attempt, now = difference.evidence["attempt"], Clock().now()

    def unit(connection: Connection) -> list[Over] | None:
        ended = missing_hosts.give_up(connection, subject, attempt, now)
        return None if ended is None else with_instances(connection, ended)

    over = await cell.write(unit)
    sources.ended(over or ())
    return over is not None


AUTOMATIC: dict[Kind, Mend] = {
    "claim_unnamed": _release_claim,
    "slot_unnamed": _release_slot,
    "quota_sum": _above(quotas.add_up),
    "quota_charge_without_server": _above(mends.credit),
    "server_without_quota_charge": _charge,
    "quota_charge_differs": _recharge,
    "port_without_server": interfaces.release,
    "interfaces_differ": interfaces.tell,
    "bindings_differ": interfaces.bind,
    "attachment_without_server": volumes.look,
    "volumes_differ": volumes.look,
}
"""Claims, slots, quota, ports and volumes: mended by the super conductor itself when two looks agree."""

ON_DEMAND: dict[Kind, Mend] = {
    "slot_missing": _assert_slot,
    "request_without_mapping": _above(build_requests.remove_needless),
    "spec_without_server": _above(build_requests.remove_spec_without_server),
    "member_without_server": _above(server_groups.remove_member_without_server),
    "mapping_of_deleted_row": _in_cell(mends.tell_again),
    "secrets_kept": _in_cell(guest_secrets.erase_needless),
    "agent_not_mapped": _map_anew,
    "mapping_without_cell": keep_in_cell0,
    "host_without_cell": _above(mends.drop_host),
    "attempt_without_host": _give_up_attempt,
}
"""Mended when an operator says so."""
