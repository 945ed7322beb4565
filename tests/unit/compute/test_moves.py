"""The steps of a move on its hosts: disks go from attempt to attempt, and at most one guest runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.base import DriverError
from skep.compute.drivers.fake import DISKS, FailureRule, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.exchange import MANIFEST, Exchange
from skep.domain.claims import ClaimKey
from skep.domain.instances import PowerState
from skep.messages.to_cell_conductor import (
    AttemptFailed,
    Built,
    Destroyed,
    GuestsFound,
    MayMove,
    MoveStepDone,
    RegisterAgent,
    ReportGuests,
    ReportHost,
    TaskDone,
)
from tests.support.agents import MOVE, AgentStage, HaltingSteps, uuid_of
from tests.unit.compute.test_capabilities import CoreOnly

OTHER_MOVE = MOVE.replace("a001", "a002")


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
        write(source, 1, b"written by the guest")
        yield source, target


def write(stage: AgentStage, attempt: int, content: bytes) -> None:
    (stage.directory / DISKS / f"{uuid_of(1)}_{attempt}").write_bytes(content)


def disk(stage: AgentStage, attempt: int) -> bytes:
    return FakeDisks(stage.directory / DISKS).content(uuid_of(1), attempt)


def labels(stage: AgentStage) -> list[int]:
    return [attempt for _, attempt in FakeDisks(stage.directory / DISKS).labels()]


async def guests(stage: AgentStage) -> list[tuple[int, PowerState]]:
    return [(guest.attempt, guest.power_state) for guest in await stage.driver.guests()]


def _heard_more(stage: AgentStage, than: int) -> bool:
    return len(stage.conductor.all(ReportGuests)) > than


async def test_a_guest_goes_to_another_host_with_its_disk(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    for stage, step, attempt in ((target, "prepare", 2), (source, "put_aside", 1), (target, "transfer", 2)):
        told = await stage.moved(step, attempt)
        assert told.failure is None
    assert await guests(source) == [] == await guests(target)
    told = await target.moved("take_up", 2)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)
    assert await guests(target) == [(2, PowerState.RUNNING)]
    assert disk(target, 2) == disk(source, 1) == b"written by the guest"
    assert list((source.directory.parent / "exchange").iterdir()) == [], "the target has taken it"


async def test_a_guest_goes_to_another_attempt_on_its_host(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    for step, attempt in (("prepare", 2), ("put_aside", 1), ("transfer", 2), ("take_up", 2)):
        assert (await source.moved(step, attempt, vcpus=2)).failure is None
    assert await guests(source) == [(2, PowerState.RUNNING)]
    assert labels(source) == [1, 2]
    await source.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 3)
    await source.undo(attempt=1)
    await source.conductor.hears(AttemptFailed)
    assert await guests(source) == [(2, PowerState.RUNNING)]
    assert labels(source) == [2]


async def test_a_stopped_server_is_only_defined(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await target.moved("prepare", 2)
    await source.moved("put_aside", 1)
    await target.moved("transfer", 2)
    told = await target.moved("take_up", 2, start=False)
    assert told.power_state is PowerState.SHUTDOWN
    assert await guests(target) == [(2, PowerState.SHUTDOWN)]


@pytest.mark.parametrize(("start", "left"), [(True, PowerState.RUNNING), (False, PowerState.SHUTDOWN)])
async def test_the_source_takes_its_guest_back(
    stages: tuple[AgentStage, AgentStage], start: bool, left: PowerState
) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    told = await source.moved("take_back", 1, start=start)
    assert (told.failure, told.power_state) == (None, left)
    assert await guests(source) == [(1, left)]
    assert disk(source, 1) == b"written by the guest"
    await source.run_action("stop", "req-stop")
    done = await source.conductor.hears(TaskDone)
    assert done.error is None, "it is a guest like any other again"


async def test_a_guest_that_was_not_put_aside_is_taken_back_as_it_is(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    await source.driver.power_off(uuid_of(1))
    told = await source.moved("take_back", 1, start=False)
    assert (told.failure, told.power_state) == (None, PowerState.SHUTDOWN), "it was stopped since it was built"
    await source.moved("put_aside", 1)
    await source.moved("take_back", 1, start=False)
    await source.driver.power_on(uuid_of(1))
    told = await source.moved("take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING), "it was started since it was taken back"
    assert await guests(source) == [(1, PowerState.RUNNING)]


async def test_what_is_put_aside_is_no_guest_and_is_counted(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    await source.run_action("start", "req-start")
    done = await source.conductor.hears(TaskDone)
    assert done.error is not None
    await source.build(2)
    await source.conductor.hears(Built, lambda told: told.instance == uuid_of(2))
    for _ in range(2):
        heard = len(source.conductor.all(ReportGuests))
        await source.crash()
        await source.start()
        await source.conductor.until(partial(_heard_more, source, heard))
        [seen] = source.conductor.all(ReportGuests)[-1].guests
        assert seen.instance == uuid_of(2)
        assert source.conductor.all(ReportHost)[-1].usage.used["VCPU"] == 2


@pytest.mark.parametrize("step", ["prepare", "put_aside", "transfer", "take_up"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_crash_in_any_step_a_repeat_goes_on(
    stages: tuple[AgentStage, AgentStage], step: str, when: str
) -> None:
    source, target = stages
    steps = (("prepare", target, 2), ("put_aside", source, 1), ("transfer", target, 2), ("take_up", target, 2))
    for name, stage, attempt in steps:
        if name == step:
            halting = HaltingSteps(f"move_{step}", when)
            await stage.crash()
            await stage.start(halting)
            await stage.move(name, attempt)
            await halting.halted.wait()
            await stage.crash()
            await stage.start()
        assert (await stage.moved(name, attempt)).failure is None
        assert (await stage.moved(name, attempt)).failure is None, "a repeat is answered again"
    assert await guests(target) == [(2, PowerState.RUNNING)]
    assert await guests(source) == []
    assert disk(target, 2) == b"written by the guest"
    assert [event for event in target.events() if event == "spawned"] == ["spawned"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_after_a_crash_in_taking_back_a_repeat_goes_on(stages: tuple[AgentStage, AgentStage], when: str) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    halting = HaltingSteps("move_take_back", when)
    await source.crash()
    await source.start(halting)
    await source.move("take_back", 1)
    await halting.halted.wait()
    await source.crash()
    await source.start()
    assert (await source.moved("take_back", 1)).failure is None
    assert await guests(source) == [(1, PowerState.RUNNING)]


@pytest.mark.parametrize(("step", "attempt"), [("put_aside", 1), ("take_back", 1), ("take_up", 2)])
async def test_no_guest_is_touched_without_a_yes(
    stages: tuple[AgentStage, AgentStage], step: str, attempt: int
) -> None:
    source, _ = stages
    await source.moved("prepare", 2)
    if step != "put_aside":
        await source.moved("put_aside", 1)
        await source.moved("transfer", 2)
    before = source.events()
    source.conductor.may_act = False
    told = await source.moved(step, attempt)
    assert told.failure is not None
    assert told.failure.error == "MoveGivenUp"
    asked = source.conductor.all(MayMove)[-1]
    assert (asked.move, asked.step, asked.attempt) == (MOVE, step, attempt)
    assert source.events() == before


async def test_a_yes_that_is_too_old_is_asked_for_again(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    source.conductor.yes_seconds = 0.0
    await source.move("put_aside", 1)
    await source.conductor.until(lambda: len(source.conductor.all(MayMove)) == 2)
    assert await guests(source) == [(1, PowerState.RUNNING)]
    source.conductor.yes_seconds = 60.0
    assert (await source.conductor.hears(MoveStepDone)).failure is None
    assert await guests(source) == []


async def test_a_target_without_room_is_refused_and_holds_nothing(stages: tuple[AgentStage, AgentStage]) -> None:
    _, target = stages
    told = await target.moved("prepare", 2, vcpus=1000)
    assert told.failure is not None
    assert told.failure.error == "ComputeResourcesUnavailable"
    assert (await target.moved("prepare", 2)).failure is None, "nothing was held"


async def test_a_report_amid_the_writing_of_a_target_counts_it_once(
    stages: tuple[AgentStage, AgentStage], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = stages
    agent = target.agent
    written, synced = asyncio.Event(), agent._journal.synced

    async def late() -> None:
        await written.wait()
        await synced()

    monkeypatch.setattr(agent._journal, "synced", late)
    moved = asyncio.create_task(target.moved("prepare", 2))
    report = await target.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 1)
    assert report.settled == (ClaimKey(uuid_of(1), 2, agent.node),)
    assert not moved.done()
    written.set()
    assert (await moved).failure is None


async def test_a_target_that_was_undone_comes_to_nothing(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await target.moved("prepare", 2)
    await source.moved("put_aside", 1)
    await target.moved("transfer", 2)
    await target.undo(attempt=2)
    await target.conductor.hears(AttemptFailed)
    for step in ("prepare", "transfer", "take_up"):
        told = await target.moved(step, 2)
        assert told.failure is not None, step
        assert told.failure.error == "MoveGivenUp"
    assert labels(target) == []
    await target.conductor.hears(ReportHost, lambda report: report.seq > 1 and report.usage.used["VCPU"] == 0)


@pytest.mark.parametrize("restarts", [False, True])
async def test_disks_that_are_there_are_not_received_again(
    stages: tuple[AgentStage, AgentStage], *, restarts: bool
) -> None:
    source, target = stages
    await target.moved("prepare", 2)
    await source.moved("put_aside", 1)
    await target.moved("transfer", 2)
    if restarts:
        await target.crash()
        await target.start()
    target.driver.settings = FakeSettings(failures=(FailureRule(operation="receive"),))
    assert (await target.moved("transfer", 2)).failure is None, "the order is late: the server is here by now"
    assert disk(target, 2) == b"written by the guest"
    assert (await target.moved("take_up", 2)).failure is None


async def test_disks_of_a_revert_are_not_received_again(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    await source.moved("receive", 3, kept=1)
    write(source, 1, b"")
    source.driver.settings = FakeSettings(failures=(FailureRule(operation="receive"),))
    assert (await source.moved("receive", 3, kept=1)).failure is None
    assert disk(source, 3) == b"written by the guest"


async def test_what_fails_to_be_received_is_received_again(stages: tuple[AgentStage, AgentStage]) -> None:
    source, target = stages
    await target.moved("prepare", 2)
    await source.moved("put_aside", 1)
    target.driver.settings = FakeSettings(failures=(FailureRule(operation="receive", times=1),))
    assert (await target.moved("transfer", 2)).failure is not None
    assert (await target.moved("transfer", 2)).failure is None
    assert disk(target, 2) == b"written by the guest"


async def test_an_offer_that_broke_off_leaves_nothing(tmp_path: Path) -> None:
    exchange, there = Exchange(tmp_path / "exchange"), tmp_path / "there"
    there.write_bytes(b"disk")
    with pytest.raises(DriverError, match="not offered"):
        await exchange.offer(MOVE, {"disk": there, "other": tmp_path / "gone"})
    await exchange.withdraw(MOVE)
    assert list((tmp_path / "exchange").iterdir()) == []


@pytest.mark.parametrize("name", ["../secret", "link"])
async def test_an_offer_gives_no_file_from_elsewhere(tmp_path: Path, name: str) -> None:
    home = tmp_path / "exchange" / MOVE
    home.mkdir(parents=True)
    secret = tmp_path / "exchange" / "secret"
    secret.write_bytes(b"of the target's host")
    (home / "link").symlink_to(secret)
    (home / MANIFEST).write_text(json.dumps({name: hashlib.sha256(secret.read_bytes()).hexdigest()}))
    with pytest.raises(DriverError, match="names no file of an offer"):
        await Exchange(tmp_path / "exchange").take(MOVE)


async def test_a_damaged_offer_is_refused(stages: tuple[AgentStage, AgentStage], tmp_path: Path) -> None:
    source, target = stages
    await target.moved("prepare", 2)
    await source.moved("put_aside", 1)
    offered = tmp_path / "exchange" / MOVE / "disk"
    offered.unlink()
    offered.write_bytes(b"something else")
    told = await target.moved("transfer", 2)
    assert told.failure is not None
    assert told.failure.error == "StorageUnavailable"
    assert "disk" in told.failure.message


@pytest.mark.parametrize(("operation", "step"), [("put_aside", "put_aside"), ("kept", "put_aside")])
async def test_a_source_that_fails_can_be_taken_back(
    stages: tuple[AgentStage, AgentStage], operation: str, step: str
) -> None:
    source, _ = stages
    source.driver.settings = FakeSettings(failures=(FailureRule(operation=operation, times=1, error="SpawnFailed"),))
    told = await source.moved(step, 1)
    assert told.failure is not None
    assert told.failure.error == "SpawnFailed"
    assert (await source.moved("take_back", 1)).failure is None
    assert await guests(source) == [(1, PowerState.RUNNING)]


async def test_a_guest_that_is_put_aside_for_another_move_stays_so(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    told = await source.moved("take_back", 1, move=OTHER_MOVE)
    assert told.failure is not None
    assert OTHER_MOVE not in told.failure.message
    assert MOVE in told.failure.message
    assert await guests(source) == []


async def test_unknown_steps_and_hosts_without_an_exchange_refuse(stage: AgentStage) -> None:
    await stage.start()
    said = await stage.conductor.hears(RegisterAgent)
    assert said.capabilities is not None
    assert "move" not in said.capabilities
    told = await stage.moved("prepare", 2)
    assert told.failure is not None
    assert told.failure.error == "NotSupportedByDriver"
    told = await stage.moved("fly", 2)
    assert told.failure is not None
    assert told.failure.error == "NotSupportedByAgent"


@pytest.mark.parametrize("step", ["put_aside", "rebuild_put_aside"])
async def test_a_host_that_lost_its_capabilities_says_how_the_guest_is_that_it_did_not_touch(
    stage: AgentStage, step: str
) -> None:
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    whole = stage.make_driver
    await stage.crash()
    stage.make_driver = lambda: CoreOnly(whole())  # type: ignore[assignment,return-value]
    await stage.start()
    told = await stage.moved(step, 1)
    assert told.failure is not None
    assert told.failure.error == "NotSupportedByDriver"
    told = await stage.moved("take_back", 1)
    assert (told.failure, told.power_state) == (None, PowerState.RUNNING)


async def test_a_host_that_lost_its_capabilities_tells_so_of_a_guest_that_is_put_aside(
    stages: tuple[AgentStage, AgentStage],
) -> None:
    source, _ = stages
    assert (await source.moved("put_aside", 1)).failure is None
    whole = source.make_driver
    await source.crash()
    source.make_driver = lambda: CoreOnly(whole())  # type: ignore[assignment,return-value]
    await source.start()
    told = await source.moved("take_back", 1)
    assert told.failure is not None
    assert "lacks the capability `rebuild`" in told.failure.message
    await source.crash()
    source.make_driver = whole
    await source.start()
    assert (await source.moved("take_back", 1)).power_state is PowerState.RUNNING
    assert disk(source, 1) == b"written by the guest"


async def test_a_host_without_the_guest_releases_it_whatever_it_lacks(stage: AgentStage) -> None:
    await stage.start()
    told = await stage.moved("release", 1)
    assert (told.failure, told.power_state) == (None, PowerState.NOSTATE)


async def test_hosts_with_an_exchange_announce_moves(stages: tuple[AgentStage, AgentStage]) -> None:
    source, _ = stages
    said = await source.conductor.hears(RegisterAgent)
    assert said.capabilities is not None
    assert "move" in said.capabilities
    assert "MoveStep" in said.understands


async def test_a_database_that_went_back_is_not_told_of_what_is_put_aside(
    stages: tuple[AgentStage, AgentStage],
) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    await source.tell_guests(7)
    told = await source.conductor.hears(GuestsFound)
    assert [(one.instance, one.highest, one.phase) for one in told.guests] == [(uuid_of(1), 1, "none")]


@pytest.mark.parametrize("how", ["undo", "terminate"])
async def test_nothing_is_left_of_a_source_that_is_undone(
    stages: tuple[AgentStage, AgentStage], tmp_path: Path, how: str
) -> None:
    source, _ = stages
    await source.moved("put_aside", 1)
    if how == "undo":
        await source.undo(attempt=1)
        await source.conductor.hears(AttemptFailed)
    else:
        await source.terminate(attempt=3)
        await source.conductor.hears(Destroyed)
    assert labels(source) == []
    assert list((tmp_path / "exchange").iterdir()) == []
    await source.conductor.hears(ReportHost, lambda report: report.seq > 1 and report.usage.used["VCPU"] == 0)


@pytest.mark.parametrize("taken_back", [False, True])
async def test_a_journal_that_lost_its_last_line_with_the_power_does_not_report_what_is_put_aside(
    stage: AgentStage, tmp_path: Path, taken_back: bool
) -> None:
    stage.exchange = Exchange(tmp_path / "exchange")
    stage.conductor.silent.add(Built)
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.moved("put_aside", 1)
    await stage.crash()
    journal = stage.directory / JOURNAL_FILE
    lines = journal.read_bytes().splitlines(keepends=True)
    assert b'"acknowledged"' in lines[-1]
    journal.write_bytes(b"".join(lines[:-1]))
    stage.conductor.silent.clear()
    stage.conductor.current = False
    await stage.start()
    before = len(stage.conductor.all(Built))
    if taken_back:
        assert (await stage.moved("take_back", 1)).power_state is PowerState.RUNNING
        await stage.crash()
        await stage.start()
    await stage.conductor.hears(ReportHost)
    for _ in range(5):
        await stage.turn()
    assert len(stage.conductor.all(Built)) == before
    assert labels(stage) == [1], "nothing is undone"


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[AgentStage]:
    """A host without an exchange, that gives disks from agent to agent, with a guest."""
    async with AgentStage(tmp_path / "alone") as stage:
        stage.settings = msgspec.structs.replace(stage.settings, move_address="127.0.0.1")
        await stage.start()
        await stage.build()
        await stage.conductor.hears(Built)
        write(stage, 1, b"written by the guest")
        yield stage


async def test_a_host_without_an_exchange_refuses_who_knows_no_wire(alone: AgentStage) -> None:
    """So it is where the other agent or the conductor is of a release before: they say nothing of it."""
    assert set(alone.conductor.all(RegisterAgent)[-1].capabilities or ()) & {
        "move",
        "move_by_wire",
        "move_between_cells",
        "live_migrate",
    } == {"move", "move_by_wire"}
    for step, attempt in (("prepare", 2), ("put_aside", 1)):
        told = await alone.moved(step, attempt, target=2 if step == "prepare" else 3)
        assert told.failure is not None
        assert told.failure.error == "ExchangeNotShared"
        assert "`[compute] exchange_directory`" in told.failure.message
    assert await guests(alone) == [(1, PowerState.RUNNING)]
    assert labels(alone) == [1]


async def test_a_guest_goes_back_without_a_way_for_its_disks(alone: AgentStage) -> None:
    told = await alone.moved("put_aside", 1, target=1)
    assert told.failure is None
    assert await guests(alone) == []


async def test_a_guest_goes_to_another_attempt_on_its_host_without_an_exchange(alone: AgentStage) -> None:
    for step, attempt in (("prepare", 2), ("put_aside", 1), ("transfer", 2), ("take_up", 2)):
        assert (await alone.moved(step, attempt, target=2, by_wire=True, vcpus=2)).failure is None
    assert await guests(alone) == [(2, PowerState.RUNNING)]
    assert disk(alone, 2) == b"written by the guest"
