from __future__ import annotations

import asyncio

import msgspec
import pytest

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.messages.to_cell_conductor import AttemptFailed, Built, Destroyed, MayBuild, MaySpawn, ReportHost
from tests.support.agents import QUICK, AgentStage, HaltingSteps, uuid_of


async def test_a_guest_is_destroyed_and_its_attempts_named(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate(attempt=2)
    told = await stage.conductor.hears(Destroyed)
    assert (told.instance, told.attempts, told.up_to) == (uuid_of(1), (1,), 2)
    assert stage.events() == ["spawn_begun", "spawned", "destroyed"]
    await stage.conductor.hears(ReportHost, lambda report: report.seq > 1 and report.usage.used["VCPU"] == 0)


async def test_nothing_there_is_answered_too(stage: AgentStage) -> None:
    await stage.start()
    await stage.terminate()
    told = await stage.conductor.hears(Destroyed)
    assert (told.attempts, told.up_to) == ((), 2)


async def test_a_repeat_is_answered_again(stage: AgentStage) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await stage.acknowledged("destroyed")
    await stage.terminate()
    await stage.conductor.until(lambda: len(stage.conductor.all(Destroyed)) == 2)
    assert stage.conductor.all(Destroyed)[1].attempts == (1,)
    assert stage.events().count("destroyed") == 1


async def test_an_order_to_build_after_the_delete_builds_nothing(stage: AgentStage) -> None:
    await stage.start()
    await stage.terminate(attempt=2)
    await stage.conductor.hears(Destroyed)
    await stage.build(attempt=1)
    told = await stage.conductor.hears(AttemptFailed)
    assert told.failure.error == "InstanceReplaced"
    assert stage.events() == []


async def test_a_newer_attempt_is_left_alone(stage: AgentStage) -> None:
    await stage.start()
    await stage.build(attempt=3)
    await stage.conductor.hears(Built)
    await stage.terminate(attempt=2)
    told = await stage.conductor.hears(Destroyed)
    assert told.attempts == ()
    assert stage.events() == ["spawn_begun", "spawned"]


@pytest.mark.parametrize("asked", [MayBuild, MaySpawn])
async def test_a_delete_interrupts_a_build_that_waits_for_an_answer(stage: AgentStage, asked: type[MayBuild]) -> None:
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=1000.0)
    stage.conductor.silent = {asked}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(asked)
    await stage.terminate()
    told = await stage.conductor.hears(Destroyed)
    assert told.attempts == (1,)
    assert "spawned" not in stage.events()


async def test_a_delete_interrupts_a_build_that_waits_for_its_turn(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=1000.0, max_concurrent_builds=1)
    stage.conductor.silent = {MayBuild}
    await stage.start()
    await stage.build(1)
    await stage.conductor.hears(MayBuild)
    await stage.build(2)
    await stage.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 2)
    await stage.terminate(2)
    told = await stage.conductor.hears(Destroyed)
    assert told.instance == uuid_of(2)
    assert [asked.instance for asked in stage.conductor.all(MayBuild)] == [uuid_of(1)]


@pytest.mark.parametrize("operation", ["prepare_delay", "spawn_delay"])
async def test_a_delete_waits_for_the_hypervisor_and_leaves_nothing(stage: AgentStage, operation: str) -> None:
    stage.fake = msgspec.structs.replace(FakeSettings(), **{operation: 0.05})
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MayBuild)
    if operation == "spawn_delay":
        await stage.conductor.hears(MaySpawn)
    await asyncio.sleep(0)
    await stage.terminate()
    told = await stage.conductor.hears(Destroyed)
    assert told.attempts == (1,)
    events = stage.events()
    assert events.count("spawn_begun") == events.count("destroyed")


@pytest.mark.parametrize("step", ["claim", "prepare", "spawn"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_after_a_crash_at_any_step_leaves_nothing(stage: AgentStage, step: str, when: str) -> None:
    steps = HaltingSteps(step, when)
    await stage.start(steps)
    await stage.build()
    await steps.halted.wait()
    await stage.crash()
    stage.conductor.silent = {MayBuild, MaySpawn}
    await stage.start()
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    events = stage.events()
    assert events.count("spawn_begun") == events.count("destroyed")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_interrupted_delete_goes_on_by_itself(stage: AgentStage, when: str) -> None:
    steps = HaltingSteps("destroy", when)
    await stage.start(steps)
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await steps.halted.wait()
    await stage.crash()
    await stage.start()
    told = await stage.conductor.hears(Destroyed)
    assert told.attempts == (1,)
    assert stage.events() == ["spawn_begun", "spawned", "destroyed"]


async def test_destroyed_is_told_after_a_restart(stage: AgentStage) -> None:
    stage.conductor.silent = {Destroyed}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    await stage.crash()
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(Destroyed)) == 2)
    assert stage.conductor.all(Destroyed)[1].attempts == (1,)


async def test_a_failing_destroy_is_tried_until_it_works(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="destroy", times=3),))
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.terminate()
    await stage.conductor.hears(Destroyed)
    assert stage.events() == ["spawn_begun", "spawned", "destroyed"]
