"""One attempt of a server is undone by its number: its other attempts on the host stay."""

from __future__ import annotations

import pytest

from skep.compute.drivers.fake import DISKS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.messages.to_cell_conductor import AttemptFailed, Built, MayBuild, RegisterAgent
from tests.support.agents import AgentStage, HaltingSteps, uuid_of


def disks(stage: AgentStage) -> tuple[tuple[str, int], ...]:
    """Return whose disks are on the host."""
    return FakeDisks(stage.directory / DISKS).labels()


async def test_a_guest_is_undone(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.undo(attempt=1)
    told = await stage.conductor.hears(AttemptFailed)
    assert (told.instance, told.attempt, told.failure.error) == (uuid_of(1), 1, "InstanceReplaced")
    assert stage.events() == ["spawn_begun", "spawned", "destroyed"]
    assert disks(stage) == ()


@pytest.mark.parametrize("other", [1, 3])
async def test_a_lower_and_a_higher_attempt_stay(stage: AgentStage, other: int) -> None:
    await stage.start()
    await stage.build(attempt=2)
    await stage.conductor.hears(Built)
    await stage.undo(attempt=other)
    told = await stage.conductor.hears(AttemptFailed)
    assert told.attempt == other
    assert stage.events() == ["spawn_begun", "spawned"]
    assert disks(stage) == ((uuid_of(1), 2),)


async def test_a_repeat_is_answered_again(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.undo(attempt=1)
    await stage.conductor.hears(AttemptFailed)
    await stage.undo(attempt=1)
    await stage.conductor.until(lambda: len(stage.conductor.all(AttemptFailed)) == 2)
    assert stage.events().count("destroyed") == 1


async def test_an_order_to_build_after_it_builds_nothing(stage: AgentStage) -> None:
    await stage.start()
    await stage.undo(attempt=2)
    await stage.conductor.hears(AttemptFailed)
    await stage.build(attempt=2)
    await stage.conductor.until(lambda: len(stage.conductor.all(AttemptFailed)) == 2)
    assert stage.events() == []
    await stage.build(attempt=3)
    told = await stage.conductor.hears(Built)
    assert told.attempt == 3


async def test_a_build_under_way_stops(stage: AgentStage) -> None:
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MayBuild)
    await stage.undo(attempt=1)
    told = await stage.conductor.hears(AttemptFailed)
    assert told.attempt == 1
    assert stage.events() == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_crash_a_repeat_ends_it(stage: AgentStage, when: str) -> None:
    steps = HaltingSteps("destroy", when)
    await stage.start(steps)
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.undo(attempt=1)
    await steps.halted.wait()
    await stage.crash()
    await stage.start()
    await stage.undo(attempt=1)
    await stage.conductor.hears(AttemptFailed)
    assert disks(stage) == ()
    assert stage.events().count("destroyed") == 1


async def test_a_clean_up_that_fails_is_told_and_its_end_when_it_is_asked_for_again(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="destroy", times=1),))
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.undo(attempt=1)
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.error == "CleanupFailed"
    await stage.conductor.until(lambda: "destroyed" in stage.events())
    await stage.undo(attempt=1)
    again = await stage.conductor.hears(AttemptFailed, lambda one: one.failure.error == "InstanceReplaced")
    assert again.attempt == 1


async def test_agents_announce_it(stage: AgentStage) -> None:
    await stage.start()
    said = await stage.conductor.hears(RegisterAgent)
    assert "UndoAttempt" in said.understands
