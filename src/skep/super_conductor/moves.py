"""The story of a move: a server for which its cell has no host is staged in another, and its mapping follows.

So do builds, and offloaded servers that are unshelved; the row of one of those takes its past with it.

The row is frozen in its cell, then it goes the way of any build: a selection (without the cells that it was in), a
staged row, the mapping, `scheduled`. Until the mapping names the other cell, the frozen row is the server.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import moves as above
from skep.database.api import server_ports
from skep.database.api.destinations import StagedMember
from skep.database.cell import builds as cell_builds
from skep.database.cell import moves as below
from skep.database.cell import travels, unshelves
from skep.database.cell.builds import Staged, Work
from skep.database.cell.endings import with_instances
from skep.database.cell.moves import Leaver
from skep.database.cell.travels import Traveller
from skep.domain.actions import Over
from skep.domain.builds import Decision, NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError, Unavailable
from skep.domain.ids import CELL0, CellUuid, InstanceUuid
from skep.domain.instances import Fault, State
from skep.domain.timelines import Moment
from skep.messages.to_scheduler import Member, ReleaseClaims, SelectDestinations
from skep.super_conductor import notifications
from skep.super_conductor.decisions import not_final
from skep.super_conductor.events import copy_of_server
from skep.super_conductor.locations import resolved
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.timelines import settle
from skep.telemetry import endings
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

BATCH = 50

LINGER_SECONDS = 20.0
"""How long the row of an unshelved server stays frozen in the cell that it left: an API process that read the mapping
before asks that row whether the image is still needed, and ends a read of a cell long before."""


class Moves:
    """Finds another cell for servers that their cells hand back."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Look at every cell for servers that wait for another."""
        return await self._parts.in_each_cell("moves", self._run_in)

    async def _run_in(self, access: CellAccess) -> bool:
        if access.cell.is_cell0:
            return False
        leavers = await access.read(partial(below.waiting, now=self._parts.clock.now(), limit=BATCH))
        for leaver in leavers:
            await self._try(access, leaver)
        return len(leavers) >= BATCH

    async def _try(self, access: CellAccess, leaver: Leaver) -> None:
        """One that fails does not hold up the others; its row is found again."""
        try:
            await self._move(access, leaver)
        except SkepError as error:
            log.warning("move put off", instance=leaver.instance, cell=access.cell.name, error=str(error))
        except Exception:
            log.exception("move put off", instance=leaver.instance, cell=access.cell.name)

    async def _move(self, access: CellAccess, leaver: Leaver) -> None:
        parts, cell = self._parts, access.cell.uuid
        take = partial(
            above.take,
            owner=parts.owner,
            instance=leaver.instance,
            cell=cell,
            attempt=leaver.highest,
            now=parts.clock.now(),
        )
        attempt = await parts.api.write(take)
        if attempt is None:
            await self._not_mine(access, leaver.instance)
            return
        work, traveller = await access.write(partial(_freeze, leaver=leaver, taken=attempt, now=parts.clock.now()))
        if work is not None:
            await copy_of_server(parts, access, leaver.instance)
            await self._elsewhere(access, work, attempt, traveller)
        await parts.api.write(partial(above.give_back, owner=parts.owner, instance=leaver.instance))

    async def _not_mine(self, access: CellAccess, instance: InstanceUuid) -> None:
        """The mapping names another cell (a conductor died after moving it), or it is deleted, or another acts."""
        mapping = await self._parts.api.read(partial(mappings.get, instance=instance))
        if mapping is not None and mapping.cell not in (None, access.cell.uuid):
            await self._leave(access, instance, mapping.attempt)

    async def _leave(self, access: CellAccess, instance: InstanceUuid, attempt: int) -> None:
        """Let the row go that the mapping left under `attempt`; that of an unshelved server later."""
        parts = self._parts

        def unit(connection: Connection) -> None:
            if not below.linger(connection, instance, upto=attempt, until=parts.after(LINGER_SECONDS)):
                below.left(connection, instance, parts.clock.now(), upto=attempt)

        await access.write(unit)

    async def _elsewhere(self, access: CellAccess, work: Work, attempt: int, traveller: Traveller | None) -> None:
        parts, instance = self._parts, work.instance
        left = work.left_cells if work.shelved is None else work.left_cells[work.shelved.left :]
        tried = (*left, access.cell.uuid)
        async with parts.steps.step(
            "move",
            request=work.context.request_id,
            instance=instance.uuid,
            attempt=attempt,
            cell=access.cell.name,
            contexts=(work.context,),
        ) as run:
            decision = await self._select(work, attempt, tried)
            if isinstance(decision, Placed):
                run.note(chosen=decision.host)
                staged = self._staged(work, attempt, decision, access.cell.uuid, traveller)
                run.outcome = await self._stage(access, staged, decision)
                if traveller is None or run.outcome != "refused":
                    return
                decision = NotReady(reason="the cell that has a host for it takes none at the moment")
            match decision:
                case NotReady() if not self._too_late(work):
                    run.outcome = "not_ready"
                    again = partial(below.thaw, uuid=instance.uuid, attempt=instance.attempt, taken=attempt)
                    await access.write(partial(again, not_before=parts.after(1.0)))
                case NotReady():
                    run.outcome = "stays"
                    await self._stay(access, work, attempt, decision.reason)
                case NoValidHost():
                    run.outcome = "stays"
                    await self._stay(access, work, attempt, decision.message())

    async def _select(self, work: Work, attempt: int, tried: tuple[CellUuid, ...]) -> Decision:
        """Ask the scheduler. Whatever keeps it from deciding is "not ready": after the deadline the server stays."""
        parts = self._parts
        silent = parts.silent
        try:
            spec = await resolved(parts, work.spec, [work.instance.uuid])
            request = SelectDestinations(
                spec=spec,
                members=(Member(work.instance.uuid, attempt),),
                exclude_cells=tuple({*tried, *silent}),
                alternates=parts.max_attempts - 1,
                supersedes_above=work.instance.attempt,
            )
            reply = await parts.transport.call(SCHEDULER, request, context=work.context)
            decision = reply.decisions[0]
        except SkepError as error:
            log.warning("no decision", instance=work.instance.uuid, attempt=attempt, error=str(error))
            why = f"no scheduler answered: {error}" if isinstance(error, Unavailable) else "the scheduler failed"
            return NotReady(reason=why)
        except Exception:
            log.exception("no decision", instance=work.instance.uuid, attempt=attempt)
            return NotReady(reason="the request cannot be decided")
        return not_final(decision) if set(silent) - set(tried) - {CELL0} else decision

    async def _stage(self, access: CellAccess, staged: Staged, placed: Placed) -> Literal["ok", "refused", "replaced"]:
        """Stage in the other cell, move the mapping, let the row go here and there.

        `refused`: the other cell does not take it (now), and nothing is changed.
        """
        parts, uuid, attempt = self._parts, staged.instance.uuid, staged.instance.attempt
        key = ClaimKey(uuid, attempt, placed.node, staged.spec.group.uuid if staged.spec.group else None)
        try:
            other = parts.cell(placed.cell)
            step = partial(parts.steps.step, instance=uuid, attempt=attempt, host=placed.host, cell=other.cell.name)
            async with step("stage"):
                written = await other.write(partial(cell_builds.stage, staged=[staged], now=parts.clock.now()))
        except SkepError:
            await parts.transport.call(SCHEDULER, ReleaseClaims(claims=(key,)))
            raise
        async with step("map"):
            placement = StagedMember(
                instance=uuid,
                attempt=attempt,
                revision=0,
                node=placed.node,
                although_disabled=parts.takes_disabled(staged.spec),
            )

            def moving(connection: Connection) -> tuple[bool, Moment | None]:
                done = above.move(connection, placement=placement, before=access.cell.uuid, after=placed.cell)
                if done:
                    # What its row was told after it was copied, the copy does not know.
                    server_ports.note_servers(connection, parts.clock.now(), [placement.instance])
                return done, parts.advance(connection) if done else None

            moved, moment = await parts.api.write(moving) if written else (False, None)
            parts.advanced(moment)
        if not moved:
            await self._unstage(other, uuid, attempt)
            await parts.transport.call(SCHEDULER, ReleaseClaims(claims=(key,)))
            return "replaced" if written else "refused"
        async with step("settle"):
            await settle(parts, other, [(uuid, attempt)], moment)
        await parts.nudge(placed.cell, "builds")
        await self._leave(access, uuid, attempt)
        notifications.staged(parts.notifier, staged)
        return "ok"

    async def _unstage(self, other: CellAccess, uuid: InstanceUuid, attempt: int) -> None:
        try:
            await other.write(partial(cell_builds.unstage, uuid=uuid, attempt=attempt))
        except SkepError as error:
            # The cell may be gone; in one that is not another pass removes the row, whose attempt is old then.
            log.warning("staged row not removed yet", instance=uuid, cell=other.cell.name, error=str(error))

    def _staged(self, work: Work, attempt: int, placed: Placed, cell: CellUuid, traveller: Traveller | None) -> Staged:
        instance = msgspec.structs.replace(
            work.instance,
            attempt=attempt,
            host=None,
            node=None,
            availability_zone=placed.zone,
            state=State.SCHEDULED,
            task=None,
            fault=None,
        )
        return Staged(
            instance=instance,
            assignment=placed.assignment(work.spec),
            spec=work.spec,
            context=work.context,
            epoch=placed.epoch,
            alternates=placed.alternates,
            explanation=placed.explanation,
            secrets=work.secrets,
            left_cells=(*work.left_cells, cell),
            traveller=traveller,
        )

    async def _stay(self, access: CellAccess, work: Work, taken: int, why: str) -> None:
        parts, instance = self._parts, work.instance
        now = parts.clock.now()
        if work.shelved is not None:
            await self._stay_shelved(access, work, taken, why)
            return
        before = instance.fault or Fault(code=500, message="Build failed.", created_at=now)
        fault = msgspec.structs.replace(
            before, message=f"{before.message.rstrip('.')}. In other cells: {why}", created_at=now
        )
        done = await access.write(
            partial(below.stay, uuid=instance.uuid, attempt=instance.attempt, taken=taken, fault=fault, now=now)
        )
        if done:
            notifications.stays(parts.notifier, work, fault)

    async def _stay_shelved(self, access: CellAccess, work: Work, taken: int, why: str) -> None:
        """No other cell can have a server that is to be unshelved: it is offloaded, as it was."""
        parts, instance = self._parts, work.instance
        before = instance.fault
        said = [part for part in (before.message.rstrip(".") if before else "", f"In other cells: {why}") if part]
        details = before.details if before else None

        def unit(connection: Connection) -> list[Over]:
            over = unshelves.give_up(
                connection, instance.uuid, instance.attempt, ". ".join(said), details, parts.clock.now(), taken
            )
            return with_instances(connection, [over] if over is not None else [])

        endings.ended(parts.steps.metrics, parts.notifier, await access.write(unit))

    def _too_late(self, work: Work) -> bool:
        return self._parts.clock.now() - work.step_at > self._parts.settings.not_ready_deadline * SECOND


def _freeze(
    connection: Connection, leaver: Leaver, taken: int, now: int
) -> tuple[Work, Traveller | None] | tuple[None, None]:
    """Freeze a row, and say what goes with it; nothing with that of a build."""
    work = below.freeze(connection, leaver.instance, leaver.attempt, taken, now)
    if work is None:
        return None, None
    return work, travels.pack(connection, leaver.instance) if work.shelved is not None else None
