from __future__ import annotations

from functools import partial

import msgspec
import pytest

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.domain.clock import Clock
from skep.domain.instances import PowerState, Task
from skep.messages.to_cell_conductor import Built, MayAct, ReportGuests, TaskDone
from tests.support.agents import AgentStage


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
    assert told.gone


async def test_a_guest_that_went_without_its_agent_is_told_as_gone(stage: AgentStage) -> None:
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    await stage.driver.destroy(uuid)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.begun, told.gone, told.power_state) == (True, True, PowerState.NOSTATE)
    assert str(told.error).startswith("InstanceNotFound")


async def test_a_guest_of_which_the_hypervisor_says_nothing_is_not_told_as_gone(stage: AgentStage) -> None:
    stage.conductor.takes_guests = False
    stage.fake = FakeSettings(failures=(FailureRule(operation="power_off"), FailureRule(operation="guests", after=1)))
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.gone, told.power_state) == (False, PowerState.NOSTATE)


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


async def test_what_was_given_up_is_not_carried_out_also_when_it_is_told_again(stage: AgentStage) -> None:
    stage.conductor.may_act = False
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone)
    assert (told.begun, told.power_state) == (False, PowerState.RUNNING)
    await stage.acknowledged("task")
    await stage.crash()
    stage.conductor.may_act = True
    await stage.start()
    heard = len(stage.conductor.all(TaskDone))
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(TaskDone)) > heard)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_it_is_asked_until_answered(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, call_timeout_seconds=0.02)
    stage.conductor.silent = {MayAct}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(MayAct)) > 2)
    assert stage.events() == ["spawn_begun", "spawned"]
    stage.conductor.silent = set()
    await stage.conductor.hears(TaskDone)
    assert stage.events()[-1] == "powered_off"


class Stepping(Clock):
    """Moves on by a second with each look, until it is told to stand."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.step = 1.0

    def elapsed(self) -> float:
        self.seconds += self.step
        return self.seconds


async def test_a_yes_that_came_too_late_is_asked_for_again(stage: AgentStage) -> None:
    clock = stage.clock = Stepping()
    stage.conductor.yes_seconds = 0.5
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.until(lambda: len(stage.conductor.all(MayAct)) > 3)
    assert stage.events() == ["spawn_begun", "spawned"]
    clock.step = 0.0
    await stage.conductor.hears(TaskDone)
    assert stage.events()[-1] == "powered_off"


async def test_a_conductor_of_an_older_release_is_not_asked(stage: AgentStage) -> None:
    stage.conductor.silent = {MayAct}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1", ask=False)
    await stage.conductor.hears(TaskDone)
    assert stage.conductor.all(MayAct) == []


async def test_one_of_an_older_release_that_took_over_is_not_asked_any_more(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, call_timeout_seconds=0.02)
    stage.conductor.silent = {MayAct}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.hears(MayAct)
    await stage.change_power(Task.POWERING_OFF, "task-1", ask=False)
    await stage.conductor.hears(TaskDone)
    assert stage.events()[-1] == "powered_off"


def _is_of(done: TaskDone, task_id: str) -> bool:
    return done.task_id == task_id


async def test_a_late_repeat_of_the_first_of_many_actions_is_not_carried_out(stage: AgentStage) -> None:
    """An agent remembers the last four only: what it has forgotten it asks for."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    for number in range(1, 7):
        task = Task.POWERING_OFF if number % 2 else Task.POWERING_ON
        await stage.change_power(task, f"task-{number}")
        await stage.conductor.hears(TaskDone, partial(_is_of, task_id=f"task-{number}"))
    stage.conductor.may_act = False
    await stage.change_power(Task.POWERING_OFF, "task-1")
    told = await stage.conductor.hears(TaskDone, lambda done: not done.begun)
    assert (told.task_id, told.power_state) == ("task-1", PowerState.RUNNING)
    assert stage.events()[-1] == "powered_on"


async def test_guests_are_reported_with_what_was_begun_before_the_look(stage: AgentStage) -> None:
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    await stage.change_power(Task.POWERING_OFF, "task-1")
    await stage.conductor.hears(TaskDone)
    await stage.acknowledged("task")
    stage.driver.change_by_itself(uuid, "powered_on")
    # The end of the action itself may be told before.
    told = await stage.conductor.hears(
        ReportGuests, lambda one: any(seen.tasks and seen.power_state is PowerState.RUNNING for seen in one.guests)
    )
    [seen] = told.guests
    assert (seen.instance, seen.attempt) == (uuid, 1)
    assert seen.tasks == ("task-1",)
    await stage.crash()
    await stage.start()
    heard = len(stage.conductor.all(ReportGuests))
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportGuests)) > heard)
    assert stage.conductor.all(ReportGuests)[-1].guests == (seen,), "the journal remembers it"


async def test_a_guest_that_is_gone_is_reported(stage: AgentStage) -> None:
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    await stage.driver.destroy(uuid)
    stage.driver._told()
    told = await stage.conductor.hears(
        ReportGuests, lambda one: any(seen.power_state is PowerState.NOSTATE for seen in one.guests)
    )
    assert [seen.instance for seen in told.guests] == [uuid]


async def test_a_conductor_of_an_older_release_is_told_of_no_guests(stage: AgentStage) -> None:
    stage.conductor.takes_guests = False
    await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)
    stage.driver.change_by_itself(uuid, "powered_off")
    await stage.conductor.until(lambda: len(stage.conductor.heard) > 20)
    assert stage.conductor.all(ReportGuests) == []
