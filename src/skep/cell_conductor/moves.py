"""The story of moves inside a cell: a host is chosen, then two hosts take one step after the other.

What a host is told stands in the row of the move; what it answers is written there before anybody is told of the next
step. Any conductor of the cell goes on where another one stopped; only the choice of a host has an owner.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from skep.cell_conductor import endings, notifications, other_cells
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.listening import Listening
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.reschedule import NOBODY_ABOVE
from skep.cell_conductor.tasks import YES_SECONDS
from skep.database import Connection
from skep.database.cell import (
    abandoned_moves,
    agents,
    between_cells,
    cold_moves,
    evacuations,
    listing,
    live_moves,
    move_steps,
    recovery,
    resting,
    row_actions,
    second_bindings,
    silent_moves,
)
from skep.database.cell.cold_moves import Move, WaitingMove
from skep.database.cell.move_steps import DueStep, Moved
from skep.domain.actions import ACTIONS, ActionRequest, Over
from skep.domain.builds import BuildFailure, FailureKind, NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError, Unavailable
from skep.domain.event_types import NO_HOST_ERRORS
from skep.domain.ids import NodeUuid, ProjectId, UserId, new_request_id
from skep.domain.instances import Instance, Task
from skep.domain.moves import CHOICES, EVACUATING, ON_HOSTS, REIMAGING, STEPS, SWITCHED
from skep.domain.server_migrations import MigrationType
from skep.messages.base import Done
from skep.messages.to_cell_conductor import ActPermission, MayMove, MoveStepDone
from skep.messages.to_compute import MoveStep, ReportHostNow
from skep.messages.to_scheduler import AssertClaims, GetHostStates, Member, SelectDestinations, Slot
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import compute, scheduler_for

log = get_logger(__name__)

BATCH = 50
PUTTING_ASIDE = frozenset({"put_aside", "rebuild_put_aside", "release", "live_copy"})
"""The orders after which the guest of a server does not run any more where it was."""
MEETING = frozenset({"prepare", "put_aside"})
"""The steps by which hosts of different cells find out whether they see one exchange."""
BINDING = frozenset({second_bindings.SELECTING, "live_take_up", None})
"""Steps of a live migration, and its end, with which a super conductor binds the ports of the server anew."""
WISH_OF_TIMEOUT = {"abort": "abort", "force_complete": "complete"}
"""What the setting for live migrations that take too long wishes of their copying."""
SILENT = BuildFailure(kind=FailureKind.RESCHEDULE, error=move_steps.SILENT, message="The host did not answer")


class Moves:
    """Moves of one cell."""

    def __init__(self, parts: Parts, builds_story: Builds, releases: Releases, deletes: Deletes) -> None:
        self._parts = parts
        self._builds = builds_story
        self._releases = releases
        self._deletes = deletes
        self._epoch = ""
        """Of the host states, as a scheduler named it last."""
        self._look_at = 0.0
        """When to look next for what nobody tells of, by the time of the loop."""
        self._some_wait = False
        """Live migrations wait for their turn, as far as this process knows: one that ends may let another begin."""
        every = parts.settings.resend_seconds
        self._listening = Listening(max(parts.settings.lease_seconds, 5 * every))
        self.choosing = Loop("choose moves", self._choose_hosts, every=every, apart=GATHER_SECONDS)
        self.ordering = Loop("order moves", self._order, every=every, apart=GATHER_SECONDS)

    def nudge(self) -> None:
        """Look for moves soon."""
        self.choosing.nudge()
        self.ordering.nudge()

    async def _choose_hosts(self) -> bool:
        parts = self._parts
        taken = await parts.database.write(
            partial(
                cold_moves.take,
                owner=parts.owner,
                now=parts.clock.now(),
                limit=BATCH,
                same_host=parts.settings.allow_resize_to_same_host,
            )
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
            is_elsewhere = await other_cells.is_elsewhere(parts, known.wanted_host)
            decision = other_cells.ELSEWHERE if is_elsewhere else await self._decision(chosen)
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
            forced_host=known.wanted_host if chosen.forced else None,
            forced_node=None,
            requested_host=None if chosen.forced else known.wanted_host,
            requested_node=None,
        )
        request = SelectDestinations(
            spec=spec,
            members=(Member(known.instance, chosen.attempt),),
            cell=parts.cell.uuid,
            ignore=chosen.ignore,
            home=known.source_node if known.source_node in chosen.ignore else None,
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
        now, is_live = parts.clock.now(), known.type == MigrationType.LIVE

        def unit(connection: Connection) -> tuple[bool, bool]:
            if not cold_moves.placed(connection, chosen, decision, now):
                return False, cold_moves.is_anothers(connection, chosen, decision, parts.owner)
            if is_live and self._begin_queued(connection, now, (known.source_node,)):
                self._some_wait = True
            return True, False

        placed, is_anothers = await parts.database.write(unit)
        if placed:
            self._notify(known.row.name, known, chosen.work.instance, "start")
            self.ordering.nudge()
            if is_live:
                # Its target waits until the ports are bound there, too.
                await parts.tell_above()
        if is_anothers:
            # Its host may have counted the attempt long ago, so that this claim is a second one for it.
            await parts.transport.cast(compute(parts.cell.uuid, decision.host), ReportHostNow())
        if placed or is_anothers:
            return
        group = chosen.work.spec.group.uuid if chosen.work.spec.group else None
        self._releases.add([ClaimKey(known.instance, chosen.attempt, decision.node, group)])

    async def _no_host(self, chosen: WaitingMove, why: str) -> None:
        parts = self._parts
        if parts.max_cells > 1 and parts.settings.moves_between_cells:
            seeking = partial(between_cells.seek, known=chosen.move, why=why, now=parts.clock.now())
            if await parts.database.write(seeking):
                await parts.tell_above()
                return
        if chosen.move.step == "select":
            why = other_cells.not_asked(parts, why, allowed=chosen.move.elsewhere, moves=True)
        unit = partial(cold_moves.no_host, known=chosen.move, why=why, now=parts.clock.now())
        over = await parts.database.write(unit)
        if over:
            event_type = NO_HOST_ERRORS[chosen.move.action]
            notifications.no_host(parts.notifier, event_type, chosen.work, chosen.move.context, why)
        await self._ended(over)

    def _too_late(self, chosen: WaitingMove) -> bool:
        begun = chosen.work.step_at
        return self._parts.clock.now() - begun > self._parts.settings.not_ready_deadline * SECOND

    def _await_no_bindings(self, connection: Connection) -> int:
        """Have live migrations go on for whose ports no super conductor does anything: none knows of second bindings.

        One that asks for them ends the migration itself after `not_ready_deadline`.
        """
        parts, unheard = self._parts, self._parts.settings.scheduled_deadline
        ended = parts.settings.not_ready_deadline + unheard
        return second_bindings.go_on_without(connection, parts.before(unheard), parts.before(ended))

    async def _order(self) -> bool:
        """Tell hosts of steps, give up what nobody answers, and end moves whose servers were taken away."""
        parts = self._parts
        now, looks = parts.clock.now(), self._is_time_to_look()
        resend_before = parts.before(parts.settings.resend_seconds)

        def unit(connection: Connection) -> tuple[list[DueStep], int, list[Over], list[Move]]:
            number, over = abandoned_moves.abandon(connection, now, BATCH) if looks else (0, [])
            cancelled = live_moves.cancel(connection, now, BATCH)
            number, over = number + len(cancelled), [*over, *cancelled]
            if looks:
                live_moves.end_lost(connection)
                self._end_late(connection, now)
                if self._await_no_bindings(connection):
                    log.warning("ports of live migrations follow later", cell=parts.cell.name)
            if looks or self._some_wait:
                self._some_wait = self._begin_queued(connection, now) > 0
            progress_before, unfollowed_before = parts.progress_before(), parts.unfollowed_before()
            orders = move_steps.due(
                connection, parts.cell.uuid, now, resend_before, BATCH, progress_before, unfollowed_before
            )
            return orders, number, over, evacuations.awaiting_release(connection, BATCH)

        orders, abandoned, over, unreleased = await parts.database.write(unit)
        await self._ended(over)
        if abandoned:
            self._deletes.undoing.nudge()
        if abandoned >= BATCH:
            self._look_at = 0.0
        for one in orders:
            await self._tell(one)
        if unreleased:
            await self._go_on_without(unreleased)
        if looks:
            await self._give_up_silent()
            await self._confirm_old()
            await self._seek_no_more()
        return len(orders) >= BATCH or abandoned >= BATCH

    def _begin_queued(self, connection: Connection, now: int, nodes: tuple[NodeUuid, ...] | None = None) -> int:
        """Give live migrations their turn; return how many still wait."""
        return live_moves.begin_queued(connection, now, self._parts.settings.max_concurrent_live_migrations, nodes)

    def _is_time_to_look(self) -> bool:
        """Tell whether a pass looks at all moves: not each does that somebody's word begins."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return False
        # The next periodic pass looks, too, should its timer be a little early.
        self._look_at = now + 0.9 * self._parts.settings.resend_seconds
        return True

    def _end_late(self, connection: Connection, now: int) -> None:
        """Have live migrations end that have been copying for too long."""
        settings = self._parts.settings
        limit = settings.live_migration_completion_timeout
        wish = WISH_OF_TIMEOUT[settings.live_migration_timeout_action]
        for one in live_moves.end_late(connection, now, limit, wish, BATCH) if limit else ():
            log.warning("live migration took too long", instance=one.instance, host=one.source_host, wish=wish)

    async def _tell(self, order: DueStep) -> None:
        parts, known, held = self._parts, order.move, order.assignment
        if order.slot is not None and not await self._holds(order.slot):
            # It is told later: what the attempt replaces lets its place go when this one is done.
            return
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
            kept=order.kept,
            preserve=order.preserve,
            secrets=order.secrets,
            target=known.dest_attempt or 0,
            between_cells=known.is_between_cells and known.step in MEETING,
            by_wire=order.by_wire,
            wish=known.wish or "",
        )
        await parts.transport.cast(compute(parts.cell.uuid, held.host), message, known.context)

    async def _holds(self, slot: Slot) -> bool:
        """Have schedulers know the place of an attempt in its group; False where they do not know it for now."""
        parts = self._parts
        for _ in range(2):
            # One slot is not all that the cell has to tell.
            told = AssertClaims(cell=parts.cell.uuid, epoch=self._epoch, claims=(), slots=(slot,), more=True)
            try:
                reply = await parts.above.call(scheduler_for(parts.cell.uuid), told)
            except SkepError as error:
                log.warning("place in a group not taken", instance=slot.key.instance, error=str(error))
                return False
            if reply.epoch == told.epoch:
                return not reply.refused
            self._epoch = reply.epoch
        return False

    async def _go_on_without(self, unreleased: list[Move]) -> None:
        """Let evacuations go on whose lost host is silent; one that lives has to release its guest itself.

        A living host that nobody hears is taken for dead, as the admin said it was by asking. It finds out before it
        starts anything: its attempt is given up with the switch.
        """
        parts, cell = self._parts, self._parts.cell.uuid
        asked = GetHostStates(cell=cell, nodes=tuple({one.source_node for one in unreleased}))
        try:
            silent = (await parts.above.call(scheduler_for(cell), asked)).silent
        except SkepError as error:
            log.warning("not known whether hosts are silent", cell=parts.cell.name, error=str(error))
            return
        for one in unreleased:
            if one.source_node not in silent:
                unable = partial(move_steps.not_released, known=one, now=parts.clock.now())
                ended: Moved | None = await parts.database.write(unable)
                if ended is not None:
                    log.warning("host is heard and takes no steps", instance=one.instance, host=one.source_host)
                    await self._went_on(ended)
                continue
            unit = partial(move_steps.released, known=one, now=parts.clock.now(), most_hosts=parts.max_attempts)
            moved: Moved | None = await parts.database.write(unit)
            if moved is not None:
                log.warning("server evacuated from a silent host", instance=one.instance, host=one.source_host)
                await self._went_on(moved)

    async def _give_up_silent(self) -> None:
        """Fail steps whose target is lost, and once this process has listened for a deadline, those of silent hosts."""
        parts, deadline = self._parts, self._parts.settings.move_deadline
        self._listening.look(able=self._builds.asserted)
        since = parts.before(deadline) if self._listening.heard_for(deadline) else None
        for one in await parts.database.read(partial(silent_moves.overdue, since=since, limit=BATCH)):
            attempt, host, _, _ = one.place()
            assert one.step is not None
            if attempt is None or host is None:
                continue
            log.warning("host was silent at the deadline of a move", instance=one.instance, host=host, step=one.step)
            await self._fail(one.uuid, one.step, attempt, host, SILENT, one.context.request_id)

    async def _seek_no_more(self) -> None:
        """End moves for which nobody above looks for another cell: conductors there may be older than this one."""
        parts = self._parts
        before = parts.before(2 * parts.settings.not_ready_deadline)
        for one in await parts.database.read(partial(between_cells.forsaken, since=before, limit=BATCH)):
            why = f"{(one.error or '').rstrip('.')}. {NOBODY_ABOVE}"
            unit = partial(between_cells.not_found, known=one, why=why, now=parts.clock.now())
            await self._ended(await parts.database.write(unit))

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
            await self._ended(over or [])
            self._deletes.undoing.nudge()

    async def may_move(self, message: MayMove, context: RequestContext | None) -> ActPermission:
        """Answer whether a host may stop or start a guest for a move."""
        parts = self._parts
        step, task_id = _step_of(message), _asked_by(context)

        def unit(connection: Connection) -> tuple[bool, str, Instance | None, Move | None]:
            agents.check_current(connection, message.host, message.incarnation)
            for name in step:
                granted, new = move_steps.may(
                    connection, message.move, name, message.attempt, message.host, parts.clock.now(), task_id=task_id
                )
                if granted:
                    instance = listing.find(connection, message.instance) if new is not None else None
                    return True, name, instance, new
            resting.refuse_no(connection, message.instance, message.attempt, message.host)
            return False, "", None, None

        async with parts.steps.step(
            "may_move",
            request=task_id,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
        ) as run:
            granted, name, instance, new = await parts.database.write(unit)
            run.outcome = "ok" if granted else "replaced"
        if instance is not None and new is not None:
            self._notify(name, new, instance, "start")
        return ActPermission(granted=granted, seconds=YES_SECONDS if granted else 0.0)

    async def done(self, message: MoveStepDone, context: RequestContext | None) -> Done:
        """Write what came of a step, and go on with the next."""
        parts, task_id = self._parts, _asked_by(context)
        async with parts.steps.step(
            "moved",
            request=task_id,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
        ) as run:
            run.outcome = "repeated"
            for name in _step_of(message):
                if message.failure is not None:
                    moved = await self._fail(
                        message.move, name, message.attempt, message.host, message.failure, task_id
                    )
                else:
                    moved = await self._write_done(message, name, task_id)
                if moved is not None:
                    run.outcome = "ok" if message.failure is None else "failed"
                    break
            else:
                await self._heed_lost(message)
        return Done()

    async def _heed_lost(self, message: MoveStepDone) -> None:
        """Begin a recovery where a host has put the guest of a server aside for a move that the database has lost."""
        if message.failure is not None or message.step not in PUTTING_ASIDE:
            return
        place = (message.instance, message.attempt, message.host, message.move)
        if await self._parts.database.write(lambda connection: recovery.put_aside_since(connection, *place)):
            said = f"host {message.host} has put aside attempt {message.attempt} of {message.instance}"
            await self._builds.on_evidence(message.host, f"{said} for move {message.move}, which is not known")

    async def _write_done(self, message: MoveStepDone, name: str, task_id: str) -> Moved | None:
        parts = self._parts
        unit = partial(
            move_steps.done,
            uuid=message.move,
            step=name,
            attempt=message.attempt,
            host=message.host,
            power_state=message.power_state,
            now=parts.clock.now(),
            most_hosts=parts.max_attempts,
            task_id=task_id,
        )
        moved: Moved | None = await parts.database.write(unit)
        if moved is not None:
            if moved.instance is not None and moved.step in (STEPS[name].next, STEPS[name].elsewhere):
                self._notify(name, moved.before, moved.instance, "end")
            await self._went_on(moved)
        return moved

    async def _fail(
        self, uuid: str, step: str, attempt: int, host: str, why: BuildFailure, task_id: str
    ) -> Moved | None:
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
            task_id=task_id,
        )
        moved: Moved | None = await parts.database.write(unit)
        if moved is not None:
            await self._went_on(moved)
        return moved

    async def _went_on(self, moved: Moved) -> None:
        """Have the pass begin that the step after this one waits for, and that which undoes what is left behind."""
        if moved.step in CHOICES:
            self.choosing.nudge()
        binds = moved.before.type == MigrationType.LIVE and moved.step in BINDING
        if (binds or moved.step in SWITCHED) and moved.step != moved.before.step:
            await self._parts.tell_above()
        if moved.before.type == MigrationType.LIVE and moved.step != moved.before.step:
            # Another conductor may have chosen a host for one that waits for this: only the rows know.
            self._some_wait = True
        if moved.step in ON_HOSTS or self._some_wait:
            self.ordering.nudge()
        gone_on = moved.step is not None and moved.step == moved.before.row.next
        if not gone_on or moved.step in EVACUATING:
            self._deletes.undoing.nudge()
        if moved.before.is_between_cells or moved.step in REIMAGING:
            await self._parts.tell_above()
        await self._ended(list(moved.over))

    def _notify(self, name: str, known: Move, instance: Instance, when: str) -> None:
        """Tell of a step in Nova's events: the server is of the size that it had during the step."""
        row, notifier = STEPS[name], self._parts.notifier
        if when == "start" and row.announces is not None:
            notifications.rebuild_scheduled(notifier, row.announces, instance, known.context)
        before, after = known.sized(row.holder, instance), known.sized("target", instance)
        to = after.flavor if row.task is Task.RESIZE_PREP else None
        told = (row.starts, "start") if when == "start" else (row.ends, "end")
        beside = () if when == "start" else ((row.opens, "start"), (row.closes, "end"))
        for notification, suffix in (told, *beside):
            if notification is not None and known.action == "rebuild":
                notifications.rebuild_step(notifier, notification, suffix, instance, known.context)
            elif notification is not None:
                notifications.move_step(notifier, notification, suffix, before, known.context, to)

    async def _ended(self, over: list[Over]) -> None:
        endings.ended(self._parts, over)
        if any(ACTIONS[one.action].quota is not None for one, _ in over):
            await self._parts.tell_above()


def _any(_server: Instance) -> None:
    """Let any server pass: its row is checked by the statement."""


def _asked_by(context: RequestContext | None) -> str:
    """Return the id of the request for which a host was told of a step: it says for whom it speaks."""
    return "" if context is None else context.request_id


def _step_of(message: MayMove | MoveStepDone) -> tuple[str, ...]:
    """Return the steps of the table that a host knows by this name: one of them is the move's."""
    return tuple(row.name for row in STEPS.values() if row.order == message.step)
