"""The story of undoing inside a cell: hosts are told to undo attempts that their rows have left behind.

A delete raises the attempt of the row, and so does every reschedule: in both cases what is open below it must go. One
pass serves both, and repeats until the hosts have answered.
"""

from __future__ import annotations

import time
from functools import partial

import msgspec
import sqlalchemy as sa

from skep.cell_conductor import notifications
from skep.cell_conductor.claims import Releases
from skep.cell_conductor.parts import Parts
from skep.database.cell import attempts, builds, deletes
from skep.database.cell.attempts import StaleAttempt
from skep.database.cell.builds import Work
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Task
from skep.messages.base import Done
from skep.messages.to_cell_conductor import Destroyed
from skep.messages.to_compute import TerminateInstance
from skep.reconciler.loop import Loop
from skep.transport.base import compute

BATCH = 200


class Deletes:
    """Has stale attempts undone, and rows deleted once nothing of them is left."""

    def __init__(self, parts: Parts, releases: Releases) -> None:
        self._parts = parts
        self._releases = releases
        self._told: dict[tuple[InstanceUuid, int], float] = {}
        self.undoing = Loop("undo", self._run, every=parts.settings.resend_seconds)

    async def _run(self) -> bool:
        parts = self._parts

        def unit(
            connection: sa.Connection,
        ) -> tuple[list[tuple[StaleAttempt, Work | None]], list[InstanceUuid]]:
            stale = attempts.stale(connection, BATCH)
            waiting = {one.instance for one in stale}
            finished = [
                instance
                for instance, _ in deletes.deleting(connection, BATCH)
                if instance not in waiting and deletes.finish_if_closed(connection, instance, parts.clock.now())
            ]
            return [(one, builds.work(connection, one.instance)) for one in self._due(stale)], finished

        due, finished = await parts.database.write(unit)
        for stale, work in due:
            await self._tell(stale, work)
        if finished:
            await parts.tell_above()
        return False

    def _due(self, stale: list[StaleAttempt]) -> list[StaleAttempt]:
        """Leave out what was told a moment ago; forget what is no longer stale."""
        now = time.monotonic()
        known = {(one.instance, one.attempt) for one in stale}
        self._told = {key: at for key, at in self._told.items() if key in known}
        due = [
            one
            for one in stale
            if now - self._told.get((one.instance, one.attempt), 0.0) > self._parts.settings.resend_seconds
            or (one.instance, one.attempt) not in self._told
        ]
        self._told.update({(one.instance, one.attempt): now for one in due})
        return due

    async def _tell(self, stale: StaleAttempt, work: Work | None) -> None:
        parts = self._parts
        context = work.context if work is not None else None
        if context is not None:
            message = TerminateInstance(context=context, instance=stale.instance, attempt=stale.attempt)
            await parts.transport.cast(compute(parts.cell.uuid, stale.host), message, context)
        if work is not None and work.instance.task is Task.DELETING:
            notifications.delete_start(parts.notifier, work)

    async def destroyed(self, message: Destroyed, _context: RequestContext | None) -> Done:
        """Write that a host has nothing of some attempts any more."""
        parts = self._parts
        async with parts.steps.step(
            "deleted", instance=message.instance, host=message.host, cell=parts.cell.name
        ) as run:
            keys, work, deleted = await parts.database.write(partial(self._close, message=message))
            run.outcome = "ok" if deleted else "attempts closed"
        self._releases.add(keys)
        if deleted:
            if work is not None:
                notifications.delete_end(parts.notifier, work, parts.clock.now())
            await parts.tell_above()
        return Done()

    def _close(self, connection: sa.Connection, message: Destroyed) -> tuple[list[ClaimKey], Work | None, bool]:
        now = self._parts.clock.now()
        work = builds.work(connection, message.instance)
        upto = max(message.up_to, *message.attempts) if message.attempts else message.up_to
        keys = attempts.close(connection, message.instance, message.host, upto, now)
        deleted = deletes.finish_if_closed(connection, message.instance, now)
        group = work.spec.group.uuid if work is not None and work.spec.group is not None else None
        return [msgspec.structs.replace(key, group=group) for key in keys], work, deleted
