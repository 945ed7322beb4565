"""The steps of live migrations on their hosts: at most one guest runs, whatever is interrupted or repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from skep.compute.boots import FILE
from skep.compute.drivers.fake import DISKS, GUESTS_FILE, FailureRule, FakeDriver, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.drivers.guest_log import memories, read_events
from skep.compute.exchange import Exchange
from skep.contracts.eventually import eventually
from skep.domain.instances import PowerState
from skep.domain.moves import ABORTED
from skep.messages.to_cell_conductor import (
    AttemptFailed,
    Built,
    Destroyed,
    MoveStepDone,
    RegisterAgent,
    ReportHost,
    ReportProgress,
    TaskDone,
)
from tests.support.agents import HOST, MOVE, AgentStage, HaltingSteps, uuid_of

OTHER_MOVE = MOVE.replace("a001", "a002")
CONTENT = b"written by the guest"
STEPS = (("live_prepare", 1, 2), ("live_copy", 0, 1), ("live_take_up", 1, 2))
"""Each step with the stage and the attempt that it is about."""


@pytest.fixture
async def stages(tmp_path: Path) -> AsyncIterator[tuple[AgentStage, AgentStage]]:
    """Two hosts that see one exchange; the first has the guest of attempt 1, whose disk has content."""
    exchange = Exchange(tmp_path / "exchange")
    async with AsyncExitStack() as stack:
        both = []
        for name in ("source", "target"):
            stage = await stack.enter_async_context(AgentStage(tmp_path / name))
            stage.exchange = exchange
            await stage.start()
            both.append(stage)
        source, target = both
        await source.build()
        await source.conductor.hears(Built)
        (source.directory / DISKS / f"{uuid_of(1)}_1").write_bytes(CONTENT)
        yield source, target


def disk(stage: AgentStage, attempt: int) -> bytes:
    return FakeDisks(stage.directory / DISKS).content(uuid_of(1), attempt)


def labels(stage: AgentStage) -> list[int]:
    return [attempt for _, attempt in FakeDisks(stage.directory / DISKS).labels()]


def memory(stage: AgentStage) -> str | None:
    return memories(read_events(stage.directory / GUESTS_FILE)).get(uuid_of(1))


async def guests(stage: AgentStage) -> list[tuple[int, PowerState]]:
    return [(guest.attempt, guest.power_state) for guest in await stage.driver.guests()]


async def take(stage: AgentStage, step: str, attempt: int, **more: object) -> MoveStepDone:
    return await stage.moved(step, attempt, target=2, **more)


def failing(stage: AgentStage, *operations: str) -> None:
    rules = tuple(FailureRule(operation=operation, times=1, error="SpawnFailed") for operation in operations)
    stage.driver.settings = FakeSettings(failures=rules)


async def copying(source: AgentStage, target: AgentStage) -> None:
    """Begin to copy a guest that writes faster than it is copied, and wait until it is under way."""
    assert (await take(target, "live_prepare", 2)).failure is None
    source.driver.settings = FakeSettings(failures=(FailureRule(operation="converge"),))
    await source.move("live_copy", 1, target=2)
    await source.conductor.hears(ReportProgress, lambda told: any(one.copied is not None for one in told.tasks))


async def moved_with_a_crash(stages: tuple[AgentStage, AgentStage], step: str, when: str) -> None:
    """Take all steps, each twice, the agent of one of them having died before or after it."""
    for name, side, attempt in STEPS:
        stage = stages[side]
        if name == step:
            halting = HaltingSteps(f"move_{step}", when)
            await stage.crash()
            await stage.start(halting)
            await stage.move(name, attempt, target=2)
            await halting.halted.wait()
            await stage.crash()
            await stage.start()
        for _ in range(2):
            assert (await take(stage, name, attempt)).failure is None


async def test_a_guest_goes_on_on_another_host(stages: tuple[AgentStage, AgentStage], tmp_path: Path) -> None:
    source, target = stages
    before = memory(source)
    assert (await take(target, "live_prepare", 2)).failure is None
    assert await guests(target) == []
    assert (await take(source, "live_copy", 1)).failure is None
    assert await guests(source) == [] == await guests(target)
    told = await take(target, "live_take_up", 2)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert memory(target) == before
    assert disk(target, 2) == disk(source, 1) == CONTENT
    assert list((tmp_path / "exchange").iterdir()) == []
    await source.undo(attempt=1)
    await source.conductor.hears(AttemptFailed)
    assert labels(source) == []
    await target.run_action("stop", "req-stop", attempt=2)
    assert (await target.conductor.hears(TaskDone)).error is None, "it is a guest like any other"


@pytest.mark.parametrize("step", [step for step, _, _ in STEPS])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_crash_in_any_step_a_repeat_goes_on(
    stages: tuple[AgentStage, AgentStage], step: str, when: str
) -> None:
    source, target = stages
    before = memory(source)
    await moved_with_a_crash(stages, step, when)
    assert await guests(source) == []
    assert await guests(target) == [(2, PowerState.RUNNING)]
    assert (memory(target), disk(target, 2)) == (before, CONTENT)


@pytest.mark.parametrize("operation", ["copy_guest", "hand_over"])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_source_that_fails_goes_on(stages: tuple[AgentStage, AgentStage], operation: str, crash: bool) -> None:
    source, target = stages
    before = memory(source)
    await take(target, "live_prepare", 2)
    failing(source, operation)
    told = await take(source, "live_copy", 1)
    assert told.failure is not None
    assert told.failure.error == "SpawnFailed"
    if crash:
        await source.crash()
        await source.start()
    for _ in range(2):
        told = await take(source, "live_take_back", 1)
        assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert await guests(source) == [(1, PowerState.RUNNING)]
    assert (memory(source), disk(source, 1)) == (before, CONTENT)
    await source.run_action("stop", "req-stop")
    assert (await source.conductor.hears(TaskDone)).error is None, "it is a guest like any other again"


async def test_a_paused_guest_stays_paused_when_it_is_taken_back(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await source.run_action("pause", "req-pause")
    await source.conductor.hears(TaskDone)
    await take(target, "live_prepare", 2)
    failing(source, "hand_over")
    assert (await take(source, "live_copy", 1)).failure is not None
    told = await take(source, "live_take_back", 1, start=False)
    assert (told.failure, told.power_state) == (None, PowerState.PAUSED)


async def ended_by_a_boot(stages: tuple[AgentStage, AgentStage]) -> AgentStage:
    """Lose the agent of the source, and the guest, after it was put aside and not handed over; return the source."""
    source, target = stages
    await take(target, "live_prepare", 2)
    failing(source, "hand_over")
    assert (await take(source, "live_copy", 1)).failure is not None
    await source.crash()
    await source.driver.power_off(uuid_of(1))
    return source


class AheadDriver(FakeDriver):
    """One whose guests may go on on the target before they are taken over."""

    guests_go_ahead = True


@pytest.mark.parametrize(
    ("resume", "boot", "start", "ahead", "then"),
    [
        (True, "second", True, False, PowerState.RUNNING),
        (True, "second", True, True, PowerState.SHUTDOWN),
        (True, "second", False, False, PowerState.SHUTDOWN),
        (False, "second", True, False, PowerState.SHUTDOWN),
        (True, "first", True, False, PowerState.SHUTDOWN),
        (True, "", True, False, PowerState.SHUTDOWN),
    ],
)
async def test_a_guest_that_a_boot_of_the_source_has_ended_runs_again_when_it_is_taken_back(
    stages: tuple[AgentStage, AgentStage], resume: bool, boot: str, start: bool, ahead: bool, then: PowerState
) -> None:
    source = await ended_by_a_boot(stages)
    source.conductor.active = {uuid_of(1)}
    source.settings = msgspec.structs.replace(source.settings, resume_guests=resume)
    source.boot = boot
    if ahead:
        source.make_driver = lambda: AheadDriver(source.directory, HOST, source.fake, source.clock)
    await source.start()

    async def noted() -> bool:
        return (source.directory / FILE).read_text() == boot or not boot

    await eventually(noted, "the boot is noted")
    assert await guests(source) == [(1, PowerState.SHUTDOWN)], "it is not known yet who has the guest"
    for _ in range(2):
        told = await take(source, "live_take_back", 1, start=start)
        assert (told.failure, told.power_state) == (None, then)
    assert await guests(source) == [(1, then)]
    await source.driver.power_off(uuid_of(1))
    assert (await take(source, "live_take_back", 1)).power_state is PowerState.SHUTDOWN, "what ends later stays so"


async def test_a_guest_that_cannot_be_started_after_a_boot_is_taken_back_as_it_is(
    stages: tuple[AgentStage, AgentStage],
) -> None:
    source = await ended_by_a_boot(stages)
    source.settings = msgspec.structs.replace(source.settings, resume_guests=True)
    source.boot = "second"
    await source.start()
    failing(source, "power_on")
    told = await take(source, "live_take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.SHUTDOWN)


async def test_an_abort_ends_the_copying(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await copying(source, target)
    await source.move("live_copy", 1, target=2, wish="abort")
    told = await source.conductor.hears(MoveStepDone)
    assert told.failure is not None
    assert told.failure.error == ABORTED
    assert await guests(source) == [(1, PowerState.RUNNING)]
    told = await take(source, "live_take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)


async def test_an_abort_outlives_the_agent_that_copied(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await copying(source, target)
    await source.crash()
    await source.start()
    told = await take(source, "live_copy", 1, wish="abort")
    assert told.failure is not None
    assert told.failure.error == ABORTED


async def test_an_abort_of_what_is_handed_over_comes_too_late(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    assert (await take(source, "live_copy", 1)).failure is None
    assert (await take(source, "live_copy", 1, wish="abort")).failure is None
    assert (await take(target, "live_take_up", 2)).power_state is PowerState.RUNNING


async def test_a_forced_end_pauses_the_guest(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await copying(source, target)
    await source.move("live_copy", 1, target=2, wish="complete")
    assert (await source.conductor.hears(MoveStepDone)).failure is None
    assert await guests(source) == []
    assert (await take(target, "live_take_up", 2)).power_state is PowerState.RUNNING


@pytest.mark.parametrize("how", ["undo", "terminate"])
async def test_nothing_waits_for_copying_that_never_ends(
    stages: tuple[AgentStage, AgentStage], tmp_path: Path, how: str
) -> None:
    source, target = stages
    await copying(source, target)
    if how == "undo":
        await source.undo(attempt=1)
        await source.conductor.hears(AttemptFailed)
    else:
        await source.terminate(attempt=3)
        await source.conductor.hears(Destroyed)
    assert labels(source) == []
    await target.undo(attempt=2)
    await target.conductor.hears(AttemptFailed)
    assert labels(target) == []
    assert list((tmp_path / "exchange").iterdir()) == []
    await target.conductor.hears(ReportHost, lambda report: report.seq > 1 and report.usage.used["VCPU"] == 0)


@pytest.mark.parametrize(("step", "attempt"), [("live_copy", 1), ("live_take_back", 1), ("live_take_up", 2)])
async def test_no_guest_is_touched_without_a_yes(
    stages: tuple[AgentStage, AgentStage], step: str, attempt: int
) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    if step == "live_take_up":
        await take(source, "live_copy", 1)
    stage = target if attempt == 2 else source
    before = stage.events()
    stage.conductor.may_act = False
    told = await take(stage, step, attempt)
    assert told.failure is not None
    assert told.failure.error == "MoveGivenUp"
    assert stage.events() == before


async def test_what_is_handed_over_never_starts_again_here(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    await take(source, "live_copy", 1)
    for _ in range(2):
        await source.crash()
        await source.start()
        assert await guests(source) == []
        await source.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 1)
    told = await take(source, "live_copy", 1, move=OTHER_MOVE)
    assert told.failure is not None
    assert MOVE in told.failure.message


async def test_a_guest_handed_over_to_a_lost_host_boots_again_over_its_disk(
    stages: tuple[AgentStage, AgentStage],
) -> None:
    source, target = stages
    before = memory(source)
    await take(target, "live_prepare", 2)
    await take(source, "live_copy", 1)
    told = await take(source, "live_take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert disk(source, 1) == CONTENT
    assert memory(source) != before, "its memory is lost with the host that had it"


async def test_a_damaged_copy_is_refused(stages: tuple[AgentStage, AgentStage], tmp_path: Path) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    await take(source, "live_copy", 1)
    (tmp_path / "exchange" / MOVE / "attempt-2" / "disk").write_bytes(b"something else")
    told = await take(target, "live_take_up", 2)
    assert told.failure is not None
    assert told.failure.error == "StorageUnavailable"
    assert await guests(target) == []


async def test_a_late_repeat_of_the_first_step_destroys_nothing(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    await take(source, "live_copy", 1)
    assert (await take(target, "live_prepare", 2)).failure is None
    assert (await take(target, "live_take_up", 2)).power_state is PowerState.RUNNING
    assert (await take(target, "live_prepare", 2)).failure is None
    assert disk(target, 2) == CONTENT


async def test_a_target_without_room_is_refused_and_holds_nothing(stages: tuple[AgentStage, AgentStage]) -> None:
    _, target = stages
    told = await take(target, "live_prepare", 2, vcpus=1000)
    assert told.failure is not None
    assert told.failure.error == "ComputeResourcesUnavailable"
    assert labels(target) == []


async def test_hosts_with_an_exchange_announce_live_migrations(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    said = await source.conductor.hears(RegisterAgent)
    assert said.capabilities is not None
    assert "live_migrate" in said.capabilities


async def test_a_host_without_the_capability_refuses(stage: AgentStage) -> None:
    await stage.start()
    said = await stage.conductor.hears(RegisterAgent)
    assert said.capabilities is not None
    assert "live_migrate" not in said.capabilities
    told = await stage.moved("live_prepare", 2)
    assert told.failure is not None
    assert told.failure.error == "NotSupportedByDriver"


async def test_an_undo_of_another_attempt_lets_the_copying_go_on(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await copying(source, target)
    await source.undo(attempt=7)
    await source.move("live_copy", 1, target=2, wish="complete")
    told = await source.conductor.hears(MoveStepDone, lambda told: told.step == "live_copy")
    assert told.failure is None


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_source_that_lost_the_capability_goes_on(
    stages: tuple[AgentStage, AgentStage], handed_over: bool
) -> None:
    source, target = stages
    await take(target, "live_prepare", 2)
    if handed_over:
        assert (await take(source, "live_copy", 1)).failure is None
    await source.crash()
    source.exchange = None
    await source.start()
    told = await take(source, "live_copy", 1)
    assert told.failure is not None
    assert told.failure.error == "NotSupportedByDriver"
    for _ in range(2):
        told = await take(source, "live_take_back", 1)
        assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert await guests(source) == [(1, PowerState.RUNNING)]
    assert disk(source, 1) == CONTENT


async def test_a_guest_that_was_paused_to_be_copied_goes_on_without_the_capability(
    stages: tuple[AgentStage, AgentStage],
) -> None:
    source, _ = stages
    await source.driver.pause(uuid_of(1))
    await source.crash()
    source.exchange = None
    await source.start()
    told = await take(source, "live_take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    await source.driver.pause(uuid_of(1))
    told = await take(source, "live_take_back", 1, start=False)
    assert (told.failure, told.power_state) == (None, PowerState.PAUSED)
