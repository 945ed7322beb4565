"""The story of undoing inside a cell: hosts are told to undo attempts that their rows have left behind.

A delete raises the attempt of the row, and so does every reschedule: in both cases what is open below it must go. So
must an attempt that was given up beside the one that holds the server. One pass serves all, and repeats until the hosts
have answered.
"""

from __future__ import annotations

from functools import partial

import msgspec

from skep.cell_conductor import endings, notifications
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import attempts, builds, deletes, evacuations, recovery
from skep.database.cell.attempts import StaleAttempt
from skep.database.cell.builds import Work
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.ids import ProjectId, UserId, new_request_id
from skep.domain.instances import Task
from skep.messages.base import Done
from skep.messages.to_cell_conductor import Destroyed
from skep.messages.to_compute import TerminateInstance, UndoAttempt
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.transport.base import compute

BATCH = 200


class Deletes:
    """Has stale attempts undone, and rows deleted once nothing of them is left."""

    def __init__(self, parts: Parts, builds_story: Builds, releases: Releases) -> None:
        self._parts = parts
        self._builds = builds_story
        self._releases = releases
        self.undoing = Loop("undo", self._run, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        parts = self._parts

        now, resend_before = parts.clock.now(), parts.before(parts.settings.resend_seconds)

        def unit(
            connection: Connection,
        ) -> tuple[list[tuple[StaleAttempt, Work | None]], list[Over]]:
            stale = attempts.stale_due(connection, now, resend_before, BATCH)
            deleted = [
                over
                for instance in deletes.deleting(connection, BATCH)
                if (over := deletes.finish_if_closed(connection, instance, now)) is not None
            ]
            told = [(one, self._first_heard_of(connection, one)) for one in stale]
            return told, with_instances(connection, deleted)

        due, finished = await parts.database.write(unit)
        for stale, work in due:
            await self._tell(stale, work)
        if finished:
            endings.ended(parts, finished)
            await parts.tell_above()
        return len(due) >= BATCH or len(finished) >= BATCH

    @staticmethod
    def _first_heard_of(connection: Connection, stale: StaleAttempt) -> Work | None:
        """Read for whom it is, the first time only: hosts that are silent for days are told often."""
        return builds.work(connection, stale.instance) if stale.sends == 1 else None

    @staticmethod
    def _own_context() -> RequestContext:
        """Return the context of what cannot be read any more."""
        return RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))

    async def _tell(self, stale: StaleAttempt, work: Work | None) -> None:
        parts = self._parts
        context = stale.context or self._own_context()
        message: UndoAttempt | TerminateInstance
        if stale.alone:
            message = UndoAttempt(context=context, instance=stale.instance, attempt=stale.attempt)
        else:
            message = TerminateInstance(
                context=context, instance=stale.instance, attempt=stale.attempt, deleted=stale.deleted
            )
        await parts.transport.cast(compute(parts.cell.uuid, stale.host), message, context)
        if work is not None and work.instance.task is Task.DELETING:
            notifications.delete_start(parts.notifier, work.instance, context)

    async def destroyed(self, message: Destroyed, _context: RequestContext | None) -> Done:
        """Write that a host has nothing of some attempts any more."""
        parts = self._parts
        async with parts.steps.step(
            "deleted", instance=message.instance, host=message.host, cell=parts.cell.name
        ) as run:
            keys, over, request = await parts.database.write(partial(self._close, message=message))
            run.outcome = "ok" if over else "attempts closed"
            if request:
                run.note(request=request)
        self._releases.add(keys)
        self._builds.forget(message.instance, _upto(message))
        if over:
            endings.ended(parts, over)
            await parts.tell_above()
        return Done()

    def _close(self, connection: Connection, message: Destroyed) -> tuple[list[ClaimKey], list[Over], str | None]:
        """Write it; return what that frees, what is over with it, and the id of the request that it is for."""
        now = self._parts.clock.now()
        work = builds.work(connection, message.instance)
        keys = attempts.close(connection, message.instance, message.host, _upto(message), now)
        evacuations.source_cleared(connection, message.instance, message.host, now)
        recovery.note_undone(connection, message.instance, message.host, _upto(message))
        deleted = deletes.finish_if_closed(connection, message.instance, now)
        over = with_instances(connection, [deleted] if deleted is not None else [])
        group = work.spec.group.uuid if work is not None and work.spec.group is not None else None
        return [msgspec.structs.replace(key, group=group) for key in keys], over, _request_of(work)


def _request_of(work: Work | None) -> str | None:
    """Return the id of the delete that a row is under or that ended it, else of the create."""
    if work is None:
        return None
    goes = work.instance.task is Task.DELETING or work.instance.deleted_at is not None
    return work.task_id if goes else work.context.request_id


def _upto(message: Destroyed) -> int:
    return max(message.up_to, *message.attempts) if message.attempts else message.up_to
