from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from skep.compute.drivers.fake import FailureRule, FakeSettings
from skep.compute.reports import KEPT_KEYS, Reports
from skep.contracts.eventually import PATIENCE
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable, Unreachable
from skep.domain.ids import GroupUuid
from skep.messages.base import Cast
from skep.messages.to_cell_conductor import AttemptFailed, Heartbeat, MayBuild, RegisterAgent, ReportHost
from skep.messages.to_compute import ReportHostNow
from skep.transport.base import Address, cell_conductor, compute
from skep.transport.memory import MemoryTransport
from tests.support.agents import CELL, HOST, QUICK, AgentStage, uuid_of


async def test_it_registers_until_its_node_is_mapped_then_reports(stage: AgentStage) -> None:
    stage.conductor.mapped = False
    agent = await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(RegisterAgent)) >= 2)
    assert not stage.conductor.all(ReportHost)
    stage.conductor.mapped = True
    report = await stage.conductor.hears(ReportHost)
    assert (report.node, report.incarnation, report.seq) == (agent.node, 1, 1)
    assert len({asked.identity.process for asked in stage.conductor.all(RegisterAgent)}) == 1


async def test_a_report_says_what_the_host_offers(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(
        QUICK, reserved_host_memory_mb=512, reserved_host_disk_mb=1500, reserved_host_cpus=2, cpu_allocation_ratio=2.0
    )
    await stage.start()
    usage = (await stage.conductor.hears(ReportHost)).usage
    assert {name: one.capacity for name, one in usage.inventory.items()} == {
        "VCPU": 28,
        "MEMORY_MB": 32768 - 512,
        "DISK_GB": 498,
    }
    assert usage.used == {"VCPU": 0, "MEMORY_MB": 0, "DISK_GB": 0}
    assert (usage.host, usage.hypervisor_type) == (HOST, "fake")


async def test_claims_that_nobody_takes_are_not_kept_for_ever(stage: AgentStage) -> None:
    agent = await stage.start()
    reports = agent._started.reports
    assert isinstance(reports, Reports)
    for number in range(KEPT_KEYS + 50):
        reports.settle(ClaimKey(uuid_of(number), 1, agent.node))
    assert len(reports._settled) == KEPT_KEYS
    assert (uuid_of(KEPT_KEYS + 49), 1) in reports._settled
    assert (uuid_of(0), 1) not in reports._settled


async def test_its_heart_beats(stage: AgentStage) -> None:
    agent = await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(Heartbeat)) >= 2)
    assert stage.conductor.all(Heartbeat)[0] == Heartbeat(node=agent.node, incarnation=1)


async def test_the_claim_of_a_build_is_settled_with_the_usage_that_counts_it(stage: AgentStage) -> None:
    agent = await stage.start()
    stage.conductor.claims[uuid_of(1), 1] = ClaimKey(uuid_of(1), 1, agent.node)
    await stage.build()
    report = await stage.conductor.hears(ReportHost, lambda report: len(report.settled) == 1)
    assert report.usage.used["VCPU"] == 1
    assert not stage.conductor.claims


