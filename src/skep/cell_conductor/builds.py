"""The story of a build inside a cell: dispatch, two permissions, built or failed.

The host asks twice before it goes on. Each answer is a fenced write: scheduled -> building, building -> spawning. What
the host reports at the end it repeats until it is answered, so every handler may be called again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import msgspec

from skep.cell_conductor import endings, notifications
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import agents, attempts, builds, deletes, evacuations, interfaces, recovery, resting, unshelves
from skep.database.cell.builds import Work
from skep.database.cell.endings import with_instances
from skep.database.engine import T, Unit
from skep.domain.actions import Ended, Over
from skep.domain.assignments import Assignment
from skep.domain.builds import CLEANUP_FAILED, BuildFailure, FailureKind
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Fault, State
from skep.domain.timelines import Moment, later
from skep.domain.vifs import Unwired
from skep.messages.to_cell_conductor import (
    AttemptFailed,
    Built,
    MayBuild,
    MaySpawn,
    Permission,
    ReadContents,
    RequestConnections,
    RequestTicket,
    SealedConnections,
    SealedContents,
    SealedTicket,
    Settled,
)
from skep.messages.to_compute import build_order
from skep.messages.to_super_conductor import IssueTicket, OpenContents, ReadConnections
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import compute

log = get_logger(__name__)

BATCH = 100
REMEMBERED = 1000
"""Builds that a conductor has sent and remembers, so that it need not read them again: some seconds' work."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the writes of a failed attempt came to."""

    current: bool
    work: Work | None
    released: tuple[ClaimKey, ...] = ()
    fault: Fault | None = None
    ended: tuple[Over, ...] = ()
    """The actions that are over with it: a delete, an unshelve that came to nothing."""


