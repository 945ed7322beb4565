"""What a cell's hosts are told when the level above misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.cell_conductor.hosts import Hosts
from skep.cell_conductor.parts import Parts
from skep.config.sections import ConductorSettings
from skep.database.cell.tables import metadata
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError
from skep.domain.hosts import AgentIdentity, HostUsage
from skep.domain.ids import CellUuid, Incarnation, NodeUuid
from skep.domain.resources import Inventory
from skep.messages.to_cell_conductor import RegisterAgent, ReportHost
from skep.messages.to_scheduler import UpdateHostState, UpdateHostStateReply
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

NODES = tuple(NodeUuid(f"node-{number}") for number in range(3))


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    database = Database(tmp_path / "cell1.db", readers=1)
    metadata.create_all(database.engine)
    transport, clock = MemoryTransport(), Clock()
    yield Parts(
        owner=Incarnation("me"),
        cell=Cell(uuid=CellUuid("c"), name="cell1"),
        database=database,
        transport=transport,
        above=transport,
        clock=clock,
        steps=Steps(Metrics()),
        notifier=Notifier(clock),
        settings=ConductorSettings(),
    )
    await database.close()


def report_of(node: NodeUuid) -> ReportHost:
    usage = HostUsage(host=f"host-{node}", inventory={"VCPU": Inventory(total=4)}, used={})
    return ReportHost(node=node, incarnation=1, seq=1, usage=usage)


async def test_every_report_of_a_batch_is_answered_whatever_the_scheduler_says(parts: Parts) -> None:
    async def one_answer_too_few(message: UpdateHostState, _context: RequestContext | None) -> UpdateHostStateReply:
        assert message.reports
        return UpdateHostStateReply(answers=(), epoch="e")

    subscription = await parts.above.serve(SCHEDULER, {UpdateHostState: one_answer_too_few})
    hosts = Hosts(parts)
    for node in NODES:
        identity = AgentIdentity(node=node, host=f"host-{node}", process=Incarnation("p"))
        await hosts.register(RegisterAgent(identity=identity), None)
    hosts.reporting.start()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(hosts.report(report_of(node), None) for node in NODES), return_exceptions=True)
    assert [type(answer) for answer in answers] == [SkepError] * len(NODES)
    await hosts.reporting.stop()
    await subscription.close()
