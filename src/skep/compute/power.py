"""The story of `ChangePower`: start, stop and reboot, each known by its task id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from skep.compute.drivers.base import Driver
from skep.compute.entries import TaskOver
from skep.compute.host import Host
from skep.compute.outcomes import Outcomes
from skep.domain.builds import BuildFailure
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import TaskInHand
from skep.messages.to_compute import ChangePower

log = structlog.get_logger("skep.compute")

Operation = Callable[[Driver, InstanceUuid], Awaitable[PowerState]]

OPERATIONS: dict[Task, Operation] = {
    Task.POWERING_ON: lambda driver, instance: driver.power_on(instance),
    Task.POWERING_OFF: lambda driver, instance: driver.power_off(instance),
    Task.REBOOTING: lambda driver, instance: driver.reboot(instance, hard=False),
    Task.REBOOTING_HARD: lambda driver, instance: driver.reboot(instance, hard=True),
}


class Power:
    """All power tasks of one host."""

    def __init__(self, host: Host, outcomes: Outcomes) -> None:
        self._host = host
        self._outcomes = outcomes
        self._under_way: dict[str, InstanceUuid] = {}

    def take(self, message: ChangePower) -> None:
        """Do the task, or answer again what came of it. Raises BadRequest for a task that is none of power."""
        if message.task not in OPERATIONS:
            raise BadRequest(f"task: {message.task.value} is no change of power")
        record = self._host.journal.attempts.get(message.instance)
        finished = record.tasks.get(message.task_id) if record is not None else None
        if finished is not None:
            finished.acknowledged = False
            self._outcomes.tell_task(message.instance, message.task_id)
        elif message.task_id not in self._under_way:
            self._under_way[message.task_id] = message.instance
            self._host.work.start(self._story(message), name=f"power {message.instance} {message.task_id}")

    def in_hand(self) -> list[TaskInHand]:
        """Return the tasks that have no result yet, waiting ones too."""
        return [TaskInHand(instance, task_id) for task_id, instance in self._under_way.items()]

    async def _story(self, message: ChangePower) -> None:
        try:
            async with self._host.locks.hold(message.instance):
                power_state, error = await self._operate(message)
                self._host.journal.note(
                    TaskOver(
                        at=self._host.clock.now(),
                        instance=message.instance,
                        attempt=message.attempt,
                        task=message.task,
                        task_id=message.task_id,
                        power_state=power_state,
                        error=error,
                    )
                )
        finally:
            self._under_way.pop(message.task_id, None)
        self._outcomes.tell_task(message.instance, message.task_id)

    async def _operate(self, message: ChangePower) -> tuple[PowerState, str | None]:
        host, instance = self._host, message.instance
        attempt = host.guests.get(instance)
        if attempt is None:
            return PowerState.NOSTATE, f"InstanceNotFound: there is no guest of {instance} on host {host.name}"
        if attempt != message.attempt:
            there = f"the guest of {instance} on host {host.name} bears attempt {attempt}, not {message.attempt}"
            return PowerState.NOSTATE, f"InstanceNotFound: {there}"
        result = await host.drive(OPERATIONS[message.task](host.driver, instance), instance)
        if isinstance(result, BuildFailure):
            log.warning("power task failed", host=host.name, instance=instance, task=message.task, error=result.message)
            return await self._power_state(instance), f"{result.error}: {result.message}"
        return result, None

    async def _power_state(self, instance: InstanceUuid) -> PowerState:
        """Ask the hypervisor how the guest is after a task failed."""
        guests = await self._host.drive(self._host.driver.guests(), instance)
        if isinstance(guests, BuildFailure):
            return PowerState.NOSTATE
        return next((guest.power_state for guest in guests if guest.instance == instance), PowerState.NOSTATE)
