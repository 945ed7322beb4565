"""The story of hosts that are silent: builds and tasks of which nothing was heard for the length of a deadline.

A host that has something in hand says so (`ReportProgress`), and each time its deadlines begin anew. What this process
could not have heard is no silence: nobody is judged before it has listened for one whole deadline.
"""

from __future__ import annotations

from functools import partial

from skep.cell_conductor import endings
from skep.cell_conductor.builds import Builds
from skep.cell_conductor.listening import Listening
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.reschedule import Reschedules
from skep.database import Connection
from skep.database.cell import builds, live_moves, move_steps, reschedules, tasks
from skep.database.cell.endings import with_instances
from skep.database.cell.reschedules import Overdue
from skep.database.cell.tasks import HostTask
from skep.domain.actions import ACTIONS, Over
from skep.domain.context import RequestContext
from skep.domain.instances import Fault, State, Task
from skep.messages.to_cell_conductor import ReportProgress
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 50

_TASKS = {
    setting: frozenset(task for one in ACTIONS.values() if one.deadline == setting for task in one.tasks)
    for setting in sorted({action.deadline for action in ACTIONS.values() if action.deadline is not None})
}
"""The setting of a deadline -> the tasks that it is for."""


class Deadlines:
    """Takes builds away from hosts that do not begin or go on, and gives up on those that are past return."""

    def __init__(self, parts: Parts, builds_story: Builds, reschedules_story: Reschedules) -> None:
        self._parts = parts
        self._builds = builds_story
        self._choosing = reschedules_story.choosing
        every = parts.settings.resend_seconds
        self._listening = Listening(max(parts.settings.lease_seconds, 5 * every))
        self.loop = Loop("deadlines", self._run, every=every)

    async def progress(self, message: ReportProgress, _context: RequestContext | None) -> None:
        """Write that a host has builds and tasks in hand."""
        parts, now = self._parts, self._parts.clock.now()
        if message.builds:
            mine = [(one.instance, one.attempt) for one in message.builds]
            await parts.database.write(partial(builds.progressed, host=message.host, builds=mine, now=now))
        if message.tasks:
            named = [(one.instance, one.task_id) for one in message.tasks]
            await parts.database.write(partial(tasks.progressed, host=message.host, tasks=named, now=now))
            await parts.database.write(partial(move_steps.progressed, tasks_in_hand=named, now=now))
        figures = {(one.instance, one.task_id): one.copied for one in message.tasks if one.copied is not None}
        if figures:
            await parts.database.write(partial(live_moves.copied, figures=figures))
        phases = {(one.instance, one.task_id): one.phase for one in message.tasks if one.phase}
        if phases:
            await parts.database.write(partial(tasks.enter, host=message.host, phases=phases, now=now))
        building = [one.phase for one in message.builds]
        log.debug("progress", host=message.host, **{name: building.count(name) for name in sorted(set(building))})

    async def _run(self) -> bool:
        settings = self._parts.settings
        self._listening.look(able=self._builds.asserted)
        if self._listening.heard_for(settings.scheduled_deadline):
            await self._replace(State.SCHEDULED, settings.scheduled_deadline)
        if self._listening.heard_for(settings.building_deadline):
            await self._replace(State.BUILDING, settings.building_deadline)
        if self._listening.heard_for(settings.spawning_deadline):
            await self._give_up(settings.spawning_deadline)
        for setting, late in _TASKS.items():
            if self._listening.heard_for(getattr(settings, setting)):
                await self._give_up_tasks(late, getattr(settings, setting))
        return False

    async def _overdue(self, state: State, deadline: float) -> list[Overdue]:
        parts = self._parts
        return await parts.database.read(
            partial(reschedules.overdue, state=state, before=parts.before(deadline), limit=BATCH)
        )

    async def _replace(self, state: State, deadline: float) -> None:
        parts = self._parts
        late = await self._overdue(state, deadline)
        for one in late:
            log.warning(
                "host was silent at the deadline of a build", instance=one.instance, host=one.host, state=state.value
            )
            await parts.database.write(
                partial(reschedules.take_from_host, uuid=one.instance, attempt=one.attempt, now=parts.clock.now())
            )
        if late:
            self._choosing.nudge()

    async def _give_up(self, deadline: float) -> None:
        parts = self._parts
        for one in await self._overdue(State.SPAWNING, deadline):
            fault = Fault(
                code=500,
                message="The host stopped answering while building",
                created_at=parts.clock.now(),
                details=f"Host {one.host} stopped answering while building",
            )
            log.warning("host stopped answering while building", instance=one.instance, host=one.host)
            await parts.database.write(
                partial(
                    reschedules.give_up_on_host,
                    uuid=one.instance,
                    attempt=one.attempt,
                    fault=fault,
                    now=parts.clock.now(),
                )
            )

    async def _give_up_tasks(self, tasks_of_setting: frozenset[Task], deadline: float) -> None:
        """The server stays as it was. What the host was allowed to begin stays, in doubt, until it is heard."""
        parts = self._parts
        late = await parts.database.read(
            partial(tasks.overdue, before=parts.before(deadline), limit=BATCH, tasks=tasks_of_setting)
        )
        for task in late:
            log.warning(
                "host did not end a task",
                request=task.task_id,
                instance=task.instance,
                host=task.host,
                task=task.task.value,
            )
            endings.ended(parts, await parts.database.write(partial(_given_up, task=task, now=parts.clock.now())))


def _given_up(connection: Connection, task: HostTask, now: int) -> list[Over]:
    over = tasks.give_up(connection, task, now)
    return with_instances(connection, [over] if over is not None else [])
