"""The story of `ChangePower`: start, stop and reboot, each known by its task id.

The agent asks before it touches the guest, since what it was told may have been given up meanwhile. A yes is good for
seconds, from the asking and by this host's own clock: whoever was held up longer asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from skep.compute.drivers.base import PowerDriver
from skep.compute.drivers.capabilities import missing
from skep.compute.entries import Acknowledged, TaskOver
from skep.compute.host import Host
from skep.compute.outcomes import Outcomes
from skep.domain.builds import BuildFailure
from skep.domain.capabilities import Capability
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import MayAct, TaskInHand
from skep.messages.to_compute import ChangePower

log = structlog.get_logger("skep.compute")

Operation = Callable[[PowerDriver, InstanceUuid], Awaitable[PowerState]]

OPERATIONS: dict[Task, Operation] = {
    Task.POWERING_ON: lambda driver, instance: driver.power_on(instance),
    Task.POWERING_OFF: lambda driver, instance: driver.power_off(instance),
    Task.REBOOTING: lambda driver, instance: driver.reboot(instance, hard=False),
    Task.REBOOTING_HARD: lambda driver, instance: driver.reboot(instance, hard=True),
}

GIVEN_UP = "the task was given up, ended or replaced before the host began it"


class _Run:
    """A task under way."""

    def __init__(self, order: ChangePower) -> None:
        self.order = order
        self.asks = order.ask
        self.hangs = False
        """The call of the driver is past its limit."""

    def hang(self) -> None:
        """Remember that the call of the driver is past its limit."""
        self.hangs = True


class Power:
    """All power tasks of one host."""

    def __init__(self, host: Host, outcomes: Outcomes) -> None:
        self._host = host
        self._outcomes = outcomes
        self._under_way: dict[str, _Run] = {}

    def take(self, message: ChangePower) -> None:
        """Do the task, or answer again what came of it. Raises BadRequest for a task that is none of power."""
        if message.task not in OPERATIONS:
            raise BadRequest(f"task: {message.task.value} is no change of power")
        record = self._host.journal.attempts.get(message.instance)
        finished = record.tasks.get(message.task_id) if record is not None else None
        known = self._under_way.get(message.task_id)
        if finished is not None:
            finished.acknowledged = False
            self._outcomes.tell_task(message.instance, message.task_id)
        elif known is not None:
            # A conductor of an older release cannot be asked.
            known.asks = known.asks and message.ask
        else:
            run = self._under_way[message.task_id] = _Run(message)
            self._host.work.start(self._story(run), name=f"power {message.instance} {message.task_id}")

    def in_hand(self) -> list[TaskInHand]:
        """Return the tasks that have no result yet, waiting ones too.

        One whose call hangs is left out: nobody knows whether it will ever have a result, so its deadline counts.
        """
        return [TaskInHand(run.order.instance, task_id) for task_id, run in self._under_way.items() if not run.hangs]

    def busy(self) -> set[InstanceUuid]:
        """Return the instances to whose guests something is being done, also by calls that hang."""
        return {run.order.instance for run in self._under_way.values()}

    async def _story(self, run: _Run) -> None:
        order = run.order
        try:
            driver = self._host.driver
            if isinstance(driver, PowerDriver):
                await self._act(run, driver)
            else:
                await self._refuse(order, missing(Capability.POWER, self._host.name))
        finally:
            self._under_way.pop(order.task_id, None)
        self._outcomes.tell_task(order.instance, order.task_id)

    async def _act(self, run: _Run, driver: PowerDriver) -> None:
        """Do the task once the conductor says yes."""
        order = run.order
        while (until := await self._permission(run)) is not None:
            async with self._host.locks.hold(order.instance):
                # Whoever held the lock, or this process itself, may have taken its time.
                if until == FOREVER or self._host.clock.elapsed() < until:
                    self._note(order, *await self._operate(run, driver))
                    return
        await self._refuse(order, f"GivenUp: {GIVEN_UP}")

    async def _refuse(self, order: ChangePower, why: str) -> None:
        """End the task without touching the guest."""
        self._note(order, await self._power_state(order.instance), why, begun=False)

    async def _permission(self, run: _Run) -> float | None:
        """Ask whether the task may begin: until when it may, by `Clock.elapsed`; None: it may not."""
        order = run.order
        question = MayAct(
            instance=order.instance,
            attempt=order.attempt,
            host=self._host.name,
            task=order.task,
            task_id=order.task_id,
        )
        answered = await self._host.upcalls.ask_in_time(question, context=order.context, wanted=lambda: run.asks)
        if answered is None:
            return FOREVER
        answer, asked_at = answered
        return asked_at + answer.seconds if answer.granted else None

    def _note(self, order: ChangePower, power_state: PowerState, error: str | None, *, begun: bool = True) -> None:
        self._host.journal.note(
            TaskOver(
                at=self._host.clock.now(),
                instance=order.instance,
                attempt=order.attempt,
                task=order.task,
                task_id=order.task_id,
                power_state=power_state,
                error=error,
                begun=begun,
            )
        )

    async def _operate(self, run: _Run, driver: PowerDriver) -> tuple[PowerState, str | None]:
        host, order, instance = self._host, run.order, run.order.instance
        attempt = host.guests.get(instance)
        if attempt is None:
            return PowerState.NOSTATE, f"InstanceNotFound: there is no guest of {instance} on host {host.name}"
        if attempt != order.attempt:
            there = f"the guest of {instance} on host {host.name} bears attempt {attempt}, not {order.attempt}"
            return PowerState.NOSTATE, f"InstanceNotFound: {there}"
        host.journal.note(Acknowledged(instance=instance, outcome="task", task_id=order.task_id, taken=True))
        result = await host.calls.change("action", OPERATIONS[order.task](driver, instance), instance, run.hang)
        if isinstance(result, BuildFailure):
            log.warning("power task failed", host=host.name, instance=instance, task=order.task, error=result.message)
            return await self._power_state(instance), f"{result.error}: {result.message}"
        return result, None

    async def _power_state(self, instance: InstanceUuid) -> PowerState:
        """Ask the hypervisor how the guest is after a task failed, or was not begun."""
        guests = await self._host.calls.read("guests", self._host.driver.guests)
        if isinstance(guests, BuildFailure):
            return PowerState.NOSTATE
        return next((guest.power_state for guest in guests if guest.instance == instance), PowerState.NOSTATE)


FOREVER = float("inf")
"""The conductor is of a release that cannot be asked: its order is all that there is."""