class Builds:
    """Builds of one cell, from `scheduled` to `active`, `rescheduling` or `error`."""

    def __init__(self, parts: Parts, releases: Releases) -> None:
        self._parts = parts
        self._releases = releases
        self._sent: dict[InstanceUuid, Work] = {}
        """What this process has sent to hosts lately, without secrets. Another conductor may hear the end of it, and
        this one of what others have sent: what is not here is read from the row."""
        self.asserted = False
        """Whether the scheduler knows this cell's claims: nothing is sent to a host before it does."""
        self.epoch: str | None = None
        """Under which it knows them: only builds of this epoch are sent."""
        self.dispatching = Loop("dispatch", self._dispatch, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)
        self.rescheduling: Loop | None = None
        self.on_undone: Callable[[], None] = _nothing
        """Called when nothing is left of an attempt that was given up."""
        self.on_evidence: Callable[[str, str], Awaitable[None]] = _ignored
        """Called with a host and what it said, when that shows that the database went back in time."""

    async def _dispatch(self) -> bool:
        """Tell hosts of scheduled builds that they have not begun."""
        parts = self._parts
        if not self.asserted:
            return False
        now = parts.clock.now()
        resend_before = parts.before(parts.settings.resend_seconds)
        due = await parts.database.write(
            partial(
                builds.dispatch_due,
                home=parts.cell.uuid,
                now=now,
                resend_before=resend_before,
                progress_before=parts.progress_before(),
                limit=BATCH,
                epoch=self.epoch,
                unfollowed_before=parts.unfollowed_before(),
            )
        )
        for one in due:
            await self._send(one.work, one.assignment)
        return len(due) >= BATCH

    async def _send(self, work: Work, assignment: Assignment) -> None:
        parts, instance = self._parts, work.instance
        self._sent.pop(instance.uuid, None)
        self._sent[instance.uuid] = msgspec.structs.replace(work, secrets=None)
        while len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]
        async with parts.steps.step(
            "dispatch",
            request=work.context.request_id,
            instance=instance.uuid,
            attempt=instance.attempt,
            host=assignment.host,
            cell=parts.cell.name,
            contexts=(work.context,),
        ):
            order = build_order(work.to_build(), assignment, work.context, work.secrets)
            await parts.transport.cast(compute(parts.cell.uuid, assignment.host), order, work.context)

    async def may_build(self, message: MayBuild, context: RequestContext | None) -> Permission:
        """Answer whether a host may begin."""
        granted, _ = await self._permit("may_build", message, context)
        if granted:
            work = await self._work(message.instance, message.attempt)
            if work is not None and work.shelved is not None:
                notifications.unshelve_start(self._parts.notifier, work)
            elif work is not None:
                notifications.create_start(self._parts.notifier, work)
        return Permission(granted=granted)

    async def may_spawn(self, message: MaySpawn, context: RequestContext | None) -> Permission:
        """Answer whether a host may touch its hypervisor: the point of no return. An agent that waits gets no answer of
        either kind while ports of its server are not wired.
        """
        if message.waits:
            unwired = await self._parts.database.read(partial(_unwired, message=message))
            if unwired:
                return Permission(granted=False, unwired=unwired)
        granted, moment = await self._permit("may_spawn", message, context)
        return Permission(granted=granted, moment=moment)

    async def contents(self, message: ReadContents, context: RequestContext | None) -> SealedContents:
        """Answer with the password and files of a guest, which only its host can read.

        Raises Unavailable while nobody answers above the cell.
        """
        parts = self._parts
        asked = OpenContents(
            cell=parts.cell.uuid,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            task_id=message.task_id,
        )
        try:
            return await parts.ask_above(asked, context)
        except BadRequest:
            # Super conductors of before 0.6.0 do not know the question.
            return SealedContents(sealed=None)

    async def ticket(self, message: RequestTicket, context: RequestContext | None) -> SealedTicket:
        """Answer with a ticket for an image, which only the host that asks can read.

        Raises Unavailable while nobody answers above the cell.
        """
        parts = self._parts
        asked = IssueTicket(
            cell=parts.cell.uuid,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            image=message.image,
            task_id=message.task_id,
            store=message.store,
            question=message.question,
        )
        try:
            return await parts.ask_above(asked, context)
        except BadRequest:
            # They are upgraded first; one that was forgotten does not know the question.
            return SealedTicket(sealed=None, reason="super conductors of before 0.7.0 give no tickets")

    async def connections(self, message: RequestConnections, context: RequestContext | None) -> SealedConnections:
        """Answer how a host reaches volumes, which only that host can read.

        Raises Unavailable while nobody answers above the cell, or the volume service does not.
        """
        parts = self._parts
        asked = ReadConnections(
            cell=parts.cell.uuid,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            attachments=message.attachments,
        )
        try:
            return await parts.ask_above(asked, context)
        except BadRequest:
            return SealedConnections(sealed=None, reason="super conductors of before 0.11.0 tell of no connections")

    async def _permit(
        self, step: str, message: MayBuild | MaySpawn, context: RequestContext | None
    ) -> tuple[bool, Moment | None]:
        """Write a permission. With that to spawn goes a moment that the host alone may remember."""
        parts = self._parts
        write = builds.may_build if step == "may_build" else builds.may_spawn
        async with parts.steps.step(
            step,
            request=context.request_id if context is not None else "",
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
        ) as run:
            now = parts.clock.now()

            def unit(connection: Connection) -> tuple[bool, Moment | None]:
                agents.check_current(connection, message.host, message.incarnation)
                granted = write(connection, message.instance, message.attempt, message.host, now)
                if not granted:
                    resting.refuse_no(connection, message.instance, message.attempt, message.host)
                if not granted or step != "may_spawn" or parts.time is None:
                    return granted, None
                return granted, parts.time.advance(connection, parts.owner, now)

            granted, moment = await self._written(unit, message)
            run.outcome = "ok" if granted else "replaced"
        if moment is not None and parts.time is not None:
            parts.time.moment = later(parts.time.moment, moment)
        return granted, moment

    async def built(self, message: Built, _context: RequestContext | None) -> Settled:
        """Write that the guest runs."""
        parts = self._parts
        known = await self._work(message.instance, message.attempt)
        async with parts.steps.step(
            "built",
            request=known.context.request_id if known is not None else "",
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
            contexts=(known.context,) if known is not None else (),
        ) as run:
            current, moment, over = await self._written(partial(self._write_built, message=message), message)
            run.outcome = "ok" if current else "replaced"
        self._sent.pop(message.instance, None)
        endings.ended(parts, over)
        for one, instance in over:
            if instance is not None:
                notifications.unshelve_end(parts.notifier, instance, one.context)
        if current == "now" and known is not None and known.shelved is None:
            notifications.create_end(parts.notifier, known, message.launched_at, message.power_state)
        if moment is not None and parts.time is not None:
            parts.time.moment = later(parts.time.moment, moment)
        return Settled(current=current is not None, moment=moment)

    async def _written(self, unit: Unit[T], message: MayBuild | MaySpawn | Built | AttemptFailed) -> T:
        """Write what a host says. An attempt that its row does not know yet tells that the database went back."""
        try:
            return await self._parts.database.write(unit)
        except resting.WentBack as error:
            await self.on_evidence(message.host, str(error))
            raise

    def _write_built(
        self, connection: Connection, message: Built
    ) -> tuple[Literal["now", "before"] | None, Moment | None, list[Over]]:
        """Write the guest; a guest is undone for a row that names a higher attempt, never for one that it lacks.

        Return whether it is wanted and since when the row says so, the moment that goes to its host, and the unshelve
        that is over with it.
        """
        parts = self._parts
        facts = (
            message.instance,
            message.attempt,
            message.host,
            message.launched_at,
            message.power_state,
            parts.clock.now(),
        )
        # What was shelved had a lower attempt.
        unshelved = unshelves.built(connection, *facts) if message.attempt > 1 else None
        over = with_instances(connection, [unshelved] if unshelved is not None else [])
        current = "now" if over else builds.built(connection, *facts)
        if current is None:
            resting.refuse_no(connection, message.instance, message.attempt, message.host)
            if resting.is_unknown(connection, message.instance):
                log.error(
                    "guest without a server left alone",
                    instance=message.instance,
                    attempt=message.attempt,
                    host=message.host,
                )
                return "before", None, over
        if current is None or parts.time is None:
            return current, None, over
        return current, parts.time.advance(connection, parts.owner, parts.clock.now()), over

    async def failed(self, message: AttemptFailed, _context: RequestContext | None) -> Settled:
        """Write that an attempt failed and is undone: another host, or ERROR with the reason.

        Where the host could not undo it, the attempt stays open and its claims stay, until the host has.
        """
        parts = self._parts
        self._sent.pop(message.instance, None)
        async with parts.steps.step(
            "failed",
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=parts.cell.name,
        ) as run:
            outcome = await self._written(partial(self._write_failure, message=message), message)
            run.outcome = message.failure.kind.value if outcome.current else "replaced"
            run.note(error=message.failure.error, reason=message.failure.message)
            if message.failure.kind is FailureKind.GONE:
                # Nothing failed: its host has undone what is not needed any more.
                run.event = "undone"
            if outcome.work is not None:
                run.note(request=outcome.work.context.request_id)
        self._releases.add(outcome.released)
        if outcome.current and outcome.work is not None and outcome.work.shelved is not None:
            if self.rescheduling is not None:
                self.rescheduling.nudge()
        elif outcome.current and outcome.work is not None:
            notifications.create_error(parts.notifier, outcome.work, message.failure.message, parts.clock.now())
            if outcome.fault is not None:
                notifications.exhausted(parts.notifier, outcome.work, outcome.fault.message)
            elif self.rescheduling is not None:
                self.rescheduling.nudge()
        if outcome.ended:
            endings.ended(parts, outcome.ended)
            await parts.tell_above()
        if message.failure.kind is FailureKind.GONE:
            self.on_undone()
        return Settled(current=outcome.current)

    def _write_failure(self, connection: Connection, message: AttemptFailed) -> Outcome:
        now = self._parts.clock.now()
        leftover = message.failure.error == CLEANUP_FAILED
        if not recovery.is_undone(connection, message.instance, message.host, message.attempt, left=leftover):
            resting.refuse_no(connection, message.instance, message.attempt, message.host)
        work = builds.work(connection, message.instance)
        fault = self._fault(message, now)
        ended: list[Ended | None] = []
        if work is not None and work.instance.shelved is not None and self._ends_unshelve(message, work, fault):
            said = (message.failure.message, _details(message.host, message.failure))
            ended.append(unshelves.give_up(connection, message.instance, message.attempt, *said, now))
        given_up = any(one is not None for one in ended)
        current = message.failure.kind is not FailureKind.GONE and (
            given_up or builds.fail(connection, message.instance, message.attempt, message.host, fault, now)
        )
        failure = message.failure
        if leftover and current and work is not None and work.shelved is not None:
            ended.append(unshelves.in_error(connection, message.instance, message.attempt, failure.message, now))
        attempts.finish(
            connection,
            message.instance,
            message.attempt,
            message.host,
            now,
            "failed" if current or leftover else "undone",
            keep_open=True,
            error=failure.error,
            message=failure.message,
        )
        closed: list[ClaimKey] = []
        if not leftover:
            closed = attempts.close_one(connection, message.instance, message.host, message.attempt, now)
            evacuations.source_cleared(connection, message.instance, message.host, now)
        ended.append(deletes.finish_if_closed(connection, message.instance, now))
        group = work.spec.group.uuid if work is not None and work.spec.group is not None else None
        return Outcome(
            current=current,
            work=work,
            released=tuple(msgspec.structs.replace(key, group=group) for key in closed),
            fault=fault if current else None,
            ended=tuple(with_instances(connection, [one for one in ended if one is not None])),
        )

    @staticmethod
    def _ends_unshelve(message: AttemptFailed, work: Work, fault: Fault | None) -> bool:
        """Tell whether no other host is tried for a server that is being unshelved.

        One that is ERROR, because its host was silent past the point of no return, is where it was before now.
        """
        mine = work.instance.attempt == message.attempt and work.instance.host == message.host
        kept = message.failure.error == CLEANUP_FAILED
        return mine and not kept and (fault is not None or work.instance.state is State.ERROR)

    @staticmethod
    def _fault(message: AttemptFailed, now: int) -> Fault | None:
        """Return the fault that ends the build, or None when another host may be tried."""
        failure = message.failure
        if failure.kind is FailureKind.ABORT:
            return Fault(code=500, message=failure.message, created_at=now, details=_details(message.host, failure))
        return None

    def forget(self, instance: InstanceUuid, upto: int) -> None:
        """Nothing is left of a build up to this attempt: it was deleted or replaced."""
        known = self._sent.get(instance)
        if known is not None and known.instance.attempt <= upto:
            del self._sent[instance]

    async def _work(self, instance: InstanceUuid, attempt: int) -> Work | None:
        """Return what an attempt builds; None when its row is of another one."""
        known = self._sent.get(instance)
        if known is None or known.instance.attempt != attempt:
            known = await self._parts.database.read(partial(builds.work, uuid=instance))
        return known if known is not None and known.instance.attempt == attempt else None


def _unwired(connection: Connection, message: MaySpawn) -> Unwired | None:
    agents.check_current(connection, message.host, message.incarnation)
    return interfaces.unwired_of(connection, message.instance, message.attempt, message.host)


def _details(host: str, failure: BuildFailure) -> str:
    return f"{host}: {failure.error}: {failure.message}"


def _nothing() -> None:
    return None


async def _ignored(_host: str, _said: str) -> None:
    return None
