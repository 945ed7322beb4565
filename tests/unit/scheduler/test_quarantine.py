"""Garbage in a backend: what nobody understands counts as unknown, and is told again; everything else goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.domain.builds import NotReady, Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import (
    AggregatePage,
    AssertClaims,
    GetHostStates,
    HostReport,
    ListClaims,
    ListNamespaces,
    Member,
    PublishOperatorState,
    SelectDestinations,
    Slot,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat, BeatReply
from skep.placement.settings import SchedulerSettings
from skep.scheduler.records import AGGREGATES, BEATS, CELLS, COMPUTE, GROUPS, HEARING, KINDS, OPERATOR, encode
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Key, Published, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport
from tests.support.samples import examples

ONE, TWO = CellUuid("cell-1"), CellUuid("cell-2")
NODES = (NodeUuid("n0"), NodeUuid("n1"))
CELL_OF = dict(zip(NODES, (ONE, TWO), strict=True))
GROUP = GroupUuid("group-1")


class Cells:
    """Two cells of one host each, and schedulers that share a backend."""

    def __init__(self, usage: Any, spec: Any) -> None:
        self.backend = MemoryBackend()
        self.transport = MemoryTransport()
        self.usage, self.spec = usage, spec
        self.services: list[SchedulerService] = []
        self.seq = 0

    async def ready(self, schedulers: int = 1) -> None:
        for _ in range(schedulers):
            service = SchedulerService(self.transport, self.backend, SchedulerSettings(), Clock())
            await service.start()
            self.services.append(service)
        await self.publish()
        for node, cell in CELL_OF.items():
            epoch = (await self.beat(cell)).epoch
            await self.call(AssertClaims(cell=cell, epoch=epoch, claims=()))
            await self.report(node)
        await self.settle()

    async def publish(self, of: tuple[CellUuid, ...] = (ONE, TWO)) -> None:
        there = {node: cell for node, cell in CELL_OF.items() if cell in of}
        wishes = tuple(HostIntent(node=node, host=f"h-{node}", cell=cell) for node, cell in there.items())
        cells = tuple(Cell(uuid=cell, name=cell) for cell in of)
        zone = AggregatePage(id=1, hosts=("h-n0", "h-n1"), metadata={"availability_zone": "east"})
        await self.call(PublishOperatorState(hosts=wishes, aggregates=(zone,), cells=cells))

    async def beat(self, cell: CellUuid) -> BeatReply:
        heard = tuple(node for node in NODES if CELL_OF[node] == cell)
        reply: BeatReply = await self.call(Beat(cell=cell, conductor=f"of-{cell}", heard=heard))
        return reply

    async def report(self, node: NodeUuid) -> Any:
        self.seq += 1
        usage = self.usage(f"h-{node}")
        report = HostReport(node=node, cell=CELL_OF[node], incarnation=1, seq=self.seq, usage=usage)
        return (await self.call(UpdateHostState(reports=(report,)))).answers[0]

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def settle(self) -> None:
        for service in self.services:
            await service._mirror.catch_up()  # what its own task does some turns of the loop later

    async def select(self, instance: str, **facts: Any) -> Any:
        await self.settle()
        spec = self.spec(**{name: facts.pop(name) for name in ("group", "availability_zone") if name in facts})
        message = SelectDestinations(spec=spec, members=(Member(InstanceUuid(instance), 1),), **facts)
        return (await self.call(message)).decisions[0]

    async def spoil(self, namespace: str, name: str, body: bytes = b"\x00garbage") -> None:
        """Have something that is no scheduler write a record."""
        key = Key(namespace, name)
        held = {record.key: record.generation for record in (await self.backend.snapshot()).records}
        write = Write(key=key, expected=held.get(key, 0), body=body)
        assert isinstance((await self.backend.publish((write,)))[0], Published)
        await self.settle()

    async def quarantined(self) -> set[tuple[str, str]]:
        reply = await self.call(ListNamespaces())
        return {(one.namespace, one.key) for one in reply.quarantined}


@pytest.fixture
async def cells(usage: Any, spec: Any) -> AsyncIterator[Cells]:
    cells = Cells(usage, spec)
    yield cells
    for service in cells.services:
        await service.stop()


def claim_of(instance: str, node: NodeUuid, vcpus: int = 1) -> Claim:
    return Claim(instance=InstanceUuid(instance), attempt=1, node=node, resources={"VCPU": vcpus})


async def test_a_lost_record_of_a_host_is_no_candidate_until_its_claims_are_told_again(cells: Cells) -> None:
    await cells.ready(schedulers=2)
    assert isinstance(await cells.select("a", cell=ONE), Placed)
    epoch = (await cells.beat(ONE)).epoch
    await cells.spoil(COMPUTE, "n0")
    assert await cells.quarantined() == {(COMPUTE, "n0")}
    assert isinstance(await cells.select("b"), Placed), "the other host goes on"
    assert isinstance(await cells.select("c", cell=ONE), NotReady)
    assert (await cells.report(NODES[0])).error is None
    assert isinstance(await cells.select("c", cell=ONE), NotReady), "its report does not say what was claimed on it"
    reply = await cells.beat(ONE)
    assert (reply.nodes, reply.groups) == ((NODES[0],), ())
    assert (await cells.beat(TWO)).nodes == ()
    told = AssertClaims(cell=ONE, epoch=epoch, claims=(claim_of("a", NODES[0], vcpus=16),), nodes=reply.nodes)
    assert (await cells.call(told)).refused == (), "nobody can have claimed there meanwhile"
    await cells.settle()
    assert (await cells.beat(ONE)).nodes == ()
    assert await cells.quarantined() == set()
    assert [holding.key.instance for holding in (await cells.call(ListClaims())).claims] == ["a", "b"]
    assert not isinstance(await cells.select("c", cell=ONE), Placed), "what was told again counts"


async def test_a_cell_completes_records_of_its_own_nodes_only(cells: Cells) -> None:
    await cells.ready()
    await cells.spoil(COMPUTE, "n0")
    epoch = await cells.backend.epoch()
    await cells.call(AssertClaims(cell=TWO, epoch=epoch, claims=(), nodes=NODES))
    assert (await cells.beat(ONE)).nodes == (NODES[0],)


async def test_a_lost_group_takes_no_member_until_every_cell_has_told_its_own(cells: Cells, group: Any) -> None:
    await cells.ready(schedulers=2)
    rule = group("anti-affinity")
    placed = await cells.select("a", group=rule)
    assert isinstance(placed, Placed)
    epoch = await cells.backend.epoch()
    await cells.spoil(GROUPS, rule.uuid)
    assert isinstance(await cells.select("b", group=rule), NotReady)
    assert isinstance(await cells.select("alone"), Placed), "who is in no group goes on"
    slot = Slot(key=ClaimKey(InstanceUuid("a"), 1, placed.node, rule.uuid), policy="anti-affinity")
    for cell in (ONE, TWO):
        reply = await cells.beat(cell)
        assert reply.groups == (rule.uuid,)
        slots = (slot,) if cell == placed.cell else ()
        await cells.call(AssertClaims(cell=cell, epoch=epoch, claims=(), slots=slots, nodes=(), groups=reply.groups))
        await cells.settle()
        assert (await cells.beat(cell)).groups == ()
    other = await cells.select("b", group=rule)
    assert isinstance(other, Placed)
    assert other.node != placed.node, "the slot that was told again counts"


async def test_a_slot_that_is_freed_meanwhile_does_not_make_a_lost_group_an_empty_one(cells: Cells, group: Any) -> None:
    await cells.ready()
    rule = group("anti-affinity")
    await cells.spoil(GROUPS, rule.uuid)
    epoch = await cells.backend.epoch()
    slot = Slot(key=ClaimKey(InstanceUuid("a"), 1, NODES[0], rule.uuid), policy="anti-affinity")
    told = AssertClaims(cell=ONE, epoch=epoch, claims=(), slots=(slot,), nodes=(), groups=(rule.uuid,))
    await cells.call(told)
    assert isinstance(await cells.select("b", group=rule), NotReady), "the second cell has not told yet"
    assert (await cells.beat(TWO)).groups == (rule.uuid,)


async def test_a_lost_group_goes_on_when_the_cell_that_had_not_told_is_removed(cells: Cells, group: Any) -> None:
    await cells.ready()
    rule = group("anti-affinity")
    await cells.spoil(GROUPS, rule.uuid)
    told = AssertClaims(cell=ONE, epoch=await cells.backend.epoch(), claims=(), nodes=(), groups=(rule.uuid,))
    await cells.call(told)
    await cells.settle()
    assert (await cells.beat(ONE)).groups == (), "it has told, and the second cell has not"
    await cells.publish((ONE,))
    await cells.settle()
    assert (await cells.beat(ONE)).groups == (rule.uuid,)
    await cells.call(told)
    assert isinstance(await cells.select("b", group=rule), Placed)
    assert (await cells.beat(ONE)).groups == ()


async def test_pages_of_a_group_count_when_the_last_of_them_came(cells: Cells, group: Any) -> None:
    await cells.ready()
    rule = group("anti-affinity")
    await cells.spoil(GROUPS, rule.uuid)
    epoch = await cells.backend.epoch()
    for more in (True, False):
        told = AssertClaims(cell=ONE, epoch=epoch, claims=(), nodes=(), groups=(rule.uuid,), more=more)
        await cells.call(told)
        assert (await cells.beat(ONE)).groups == ((rule.uuid,) if more else ())


async def test_what_is_told_anyway_heals_by_itself(cells: Cells) -> None:
    await cells.ready()
    await cells.spoil(OPERATOR, "n0")
    await cells.spoil(AGGREGATES, "1")
    await cells.spoil(BEATS, f"{ONE}/of-{ONE}")
    await cells.spoil(HEARING, f"{ONE}/of-{ONE}/0")
    assert len(await cells.quarantined()) == 4
    assert isinstance(await cells.select("a", cell=TWO), Placed)
    await cells.publish()
    await cells.beat(ONE)
    assert await cells.quarantined() == set()
    assert isinstance(await cells.select("b", cell=ONE, availability_zone="east"), Placed)


async def test_a_lost_cell_is_asked_for_everything_again(cells: Cells) -> None:
    await cells.ready()
    await cells.spoil(CELLS, ONE)
    assert isinstance(await cells.select("a", cell=TWO), Placed)
    await cells.publish()
    reply = await cells.beat(ONE)
    assert not reply.asserted
    assert isinstance(await cells.select("b", cell=ONE), NotReady)
    await cells.call(AssertClaims(cell=ONE, epoch=reply.epoch, claims=()))
    assert isinstance(await cells.select("b", cell=ONE), Placed)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [(AGGREGATES, "no number"), (HEARING, "cell/run/no number"), (BEATS, "no slash"), (COMPUTE, ""), ("unknown", "x")],
)
async def test_names_that_are_none_harm_nobody(cells: Cells, namespace: str, name: str) -> None:
    await cells.ready()
    epoch = await cells.backend.epoch()
    values = {
        AGGREGATES: AggregatePage(id=1, hosts=()),
        HEARING: {"version": 1, "nodes": []},
        BEATS: {"at": 1, "pages": [1]},
        COMPUTE: {"cell": ONE},
    }
    await cells.spoil(namespace, name, encode(epoch, 1, values.get(namespace, {})))
    assert isinstance(await cells.select("a"), Placed)
    late = SchedulerService(MemoryTransport(), cells.backend, SchedulerSettings(), Clock())
    await late.start()
    await late.stop()


async def test_a_value_that_no_column_can_hold_is_quarantined(cells: Cells) -> None:
    await cells.ready()
    record = next(one for one in (await cells.backend.snapshot()).records if one.key == Key(COMPUTE, "n0"))
    body = record.body.replace(b'"total":4', b'"total":' + b"9" * 40)
    generation = record.generation
    body = body.replace(f",{generation},".encode(), f",{generation + 1},".encode(), 1)
    assert body != record.body
    await cells.spoil(COMPUTE, "n0", body)
    assert await cells.quarantined() == {(COMPUTE, "n0")}
    assert isinstance(await cells.select("a", cell=TWO), Placed)


async def test_an_intent_under_the_key_of_another_node_is_quarantined(cells: Cells) -> None:
    await cells.ready()
    record = next(one for one in (await cells.backend.snapshot()).records if one.key == Key(OPERATOR, "n0"))
    stray = HostIntent(node=NodeUuid("n1"), host="h-n1", cell=ONE, disabled=True)
    await cells.spoil(OPERATOR, "n0", encode(await cells.backend.epoch(), record.generation + 1, stray))
    assert await cells.quarantined() == {(OPERATOR, "n0")}
    assert isinstance(await cells.select("a", cell=TWO), Placed), "the other node is as it was"
    await cells.publish()
    assert await cells.quarantined() == set()
    assert isinstance(await cells.select("b", cell=ONE), Placed)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    namespace=st.sampled_from(sorted(KINDS)),
    name=st.sampled_from(("n0", "1", "cell-1", "x/y/0")),
    body=st.binary(max_size=80),
)
async def test_no_bytes_at_all_stop_a_scheduler(usage: Any, spec: Any, namespace: str, name: str, body: bytes) -> None:
    cells = Cells(usage, spec)
    await cells.ready()
    await cells.spoil(namespace, name, body)
    assert isinstance(await cells.select("a", cell=TWO), Placed)
    assert len((await cells.call(GetHostStates(nodes=(NODES[1],)))).hosts) == 1
    for service in cells.services:
        await service.stop()
