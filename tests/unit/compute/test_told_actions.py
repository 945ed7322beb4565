"""Actions with secret arguments: opened for the driver alone, here or above the cell, and written down nowhere."""

from __future__ import annotations

import msgspec
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.contents import GuestContents
from skep.compute.drivers.fake import DUMP, INSIDES, FailureRule, FakeSettings
from skep.compute.drivers.fake_inside import GuestInsides
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import Built, MayAct, ReadContents, TaskDone
from tests.support.agents import AgentStage, uuid_of

NEW = "the new one"
PLAIN = msgspec.json.encode(GuestContents(admin_password=NEW))
SEALED = b"sealed by the API"


def password(stage: AgentStage) -> str | None:
    found = GuestInsides(stage.directory / INSIDES).read(uuid_of(1))
    return None if found is None else found.admin_password


async def built(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)


async def change(stage: AgentStage, task_id: str = "task-1") -> TaskDone:
    await stage.run_action("change_password", task_id, secrets=SEALED)
    return await stage.conductor.hears(TaskDone, lambda one: one.task_id == task_id)


async def test_a_host_with_the_key_changes_the_password_once(stage: AgentStage) -> None:
    stage.open_contents = lambda sealed: GuestContents(admin_password=NEW) if sealed == SEALED else None
    await built(stage)
    told = await change(stage)
    assert (told.error, told.begun, told.power_state) == (None, True, PowerState.RUNNING)
    assert password(stage) == NEW
    assert (await stage.conductor.hears(MayAct)).task == "updating_password"
    assert stage.conductor.all(ReadContents) == []
    journal = (stage.directory / JOURNAL_FILE).read_text()
    assert NEW not in journal
    assert SEALED.decode() not in journal


async def test_a_host_without_it_asks_above_the_cell_before_it_asks_whether_it_may(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    await built(stage)
    assert (await change(stage)).error is None
    assert password(stage) == NEW
    asked = [one for one in stage.conductor.heard if isinstance(one, ReadContents | MayAct)]
    assert [type(one) for one in asked] == [ReadContents, MayAct]
    assert asked[0].task_id == "task-1"


async def test_where_nobody_has_the_key_the_guest_is_not_touched(stage: AgentStage) -> None:
    await built(stage)
    before = await stage.driver.guests()
    told = await change(stage)
    assert told.error == ("SecretsUnavailable: no key of this host or above its cell opens what the action is told")
    assert (told.begun, told.power_state, stage.conductor.all(MayAct)) == (False, PowerState.RUNNING, [])
    assert (await stage.driver.guests(), password(stage)) == (before, None)


async def test_a_guest_that_does_not_run_keeps_its_password(stage: AgentStage) -> None:
    stage.conductor.contents = PLAIN
    await built(stage)
    await stage.driver.power_off(uuid_of(1))
    told = await change(stage)
    assert told.error == f"InstanceNotRunning: {uuid_of(1)} is shutdown, not running"
    assert (told.begun, told.power_state, password(stage)) == (True, PowerState.SHUTDOWN, None)


@pytest.mark.parametrize("task_id", ["task-1", "task-2"])
async def test_an_agent_that_died_in_the_middle_does_it_when_it_is_told_again(stage: AgentStage, task_id: str) -> None:
    stage.conductor.contents = PLAIN
    stage.fake = FakeSettings(failures=(FailureRule(operation="set_password", hangs=True, times=1),))
    await built(stage)
    await stage.run_action("change_password", "task-1", secrets=SEALED)
    await stage.conductor.hears(MayAct)
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    assert (await change(stage, task_id)).error is None
    assert password(stage) == NEW


async def test_each_crash_leaves_a_dump_and_the_guest_as_it_was(stage: AgentStage) -> None:
    await built(stage)
    await stage.driver.pause(uuid_of(1))
    for number in (1, 2):
        await stage.run_action("trigger_crash_dump", f"task-{number}")
        told = await stage.conductor.hears(TaskDone, lambda one, task=f"task-{number}": one.task_id == task)  # type: ignore[misc]
        assert (told.error, told.power_state) == (None, PowerState.PAUSED)
    inside = GuestInsides(stage.directory / INSIDES).read(uuid_of(1))
    assert inside is not None
    assert [file.path for file in inside.files] == [DUMP, DUMP]
