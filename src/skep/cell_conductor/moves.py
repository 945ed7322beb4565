"""The story of cold moves inside a cell: a host is chosen, then two hosts take one step after the other.

What a host is told stands in the row of the move; what it answers is written there before anybody is told of the next
step. Any conductor of the cell goes on where another one stopped; only the choice of a host has an owner.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from skep.cell_conductor import endings, notifications
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.tasks import YES_SECONDS
from skep.database import Connection
from skep.database.cell import agents, cold_moves, listing, move_steps, resting, row_actions
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.move_steps import DueStep, Moved
from skep.domain.actions import ACTIONS, ActionRequest, Over
from skep.domain.builds import BuildFailure, FailureKind, NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, Unavailable
from skep.domain.ids import ProjectId, UserId, new_request_id
from skep.domain.instances import Instance
from skep.domain.moves import STEPS
from skep.messages.base import Done
from skep.messages.to_cell_conductor import ActPermission, MayMove, MoveStepDone
from skep.messages.to_compute import MoveStep
from skep.messages.to_scheduler import Member, SelectDestinations
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import compute, scheduler_for

log = get_logger(__name__)

BATCH = 50
SILENT = BuildFailure(kind=FailureKind.RESCHEDULE, error=move_steps.SILENT, message="The host did not answer")


class Moves:
    """Cold moves of one cell."""

    def __init__(self, parts: Parts, releases: Releases, deletes: Deletes) -> None:
        self._parts = parts
        self._releases = releases
        self._deletes = deletes
        every = parts.settings.resend_seconds
        self.choosing = Loop("choose moves", self._choose_hosts, every=every, apart=GATHER_SECONDS)
        self.ordering = Loop("order moves", self._order, every=every, apart=GATHER_SECONDS)

    def nudge(self) -> None:
        """Look for moves soon."""
        self.choosing.nudge()
        self.ordering.nudge()

    async def _choose_hosts(self) -> bool:
        parts = self._parts
        taken = await parts.database.write(
            partial(cold_moves.take, owner=parts.owner, now=parts.clock.now(), limit=BATCH)
        )
        await asyncio.gather(*(self._try(one) for one in taken))
        return len(taken) >= BATCH

    async def _try(self, chosen: WaitingMove) -> None:
        """One that fails does not hold up the others; it is taken again by the next pass."""
        try:
            await self._choose(chosen)
        except SkepError as error:
            log.warning("move put off", instance=chosen.move.instance, error=str(error))
        except Exception:
            log.exception("move put off", instance=chosen.move.instance)

    async def _choose(self, chosen: WaitingMove) -> None:
        parts, known = self._parts, chosen.move
        async with parts.steps.step(
            "move_select",
            request=known.context.request_id,
            instance=known.instance,
            attempt=chosen.attempt,
            cell=parts.cell.name,
            contexts=(chosen.work.context,),
        ) as run:
            decision = await self._decision(chosen)
            match decision:
                case Placed():
                    run.note(chosen=decision.host)
                    await self._placed(chosen, decision)
                case NotReady() if not self._too_late(chosen):
                    run.outcome = "not_ready"
                    again = parts.before(-0.5)
                    await parts.database.write(partial(cold_moves.later, known=known, not_before=again))
                case NotReady():
                    run.outcome = "no_valid_host"
                    await self._no_host(chosen, f"No valid host was found in time: {decision.reason}")
                case NoValidHost():
                    run.outcome = "no_valid_host"
                    await self._no_host(chosen, decision.message())

    async def _decision(self, chosen: WaitingMove) -> Placed | NoValidHost | NotReady:
        parts, known = self._parts, chosen.move
        spec = msgspec.structs.replace(
            chosen.work.spec,
            forced_host=None,
            forced_node=None,
            requested_host=known.wanted_host,
            requested_node=None,
        )
        request = SelectDestinations(
            spec=spec,
            members=(Member(known.instance, chosen.attempt),),
            cell=parts.cell.uuid,
            ignore=chosen.ignore,
            alternates=0,
        )
        try:
            reply = await parts.above.call(scheduler_for(parts.cell.uuid), request, context=known.context)
        except SkepError as error:
            log.warning("no decision", instance=known.instance, attempt=chosen.attempt, error=str(error))
            why = f"no scheduler answered: {error}" if isinstance(error, Unavailable) else "the scheduler failed"
            return NotReady(reason=why)
        return reply.decisions[0]

    async def _placed(self, chosen: WaitingMove, decision: Placed) -> None:
        parts, known = self._parts, chosen.move
        unit = partial(cold_moves.placed, chosen=chosen, decision=decision, now=parts.clock.now())
        if await parts.database.write(unit):
            self._notify("select", chosen.work.instance, known.context, "start")
            self.ordering.nudge()
            return
        group = chosen.work.spec.group.uuid if chosen.work.spec.group else None
        self._releases.add([ClaimKey(known.instance, chosen.attempt, decision.node, group)])

    async def _no_host(self, chosen: WaitingMove, why: str) -> None:
        parts = self._parts
        unit = partial(cold_moves.no_host, known=chosen.move, why=why, now=parts.clock.now())
        self._ended(await parts.database.write(unit))

    def _too_late(self, chosen: WaitingMove) -> bool:
        begun = chosen.work.step_at
        return self._parts.clock.now() - begun > self._parts.settings.not_ready_deadline * SECOND

    async def _order(self) -> bool:
        """Tell hosts of steps, give up what nobody answers, and end moves whose servers were taken away."""
        parts = self._parts
        now = parts.clock.now()
        resend_before = parts.before(parts.settings.resend_seconds)

        def unit(connection: Connection) -> tuple[list[DueStep], int, list[Over]]:
            number, over = move_steps.abandon(connection, now, BATCH)
            orders = move_steps.due(connection, parts.cell.uuid, now, resend_before, BATCH, parts.progress_before())
            return orders, number, over

        orders, abandoned, over = await parts.database.write(unit)
        self._ended(over)
        if abandoned:
            self._deletes.undoing.nudge()
        for one in orders:
            await self._tell(one)
        await self._give_up_silent()
        await self._confirm_old()
        return len(orders) >= BATCH or abandoned >= BATCH

    async def _tell(self, order: DueStep) -> None:
        parts, known, held = self._parts, order.move, order.assignment
        message = MoveStep(
            context=known.context,
            move=known.uuid,
            step=known.row.order,
            instance=order.instance,
            attempt=order.attempt,
            node=held.node,
            resources=held.resources,
            allocation=held.allocation,
            expected_end=held.end,
            start=order.start,
            kept=known.source_attempt if known.row.side == "back" else 0,
        )
        await parts.transport.cast(compute(parts.cell.uuid, held.host), message, known.context)

    async def _give_up_silent(self) -> None:
        parts = self._parts
        before = parts.before(parts.settings.move_deadline)
        for one in await parts.database.read(partial(move_steps.overdue, since=before, limit=BATCH)):
            attempt, host, _, _ = one.place()
            assert one.step is not None
            if attempt is None or host is None:
                continue
            log.warning("host was silent at the deadline of a move", instance=one.instance, host=host, step=one.step)
            await self._fail(one.uuid, one.step, attempt, host, SILENT)

    async def _confirm_old(self) -> None:
        """Confirm moves that nobody has confirmed within the window that the operator set."""
        parts, window = self._parts, self._parts.settings.resize_confirm_window
        if not window:
            return
        for uuid in await parts.database.read(partial(cold_moves.to_confirm, before=parts.before(window), limit=BATCH)):
            context = RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))
            asked = ActionRequest(action="confirm_resize", context=context)
            over = await parts.database.write(
                partial(
                    row_actions.carry_out,
                    uuid=uuid,
                    action=ACTIONS["confirm_resize"],
                    request=asked,
                    check=_any,
                    host=parts.runs_on,
                    now=parts.clock.now(),
                )
            )
            self._ended(over or [])
            self._deletes.undoing.nudge()

    async def may_move(self, message: MayMove, _context: RequestContext | None) -> ActPermission:
        """Answer whether a host may stop or start a guest for a move."""
        parts = self._parts
        step = _step_of(message)

        def unit(connection: Connection) -> tuple[bool, str, Instance | None, RequestContext | None]:
            agents.check_current(connection, message.host, message.incarnation)
            for name in step:
                granted, new = move_steps.may(
                    connection, message.move, name, message.attempt, message.host, parts.clock.now()
                )
                if granted:
                    instance = listing.find(connection, message.instance) if new is not None else None
                    return True, name, instance, new.context if new is not None else None
            resting.refuse_no(connection, message.instance, message.attempt, message.host)
            return False, "", None, None

        async with parts.steps.step(
            "may_move",
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
        ) as run:
            granted, name, instance, context = await parts.database.write(unit)
            run.outcome = "ok" if granted else "replaced"
        if instance is not None and context is not None:
            self._notify(name, instance, context, "start")
        return ActPermission(granted=granted, seconds=YES_SECONDS if granted else 0.0)

    async def done(self, message: MoveStepDone, _context: RequestContext | None) -> Done:
        """Write what came of a step, and go on with the next."""
        parts = self._parts
        async with parts.steps.step(
            "moved", instance=message.instance, attempt=message.attempt, host=message.host, cell=parts.cell.name
        ) as run:
            run.outcome = "repeated"
            for name in _step_of(message):
                if message.failure is not None:
                    moved = await self._fail(message.move, name, message.attempt, message.host, message.failure)
                else:
                    moved = await self._write_done(message, name)
                if moved is not None:
                    run.outcome = "ok" if message.failure is None else "failed"
                    break
        return Done()

    async def _write_done(self, message: MoveStepDone, name: str) -> Moved | None:
        parts = self._parts
        unit = partial(
            move_steps.done,
            uuid=message.move,
            step=name,
            attempt=message.attempt,
            host=message.host,
            power_state=message.power_state,
            now=parts.clock.now(),
        )
        moved: Moved | None = await parts.database.write(unit)
        if moved is not None:
            if moved.instance is not None:
                self._notify(name, moved.instance, moved.before.context, "end")
            self._went_on(moved)
        return moved

    async def _fail(self, uuid: str, step: str, attempt: int, host: str, why: BuildFailure) -> Moved | None:
        parts = self._parts
        unit = partial(
            move_steps.failed,
            uuid=uuid,
            step=step,
            attempt=attempt,
            host=host,
            why=why,
            now=parts.clock.now(),
            most_hosts=parts.max_attempts,
        )
        moved: Moved | None = await parts.database.write(unit)
        if moved is not None:
            self._went_on(moved)
        return moved

    def _went_on(self, moved: Moved) -> None:
        self._ended(list(moved.over))
        self.nudge()
        self._deletes.undoing.nudge()

    def _notify(self, name: str, instance: Instance, context: RequestContext, when: str) -> None:
        notification = STEPS[name].starts if when == "start" else STEPS[name].ends
        if notification is not None:
            notifications.move_step(self._parts.notifier, notification, when, instance, context)

    def _ended(self, over: list[Over]) -> None:
        endings.ended(self._parts, over)


def _any(_server: Instance) -> None:
    """Let any server pass: its row is checked by the statement."""


def _step_of(message: MayMove | MoveStepDone) -> tuple[str, ...]:
    """Return the steps of the table that a host knows by this name: one of them is the move's."""
    return tuple(row.name for row in STEPS.values() if row.order == message.step)