async def test_a_report_amid_the_writing_of_a_build_counts_it_once(
    stage: AgentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim would be counted beside it otherwise, and a server could be refused for which there is room."""
    agent = await stage.start()
    written, synced = asyncio.Event(), agent._journal.synced

    async def late() -> None:
        await written.wait()
        await synced()

    monkeypatch.setattr(agent._journal, "synced", late)
    claim = ClaimKey(uuid_of(1), 1, agent.node)
    stage.conductor.claims[uuid_of(1), 1] = claim
    await stage.build()
    report = await stage.conductor.hears(ReportHost, lambda report: report.usage.used["VCPU"] == 1)
    assert report.settled == (claim,)
    assert not stage.conductor.all(MayBuild), "the build is being written down"
    written.set()
    await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)


async def test_a_claim_that_the_answer_shows_is_settled_if_the_host_knows_it(stage: AgentStage) -> None:
    agent = await stage.start()
    await stage.build()
    # Its own first word about the claim goes with the accepted build; what comes later answers the conductor.
    await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1)
    known = ClaimKey(uuid_of(1), 1, agent.node, GroupUuid("44444444-4444-4444-8444-444444444444"))
    unknown = ClaimKey(uuid_of(9), 1, agent.node)
    stage.conductor.claims = {(uuid_of(1), 1): known, (uuid_of(9), 1): unknown}
    await stage.transport.cast(compute(CELL, HOST), ReportHostNow())
    await stage.conductor.hears(ReportHost, lambda report: known in report.settled)
    assert unknown not in {key for report in stage.conductor.all(ReportHost) for key in report.settled}


async def test_a_report_is_repeated_anew_until_it_is_answered(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, call_timeout_seconds=0.005)
    stage.conductor.silent = {ReportHost}
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportHost)) >= 3)
    numbers = [report.seq for report in stage.conductor.all(ReportHost)]
    assert numbers == sorted(set(numbers))


async def test_it_reports_now_and_then_even_if_nothing_changes(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, report_interval_seconds=0.005)
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportHost)) >= 3)


async def test_facts_that_cannot_be_read_leave_the_last_known(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, report_interval_seconds=0.005)
    stage.fake = FakeSettings(failures=(FailureRule(operation="facts", after=1),))
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportHost)) >= 3)
    assert len({report.usage.inventory["VCPU"].total for report in stage.conductor.all(ReportHost)}) == 1


async def test_a_heartbeat_that_cannot_be_sent_is_not_the_last(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, heartbeat_seconds=0.002)
    stage.transport = FlakyTransport()
    await stage.transport.serve(cell_conductor(CELL), stage.conductor.handlers())
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(Heartbeat)) >= 2)


class FlakyTransport(MemoryTransport):
    """Loses the way for the first casts."""

    failures = 3

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("no way to the cell")
        await super().cast(address, message, context)


async def test_a_fenced_agent_stops(stage: AgentStage) -> None:
    stage.conductor.fenced = True
    agent = await stage.start()
    async with asyncio.timeout(PATIENCE):
        await agent.stopped()
    assert agent.fenced


async def test_a_driver_that_does_not_answer_at_the_start_is_said(stage: AgentStage) -> None:
    stage.fake = FakeSettings(failures=(FailureRule(operation="facts", message="no bus"),))
    with pytest.raises(Unavailable, match="no bus"):
        await stage.start()
    # The directory is free again.
    stage.fake = FakeSettings()
    await stage.start()


async def test_the_identity_is_written_down(stage: AgentStage) -> None:
    agent = await stage.start()
    written = json.loads((stage.directory / "identity.json").read_text())
    assert (written["node"], written["host"]) == (agent.node, HOST)


async def test_a_host_of_which_nothing_changed_sends_its_heartbeat_alone(stage: AgentStage) -> None:
    stage.settings = msgspec.structs.replace(QUICK, report_interval_seconds=0.002)
    await stage.start()
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportHost)) == 3)
    repeats = stage.conductor.all(ReportHost)
    assert [report.seq for report in repeats] == [1, 1, 1], "now and then, and then as it was: schedulers write nothing"
    await stage.build()
    await stage.conductor.hears(ReportHost, lambda report: report.usage.servers == 1 and report.seq > 1)


async def test_the_heart_says_which_epoch_knows_the_host_and_another_one_is_told_in_full(stage: AgentStage) -> None:
    await stage.start()
    await stage.conductor.hears(Heartbeat, lambda beat: beat.epoch == "epoch-1")
    stage.conductor.epoch = "epoch-2"
    reports = len(stage.conductor.all(ReportHost))
    await stage.transport.cast(compute(CELL, HOST), ReportHostNow())
    await stage.conductor.until(lambda: len(stage.conductor.all(ReportHost)) > reports)
    assert stage.conductor.all(ReportHost)[-1].seq > 1
    await stage.conductor.hears(Heartbeat, lambda beat: beat.epoch == "epoch-2")


async def test_an_agent_takes_the_number_that_it_is_given(stage: AgentStage) -> None:
    stage.conductor.number = 5
    agent = await stage.start()
    await stage.conductor.hears(ReportHost, lambda report: report.incarnation == 5)
    stage.conductor.number = None
    await stage.conductor.hears(Heartbeat, lambda beat: beat.incarnation == 5)
    assert not agent.fenced


async def test_an_agent_whose_question_is_refused_as_stale_stops_and_undoes_nothing(stage: AgentStage) -> None:
    stage.conductor.stale = {MayBuild}
    agent = await stage.start()
    await stage.build()
    async with asyncio.timeout(PATIENCE):
        await agent.stopped()
    assert agent.fenced
    assert not stage.conductor.all(AttemptFailed)
