"""What a cell may say to schedulers: of itself everything, of others nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.errors import Forbidden, SkepError
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import (
    AssertClaims,
    GetHostStates,
    HostReport,
    ListClaims,
    Member,
    PublishOperatorState,
    ReleaseClaims,
    SelectDestinations,
    Slot,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER, scheduler_for
from skep.transport.memory import MemoryTransport

MINE, OTHER, NEW = CellUuid("mine"), CellUuid("other"), CellUuid("new")
INSTANCE = InstanceUuid("i")
HOSTS = tuple(HostIntent(node=NodeUuid(f"n-{cell}"), host=f"h-{cell}", cell=cell) for cell in (MINE, OTHER))
FOREIGN = ClaimKey(INSTANCE, 1, NodeUuid("n-other"))


@pytest.fixture
async def transport() -> AsyncIterator[MemoryTransport]:
    transport, backend = MemoryTransport(), MemoryBackend()
    service = SchedulerService(transport, backend, SchedulerSettings(), Clock())
    await service.start()
    cells = tuple(Cell(uuid=cell, name=cell) for cell in (MINE, OTHER))
    await transport.call(SCHEDULER, PublishOperatorState(hosts=HOSTS, aggregates=(), cells=cells))
    yield transport
    await service.stop()


def report(usage: Any, cell: CellUuid, node: str) -> HostReport:
    return HostReport(node=NodeUuid(node), cell=cell, incarnation=1, seq=1, usage=usage(node.replace("n-", "h-")))


def claim(node: str) -> Claim:
    return Claim(instance=INSTANCE, attempt=1, node=NodeUuid(node), role="build", resources={"VCPU": 1})


async def test_a_cell_says_all_that_it_has_to_say(transport: MemoryTransport, usage: Any, spec: Any) -> None:
    to = scheduler_for(MINE)
    epoch = (await transport.call(to, Beat(cell=MINE, heard=(NodeUuid("n-mine"),)))).epoch
    asserted = await transport.call(to, AssertClaims(cell=MINE, epoch=epoch, claims=(claim("n-mine"),)))
    assert asserted.refused == ()
    reported = await transport.call(to, UpdateHostState(reports=(report(usage, MINE, "n-mine"),)))
    assert [answer.error for answer in reported.answers] == [None]
    key = ClaimKey(INSTANCE, 1, NodeUuid("n-mine"))
    assert (await transport.call(to, ReleaseClaims(claims=(key,)))).released == 1
    members = (Member(INSTANCE, 2),)
    decided = await transport.call(to, SelectDestinations(spec=spec(), members=members, cell=MINE))
    assert decided.decisions[0].node == "n-mine"  # type: ignore[union-attr]


async def test_a_cell_that_is_new_is_heard_at_once(transport: MemoryTransport) -> None:
    assert not (await transport.call(scheduler_for(NEW), Beat(cell=NEW))).asserted


@pytest.mark.parametrize(
    "message",
    [
        Beat(cell=OTHER),
        AssertClaims(cell=OTHER, epoch="e", claims=()),
        AssertClaims(cell=MINE, epoch="e", claims=(claim("n-mine"), claim("n-other"))),
        AssertClaims(cell=MINE, epoch="e", claims=(), slots=(Slot(key=FOREIGN, policy="affinity"),)),
        ReleaseClaims(claims=(FOREIGN,)),
        GetHostStates(),
        GetHostStates(cell=OTHER),
        GetHostStates(cell=MINE, nodes=(NodeUuid("n-other"),)),
    ],
)
async def test_what_speaks_of_another_cell_is_forbidden(transport: MemoryTransport, message: Any) -> None:
    with pytest.raises(Forbidden, match="cell mine may not name"):
        await transport.call(scheduler_for(MINE), message)


async def test_a_cell_selects_only_within_itself(transport: MemoryTransport, spec: Any) -> None:
    members = (Member(INSTANCE, 1),)
    for cell in (None, OTHER):
        with pytest.raises(Forbidden, match="may not name"):
            await transport.call(scheduler_for(MINE), SelectDestinations(spec=spec(), members=members, cell=cell))
    freeing = SelectDestinations(spec=spec(), members=members, cell=MINE, supersedes_above=0)
    with pytest.raises(Forbidden, match="supersedes_above"):
        await transport.call(scheduler_for(MINE), freeing)


async def test_reports_of_another_cell_are_forbidden_and_those_of_its_nodes_refused_one_by_one(
    transport: MemoryTransport, usage: Any
) -> None:
    with pytest.raises(Forbidden):
        await transport.call(scheduler_for(MINE), UpdateHostState(reports=(report(usage, OTHER, "n-other"),)))
    reports = (report(usage, MINE, "n-other"), report(usage, MINE, "n-mine"))
    reply = await transport.call(scheduler_for(MINE), UpdateHostState(reports=reports))
    assert [answer.error is None for answer in reply.answers] == [False, True]


async def test_a_cell_reads_the_states_of_its_own_hosts_alone(transport: MemoryTransport, usage: Any) -> None:
    for cell in (MINE, OTHER):
        await transport.call(scheduler_for(cell), UpdateHostState(reports=(report(usage, cell, f"n-{cell}"),)))
    everywhere = await transport.call(SCHEDULER, GetHostStates())
    assert [state.node for state in everywhere.hosts] == ["n-mine", "n-other"]
    found = await transport.call(scheduler_for(MINE), GetHostStates(cell=MINE))
    assert [state.node for state in found.hosts] == ["n-mine"]


async def test_a_cell_reads_no_claims(transport: MemoryTransport) -> None:
    with pytest.raises(SkepError, match="does not accept"):
        await transport.call(scheduler_for(MINE), ListClaims())
