"""The story of a move: a server for which its cell has no host is staged in another, and its mapping follows.

The row is frozen in its cell, then it goes the way of any build: a selection (without the cells that it was in), a
staged row, the mapping, `scheduled`. Until the mapping names the other cell, the frozen row is the server.
"""

from __future__ import annotations

from functools import partial

import msgspec

from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import moves as above
from skep.database.api.destinations import StagedMember
from skep.database.cell import builds as cell_builds
from skep.database.cell import moves as below
from skep.database.cell.builds import Staged, Work
from skep.database.cell.moves import Leaver
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
from skep.super_conductor.locations import resolved
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.timelines import settle
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

BATCH = 50


class Moves:
    """Finds another cell for servers that their cells hand back."""

    def __init__(self, parts: Parts, max_cells: int) -> None:
        self._parts = parts
        self._max_cells = max_cells

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
        work = await access.write(
            partial(below.freeze, uuid=leaver.instance, attempt=leaver.attempt, now=parts.clock.now())
        )
        if work is not None:
            await self._elsewhere(access, work, attempt)
        await parts.api.write(partial(above.give_back, owner=parts.owner, instance=leaver.instance))

    async def _not_mine(self, access: CellAccess, instance: InstanceUuid) -> None:
        """The mapping names another cell (a conductor died after moving it), or it is deleted, or another acts."""
        mapping = await self._parts.api.read(partial(mappings.get, instance=instance))
        if mapping is not None and mapping.cell not in (None, access.cell.uuid):
            await access.write(partial(below.left, uuid=instance, now=self._parts.clock.now()))

    async def _elsewhere(self, access: CellAccess, work: Work, attempt: int) -> None:
        parts, instance = self._parts, work.instance
        tried = (*work.left_cells, access.cell.uuid)
        async with parts.steps.step(
            "move",
            request=work.context.request_id,
            instance=instance.uuid,
            attempt=attempt,
            cell=access.cell.name,
            contexts=(work.context,),
        ) as run:
            decision = await self._select(work, attempt, tried)
            match decision:
                case Placed():
                    run.note(chosen=decision.host)
                    moved = await self._stage(access, work, attempt, decision, tried)
                    run.outcome = "ok" if moved else "replaced"
                case NotReady() if not self._too_late(work):
                    run.outcome = "not_ready"
                    again = parts.after(1.0)
                    await access.write(
                        partial(below.thaw, uuid=instance.uuid, attempt=instance.attempt, not_before=again)
                    )
                case NotReady():
                    run.outcome = "stays"
                    await self._stay(access, work, decision.reason)
                case NoValidHost():
                    run.outcome = "stays"
                    await self._stay(access, work, decision.message())

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

    async def _stage(
        self, access: CellAccess, work: Work, attempt: int, placed: Placed, tried: tuple[CellUuid, ...]
    ) -> bool:
        """Stage in the other cell, move the mapping, let the row go here and there."""
        parts, uuid = self._parts, work.instance.uuid
        staged = self._staged(work, attempt, placed, tried)
        key = ClaimKey(uuid, attempt, placed.node, work.spec.group.uuid if work.spec.group else None)
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
                although_disabled=parts.takes_disabled(work.spec),
            )

            def moving(connection: Connection) -> tuple[bool, Moment | None]:
                done = above.move(connection, placement=placement, before=access.cell.uuid, after=placed.cell)
                return done, parts.advance(connection) if done else None

            moved, moment = await parts.api.write(moving) if written else (False, None)
            parts.advanced(moment)
        if not moved:
            await self._unstage(other, uuid, attempt)
            await parts.transport.call(SCHEDULER, ReleaseClaims(claims=(key,)))
            return False
        async with step("settle"):
            await settle(parts, other, [(uuid, attempt)], moment)
        await parts.nudge(placed.cell)
        await access.write(partial(below.left, uuid=uuid, now=parts.clock.now()))
        notifications.staged(parts.notifier, staged)
        return True

    async def _unstage(self, other: CellAccess, uuid: InstanceUuid, attempt: int) -> None:
        try:
            await other.write(partial(cell_builds.unstage, uuid=uuid, attempt=attempt))
        except SkepError as error:
            # The cell may be gone; in one that is not another pass removes the row, whose attempt is old then.
            log.warning("staged row not removed yet", instance=uuid, cell=other.cell.name, error=str(error))

    def _staged(self, work: Work, attempt: int, placed: Placed, tried: tuple[CellUuid, ...]) -> Staged:
        instance = msgspec.structs.replace(
            work.instance,
            attempt=attempt,
            host=None,
            node=None,
            availability_zone=placed.zone,
            state=State.SCHEDULED,
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
            left_cells=tried,
        )

    async def _stay(self, access: CellAccess, work: Work, why: str) -> None:
        parts, instance = self._parts, work.instance
        now = parts.clock.now()
        before = instance.fault or Fault(code=500, message="Build failed.", created_at=now)
        fault = msgspec.structs.replace(
            before, message=f"{before.message.rstrip('.')}. In other cells: {why}", created_at=now
        )
        done = await access.write(
            partial(below.stay, uuid=instance.uuid, attempt=instance.attempt, fault=fault, now=now)
        )
        if done:
            notifications.stays(parts.notifier, work, fault)

    def _too_late(self, work: Work) -> bool:
        return self._parts.clock.now() - work.step_at > self._parts.settings.not_ready_deadline * SECOND
