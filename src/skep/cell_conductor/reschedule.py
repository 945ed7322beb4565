"""The story of a second try: another host of this cell, chosen by the scheduler, or else another cell."""

from __future__ import annotations

import asyncio
from functools import partial

from skep.cell_conductor import endings, notifications, other_cells
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import attempts, moves, renewals, reschedules, unshelves
from skep.database.cell.builds import Work
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError, Unavailable
from skep.domain.ids import NodeUuid
from skep.domain.instances import Fault, Shelved
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import scheduler_for

log = get_logger(__name__)

BATCH = 50

NOBODY_ABOVE = "No other cell was asked in time"


class Reschedules:
    """Finds the next host for builds that failed on one."""

    def __init__(self, parts: Parts, builds_story: Builds, releases: Releases) -> None:
        self._parts = parts
        self._builds = builds_story
        self._releases = releases
        self.choosing = Loop("reschedule", self._run, every=parts.settings.resend_seconds)
        builds_story.rescheduling = self.choosing
        self._since: int | None = None
        """Since when rows may wait for a conductor above, as far as this process has seen."""

    async def _run(self) -> bool:
        parts = self._parts

        def unit(connection: Connection) -> tuple[int, list[tuple[Work, list[NodeUuid]]]]:
            waiting = renewals.note(connection)
            taken = reschedules.take(connection, parts.owner, parts.clock.now(), BATCH)
            tried = [(work, attempts.tried_nodes(connection, work.instance.uuid, _above(work))) for work in taken]
            return waiting, tried

        waiting, taken = await parts.database.write(unit)
        if waiting:
            log.info("ports are made anew", cell=parts.cell.name, members=waiting)
            await parts.tell_above()
        await asyncio.gather(*(self._try(work, tried) for work, tried in taken))
        await self._take_back()
        return len(taken) >= BATCH

    async def _try(self, work: Work, tried: list[NodeUuid]) -> None:
        """One that fails does not hold up the others; it is taken again by the next pass."""
        try:
            await self._choose(work, tried)
        except SkepError as error:
            log.warning("reschedule put off", instance=work.instance.uuid, error=str(error))
        except Exception:
            log.exception("reschedule put off", instance=work.instance.uuid)

    async def _choose(self, work: Work, tried: list[NodeUuid]) -> None:
        parts, instance = self._parts, work.instance
        async with parts.steps.step(
            "reschedule",
            request=work.context.request_id,
            instance=instance.uuid,
            attempt=instance.attempt,
            cell=parts.cell.name,
            contexts=(work.context,),
        ) as run:
            if len(tried) >= parts.max_attempts:
                run.outcome = "exhausted"
                await self._exhausted(work, "No more may be tried", len(tried))
                return
            if work.shelved is not None and await other_cells.is_elsewhere(parts, work.spec.requested_host):
                run.outcome = "exhausted"
                await self._exhausted(work, other_cells.ELSEWHERE.message(), len(tried))
                return
            request = SelectDestinations(
                spec=work.spec,
                members=(Member(instance.uuid, instance.attempt),),
                cell=parts.cell.uuid,
                prefer=tuple(one.node for one in work.alternates if one.node not in tried),
                ignore=tuple(tried),
                alternates=max(0, parts.max_attempts - len(tried) - 1),
            )
            try:
                reply = await parts.above.call(scheduler_for(parts.cell.uuid), request, context=work.context)
                decision = reply.decisions[0]
            except SkepError as error:
                log.warning("no decision", instance=instance.uuid, attempt=instance.attempt, error=str(error))
                why = f"no scheduler answered: {error}" if isinstance(error, Unavailable) else "the scheduler failed"
                decision = NotReady(reason=why)
            match decision:
                case Placed():
                    run.note(chosen=decision.host)
                    await self._placed(work, decision)
                case NotReady() if not self._too_late(work):
                    run.outcome = "not_ready"
                    await self._later(work)
                case NoValidHost():
                    run.outcome = "exhausted"
                    await self._exhausted(work, f"No other of the cell fits. {decision.message()}", len(tried))
                case NotReady():
                    run.outcome = "exhausted"
                    await self._exhausted(
                        work, f"No other of the cell was found in time: {decision.reason}", len(tried)
                    )

    async def _placed(self, work: Work, placed: Placed) -> None:
        parts, instance = self._parts, work.instance
        moved = await parts.database.write(
            partial(
                reschedules.rescheduled,
                uuid=instance.uuid,
                attempt=instance.attempt,
                placed=placed,
                now=parts.clock.now(),
                role="build" if work.shelved is None else "unshelve",
            )
        )
        if moved:
            self._builds.dispatching.nudge()
            if instance.vifs or instance.volumes:
                # Its volumes follow it before its host is told of it, its ports while that makes the guest.
                await parts.tell_above()
        else:
            group = work.spec.group.uuid if work.spec.group else None
            self._releases.add([ClaimKey(instance.uuid, instance.attempt, placed.node, group)])

    async def _later(self, work: Work) -> None:
        parts, instance = self._parts, work.instance
        await parts.database.write(
            partial(
                reschedules.give_back,
                uuid=instance.uuid,
                attempt=instance.attempt,
                not_before=parts.before(-0.5),
            )
        )

    async def _exhausted(self, work: Work, why: str, tried: int) -> None:
        """No host of the cell is left: back to the level above, or ERROR in the last cell that may be tried."""
        if work.shelved is not None:
            await self._has_no_host(work, work.shelved, why, tried)
            return
        parts, instance = self._parts, work.instance

        def unit(connection: Connection) -> Fault | None:
            history = attempts.history(connection, instance.uuid)
            said = [one.message for one in history if one.message]
            last = f" Error of the last host: {said[-1]}" if said else ""
            hosts = "hosts" if tried != 1 else "host"
            fault = Fault(
                code=500,
                message=f"Build failed on {tried} {hosts}. {why}.{last}",
                created_at=parts.clock.now(),
                details="; ".join(f"{one.host}: {one.error}: {one.message}" for one in history if one.host) or None,
            )
            end = reschedules.exhausted if last_cell else moves.hand_back
            done = end(connection, instance.uuid, instance.attempt, fault, parts.clock.now())
            return fault if done else None

        last_cell = len(work.left_cells) + 1 >= parts.max_cells
        fault = await parts.database.write(unit)
        if fault is not None and last_cell:
            notifications.exhausted(parts.notifier, work, fault.message)
        elif fault is not None:
            await parts.tell_above()

    async def _has_no_host(self, work: Work, shelved: Shelved, why: str, tried: int) -> None:
        """No host of the cell can have a server that is to be unshelved: another cell may, or it is offloaded again."""
        parts, instance = self._parts, work.instance
        leaves = shelved.elsewhere and len(work.left_cells) - shelved.left + 1 < parts.max_cells
        if not leaves:
            why = other_cells.not_asked(parts, why, allowed=shelved.elsewhere, moves=False)

        def unit(connection: Connection) -> list[Over]:
            history = [one for one in attempts.history(connection, instance.uuid) if one.attempt > _above(work)]
            hosts = "hosts" if tried != 1 else "host"
            failed = f"Unshelve failed on {tried} {hosts}. " if tried else ""
            details = "; ".join(f"{one.host}: {one.error}: {one.message}" for one in history if one.error)
            said = (f"{failed}{why}", f"{failed}{why} {details}".strip() if details else None)
            if leaves:
                fault = Fault(code=500, message=said[0], details=said[1], created_at=parts.clock.now())
                moves.hand_back(connection, instance.uuid, instance.attempt, fault, fault.created_at, shelved=True)
                return []
            over = unshelves.give_up(connection, instance.uuid, instance.attempt, *said, parts.clock.now())
            return with_instances(connection, [over] if over is not None else [])

        endings.ended(parts, await parts.database.write(unit))
        if leaves:
            await parts.tell_above()

    async def _take_back(self) -> None:
        """End unshelves for which nobody above looks for another cell: conductors there may be older than this one."""
        parts = self._parts
        now = parts.clock.now()
        before = now - round(2 * parts.settings.not_ready_deadline * SECOND)
        if self._since is None:
            self._since = now
        if self._since > before:
            return

        def unit(connection: Connection) -> list[Over]:
            over = []
            for one in moves.forsaken(connection, before, BATCH):
                why = f"{one.fault.message.rstrip('.')}. {NOBODY_ABOVE}" if one.fault else NOBODY_ABOVE
                details = one.fault.details if one.fault else None
                over.append(unshelves.give_up(connection, one.instance, one.attempt, why, details, now))
            return with_instances(connection, [one for one in over if one is not None])

        if await parts.database.read(partial(moves.forsaken, before=before, limit=1)):
            endings.ended(parts, await parts.database.write(unit))

    def _too_late(self, work: Work) -> bool:
        waited = self._parts.clock.now() - work.step_at
        return waited > self._parts.settings.not_ready_deadline * SECOND


def _above(work: Work) -> int:
    """Return the number above which the attempts of a build are its own: an unshelve is another build."""
    return 0 if work.shelved is None else work.shelved.above
