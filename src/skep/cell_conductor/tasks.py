"""The story of start, stop and reboot inside a cell: the row bears the task, the host is told, the host answers."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa

from skep.cell_conductor.parts import Parts
from skep.database.cell import agents, tasks
from skep.domain.context import RequestContext
from skep.domain.ids import RequestId
from skep.messages.base import Done
from skep.messages.to_cell_conductor import ActPermission, MayAct, TaskDone
from skep.messages.to_compute import ChangePower
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.transport.base import compute

BATCH = 100

YES_SECONDS = 10.0
"""For how long a host may begin what it was allowed to, from its asking."""


class Tasks:
    """Has hosts do what users asked of running servers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.telling = Loop("tasks", self._run, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        parts = self._parts
        due = await parts.database.write(
            partial(
                tasks.due,
                now=parts.clock.now(),
                resend_before=parts.before(parts.settings.resend_seconds),
                progress_before=parts.progress_before(),
                limit=BATCH,
            )
        )
        for one in due:
            context = RequestContext(request_id=RequestId(one.task_id), project_id=one.project_id, user_id=one.user_id)
            message = ChangePower(
                context=context,
                instance=one.instance,
                attempt=one.attempt,
                task=one.task,
                task_id=one.task_id,
                ask=True,
            )
            await parts.transport.cast(compute(parts.cell.uuid, one.host), message, context)
        return len(due) >= BATCH

    async def may_act(self, message: MayAct, _context: RequestContext | None) -> ActPermission:
        """Answer whether a host may begin what it was told: not what was given up meanwhile."""
        parts = self._parts

        def unit(connection: sa.Connection) -> bool:
            agents.check_current(connection, message.host, message.incarnation)
            return tasks.may_act(
                connection,
                message.instance,
                message.attempt,
                message.host,
                message.task,
                message.task_id,
                parts.clock.now(),
            )

        granted = await parts.database.write(unit)
        return ActPermission(granted=granted, seconds=YES_SECONDS if granted else 0.0)

    async def done(self, message: TaskDone, _context: RequestContext | None) -> Done:
        """Write that a task is over. A repeat changes nothing."""
        parts = self._parts
        await parts.database.write(
            partial(
                tasks.done,
                uuid=message.instance,
                attempt=message.attempt,
                task=message.task,
                task_id=message.task_id,
                power_state=message.power_state,
                error=message.error,
                begun=message.begun,
                now=parts.clock.now(),
            )
        )
        return Done()
