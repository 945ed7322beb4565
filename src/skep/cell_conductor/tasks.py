"""The story of actions that hosts carry out: the row bears the task, the host is told, the host answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from skep.cell_conductor import endings
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import agents, listing, offloads, tasks
from skep.database.cell.endings import with_instances
from skep.database.cell.tasks import HostTask
from skep.domain.actions import ACTIONS, Over
from skep.domain.context import RequestContext
from skep.domain.instances import Instance, State
from skep.messages.base import Done
from skep.messages.to_cell_conductor import ActPermission, MayAct, TaskDone
from skep.messages.to_compute import OF_CHANGE_POWER, ChangePower, RunAction
from skep.reconciler.loop import GATHER_SECONDS, Loop
from skep.telemetry.steps import StepRun
from skep.transport.base import compute

BATCH = 100

YES_SECONDS = 10.0
"""For how long a host may begin what it was allowed to, from its asking."""


class Tasks:
    """Has hosts do what users asked of running servers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.on_shelved: Callable[[], None] = _ignored
        """Called when a server was shelved."""
        self.telling = Loop("tasks", self._run, every=parts.settings.resend_seconds, apart=GATHER_SECONDS)

    async def _run(self) -> bool:
        parts = self._parts
        now, resend_before = parts.clock.now(), parts.before(parts.settings.resend_seconds)

        def unit(connection: Connection) -> tuple[list[HostTask], set[str]]:
            due = tasks.due(connection, now, resend_before, BATCH, parts.progress_before())
            return due, agents.taking(connection, {one.host for one in due}, RunAction.wire_name)

        due, up_to_date = await parts.database.write(unit)
        for one in due:
            order = _order(one, takes_actions=one.host in up_to_date)
            if order is None:
                await self._refuse(one)
            else:
                context = one.request.context
                await parts.transport.cast(compute(parts.cell.uuid, one.host), order, context)
        return len(due) >= BATCH

    async def _refuse(self, task: HostTask) -> None:
        """End an action that the agent of its host does not know, unless a former run of it was allowed to begin."""
        why = f"NotSupportedByAgent: the agent of host {task.host} is of a release without `{task.request.action}`"
        now = self._parts.clock.now()

        def unit(connection: Connection) -> list[Over]:
            over = tasks.refuse(connection, task, now, why)
            return with_instances(connection, [over] if over is not None else [])

        endings.ended(self._parts, await self._parts.database.write(unit))

    async def may_act(self, message: MayAct, _context: RequestContext | None) -> ActPermission:
        """Answer whether a host may begin what it was told: not what was given up meanwhile."""
        parts = self._parts
        async with self._step("may_act", message) as step:
            granted, begun = await parts.database.write(partial(permit, message=message, now=parts.clock.now()))
            step.outcome = "ok" if granted else "replaced"
        for task, instance in begun:
            endings.begun(parts, task.request, instance)
        return ActPermission(granted=granted, seconds=YES_SECONDS if granted else 0.0)

    async def done(self, message: TaskDone, _context: RequestContext | None) -> Done:
        """Write that an action is over. A repeat changes nothing."""
        parts = self._parts
        async with self._step("acted", message) as step:
            unit = partial(conclude, message=message, now=parts.clock.now(), offload_at_once=parts.offload_seconds == 0)
            over = await parts.database.write(unit)
            step.outcome = "ok" if over else "repeated"
        endings.ended(parts, over)
        if any(ACTIONS[one.action].becomes is State.SHELVED for one, _ in over):
            self.on_shelved()
        if any(ACTIONS[one.action].quota is not None for one, _ in over):
            await parts.tell_above()
        return Done()

    def _step(self, name: str, message: MayAct | TaskDone) -> StepRun:
        return self._parts.steps.step(
            name,
            request=message.task_id,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            cell=self._parts.cell.name,
        )


def permit(connection: Connection, message: MayAct, now: int) -> tuple[bool, list[tuple[HostTask, Instance | None]]]:
    """Let a host begin an action; return whether it may, and the action where it begins with this."""
    agents.check_current(connection, message.host, message.incarnation)
    new = tasks.not_begun(connection, message.instance, message.task_id)
    granted = tasks.may_act(
        connection, message.instance, message.attempt, message.host, message.task, message.task_id, now
    )
    instance = listing.find(connection, message.instance) if granted and new else None
    return granted, [(one, instance) for one in new] if granted else []


def conclude(connection: Connection, message: TaskDone, now: int, *, offload_at_once: bool = False) -> list[Over]:
    """Write what a host says came of an action. `offload_at_once`: what is shelved with it leaves the host.

    What boots from a volume leaves it in any case, as in Nova.
    """
    over = tasks.done(
        connection,
        message.instance,
        message.attempt,
        message.task_id,
        message.power_state,
        message.error,
        now,
        begun=message.begun,
        gone=message.gone,
        rescued=message.rescued,
    )
    told = with_instances(connection, [over] if over is not None else [])
    leaves = {"shelve_volume_backed", *(["shelve"] if offload_at_once else [])}
    if over is not None and over.error is None and over.action in leaves:
        offloads.begin(connection, over.instance, over.context, now)
    return told


def _ignored() -> None:
    return None


def _order(task: HostTask, *, takes_actions: bool) -> RunAction | ChangePower | None:
    """Return the message that orders a task, as its agent understands it; None where none of its messages says it."""
    request = task.request
    if takes_actions:
        return RunAction(
            context=request.context,
            instance=task.instance,
            attempt=task.attempt,
            action=request.action,
            task_id=task.task_id,
            arguments=request.arguments,
            secrets=request.secrets,
        )
    if task.task not in OF_CHANGE_POWER:
        return None
    return ChangePower(
        context=request.context,
        instance=task.instance,
        attempt=task.attempt,
        task=task.task,
        task_id=task.task_id,
        ask=True,
    )
