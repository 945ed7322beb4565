from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.compute.agent import JOURNAL_FILE, Agent
from skep.compute.drivers.fake import FailureRule, FakeDriver, FakeSettings
from skep.compute.entries import SpawnGranted
from skep.compute.flusher import Flusher
from skep.compute.journal import Journal
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from skep.messages.to_cell_conductor import AttemptFailed, Built, MayBuild, MaySpawn, ReportHost
from tests.support.agents import CELL, HOST, AgentStage, HaltingSteps, instance, uuid_of


@pytest.mark.parametrize("step", ["prepare", "spawn"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_build_goes_on_by_itself_after_a_crash(stage: AgentStage, step: str, when: str) -> None:
    steps = HaltingSteps(step, when)
    await stage.start(steps)
    await stage.build()
    await steps.halted.wait()
    await stage.crash()
    await stage.start()
    told = await stage.conductor.hears(Built)
    assert told.attempt == 1
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_build_that_crashed_after_its_claim_goes_on(stage: AgentStage) -> None:
    steps = HaltingSteps("claim", "after")
    await stage.start(steps)
    await stage.build()
    await steps.halted.wait()
    await stage.crash()
    await stage.start()
    await stage.conductor.hears(Built)


async def test_a_crash_before_the_claim_leaves_nothing(stage: AgentStage) -> None:
    steps = HaltingSteps("claim", "before")
    await stage.start(steps)
    await stage.build()
    await steps.halted.wait()
    await stage.crash()
    agent = await stage.start()
    assert agent.node
    report = await stage.conductor.hears(ReportHost, lambda report: report.usage.started_at > 0)
    assert report.usage.used["VCPU"] == 0


async def test_a_partial_guest_is_removed_and_made_again(stage: AgentStage) -> None:
    stage.fake = FakeSettings(spawn_delay=1000.0)
    steps = HaltingSteps()
    await stage.start(steps)
    await stage.build()
    await stage.conductor.hears(MaySpawn)
    while stage.events() != ["spawn_begun"]:
        await stage.driver.guests()
        await stage.turn()
    await stage.crash()
    stage.fake = FakeSettings()
    await stage.start()
    await stage.conductor.hears(Built)
    assert stage.events() == ["spawn_begun", "destroyed", "spawn_begun", "spawned"]
    # It had been granted, so it need not ask whether it may build.
    assert len(stage.conductor.all(MayBuild)) == 1
    assert len(stage.conductor.all(MaySpawn)) == 2


async def test_a_partial_guest_of_an_attempt_given_up_meanwhile_is_undone(stage: AgentStage) -> None:
    stage.fake = FakeSettings(spawn_delay=1000.0)
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MaySpawn)
    while stage.events() != ["spawn_begun"]:
        await stage.turn()
    await stage.crash()
    stage.fake = FakeSettings()
    stage.conductor.may_spawn = False
    await stage.start()
    await stage.conductor.hears(AttemptFailed)
    assert stage.events() == ["spawn_begun", "destroyed"]


async def test_built_is_told_again_after_a_restart(stage: AgentStage) -> None:
    stage.conductor.silent = {Built}
    await stage.start()
    await stage.build()
    first = await stage.conductor.hears(Built)
    await stage.crash()
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 2)
    assert replace(stage.conductor.all(Built)[1], incarnation=first.incarnation) == first
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_failure_is_told_again_after_a_restart(stage: AgentStage) -> None:
    stage.conductor.silent = {AttemptFailed}
    stage.fake = FakeSettings(failures=(FailureRule(operation="spawn"),))
    await stage.start()
    await stage.build()
    first = await stage.conductor.hears(AttemptFailed)
    await stage.crash()
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(AttemptFailed)) == 2)
    assert replace(stage.conductor.all(AttemptFailed)[1], incarnation=first.incarnation) == first


async def test_what_was_acknowledged_is_not_told_again(stage: AgentStage) -> None:
    # A call that waits for its answer on a busy machine is not made again.
    stage.settings = replace(stage.settings, call_timeout_seconds=PATIENCE)
    agent = await stage.start()
    uuid = await stage.build()
    await stage.conductor.hears(Built)

    async def knows() -> bool:
        record = agent._journal.attempts.get(uuid)
        return record is not None and 1 in record.open and record.open[1].acknowledged

    await eventually(knows, "the answer has come")
    await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)
    await stage.agent.stop()
    await stage.start()
    await stage.conductor.hears(
        ReportHost, lambda report: report.usage.started_at > stage.conductor.all(ReportHost)[0].usage.started_at
    )
    assert len(stage.conductor.all(Built)) == 1
    assert stage.conductor.all(ReportHost)[-1].usage.servers == 1


async def test_a_stop_lets_the_hypervisor_finish(stage: AgentStage) -> None:
    stage.fake = FakeSettings(spawn_delay=0.02)
    await stage.start()
    await stage.build()
    await stage.conductor.hears(MaySpawn)
    while stage.events() != ["spawn_begun"]:
        await stage.turn()
    await stage.agent.stop()
    assert stage.events() == ["spawn_begun", "spawned"]
    await stage.start()
    await stage.conductor.hears(Built)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_guest_that_the_journal_does_not_know_is_counted_and_left_alone(stage: AgentStage) -> None:
    before = FakeDriver(stage.directory, HOST)
    made = instance(7)
    await before.spawn(made, 1, made.flavor.resources())
    before.close()
    await stage.start()
    report = await stage.conductor.hears(ReportHost)
    assert (report.usage.used["VCPU"], report.usage.servers) == (1, 1)
    await stage.build(1)
    await stage.conductor.hears(Built)
    assert "destroyed" not in stage.events()


async def test_the_node_keeps_its_identity(stage: AgentStage) -> None:
    agent = await stage.start()
    node = agent.node
    await stage.crash()
    assert (await stage.start()).node == node


async def test_two_agents_cannot_share_a_directory(stage: AgentStage) -> None:
    await stage.start()
    with pytest.raises(Misconfigured, match="another agent"):
        await stage.start()


async def test_a_directory_of_another_host_is_refused(stage: AgentStage) -> None:
    await stage.start()
    await stage.crash()
    other = Agent(stage.settings, CELL, "host-2", stage.directory, stage.driver, stage.transport, Clock())
    with pytest.raises(Misconfigured, match="belongs to host 'host-1'"):
        await other.start()


async def test_a_torn_last_line_is_left_out(stage: AgentStage) -> None:
    stage.conductor.silent = {Built}
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    await stage.crash()
    path = stage.directory / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-7])  # the end of the entry "built"
    stage.conductor.silent = set()
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(Built)) == 2)
    assert stage.events() == ["spawn_begun", "spawned"]


async def test_a_line_damaged_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_FILE
    journal = Journal(path, Flusher())
    journal.open()
    for attempt in (1, 2, 3):
        journal.record(SpawnGranted(instance=uuid_of(1), attempt=attempt))
    journal.close()
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\0" * 20, *lines[2:]]))
    with pytest.raises(Misconfigured, match="line 2"):
        Journal(path, Flusher()).open()
