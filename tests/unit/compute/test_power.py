from __future__ import annotations

import pytest

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import Built, TaskDone
from skep.testing.agents import AgentStage


@pytest.mark.parametrize(
    ("task", "state", "event"),
    [
        (Task.POWERING_OFF, PowerState.SHUTDOWN, "powered_off"),
        (Task.REBOOTING, PowerState.RUNNING, "rebooted"),
        (Task.REBOOTING_HARD, PowerState.RUNNING, "rebooted"),
    ],
)
async def test_a_task_changes_the_guest(stage: AgentStage, task: Task, state: PowerState, event: str) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(task, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.task, told.task_id, told.power_state, told.error) == (task, "task-1", state, None)
    assert stage.events()[-1] == event
    assert stage.history()[-1].hard == (task is Task.REBOOTING_HARD)


async def test_stop_then_start(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.hears(TaskDone)
    await stage.change_power(Task.POWERING_ON, "task-2")
    told = await stage.conductor.hears(TaskDone, lambda done: done.task_id == "task-2")
    assert told.power_state is PowerState.RUNNING
    assert stage.events()[-2:] == ["powered_off", "powered_on"]


async def test_a_repeat_is_answered_from_the_journal_also_after_a_restart(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.REBOOTING, "task-1")
    await stage.acknowledged("task")
    await stage.change_power(Task.REBOOTING, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(TaskDone)) == 2)
    await stage.crash()
    await stage.start()
    heard = len(stage.conductor.all(TaskDone))
    await stage.change_power(Task.REBOOTING, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(TaskDone)) > heard)
    assert stage.events().count("rebooted") == 1


async def test_a_result_that_nobody_acknowledged_is_told_after_a_restart(stage: AgentStage) -> None:
    stage.conductor.silent = {TaskDone}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.hears(TaskDone)
    await stage.crash()
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(TaskDone)) == 2)
    assert stage.conductor.all(TaskDone)[1].power_state is PowerState.SHUTDOWN


async def test_a_missing_guest_is_an_error(stage: AgentStage) -> None:
    await stage.start()
    await stage.change_power(Task.POWERING_ON, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert told.error is not None
    assert told.error.startswith("InstanceNotFound")


async def test_the_guest_of_another_attempt_is_not_touched(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(attempt=2)
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1", attempt=1)
    told = await stage.conductor.hears(TaskDone)
    assert told.error is not None
    assert "bears attempt 2" in told.error
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_failing_operation_tells_error_and_state(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="power_off", error="Stuck", message="it hangs"),))
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.error, told.power_state) == ("Stuck: it hangs", PowerState.RUNNING)
