"""The operator's state in parts, and claims and slots in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.database.api.operator_state import PAGE_HOSTS, PAGE_MEMBERS, parts
from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim, ClaimKey
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest
from skep.domain.ids import CellUuid, GroupUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import (
    AggregatePage,
    AssertClaims,
    ListClaims,
    OperatorStatePart,
    PublishOperatorState,
    Slot,
)
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Changes, Cursor, CursorTooOld
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.codec import encode
from skep.transport.memory import MemoryTransport

CELL = CellUuid("cell-1")
ONE_MESSAGE = 1024 * 1024


def wish_of(number: int) -> HostIntent:
    return HostIntent(node=NodeUuid(f"{number:08d}"), host=f"host-{number:08d}.example", cell=CELL)


def state_of(hosts: int, *aggregates: AggregatePage) -> PublishOperatorState:
    wishes = tuple(wish_of(number) for number in range(hosts))
    return PublishOperatorState(hosts=wishes, aggregates=aggregates, cells=(Cell(uuid=CELL, name="one"),))


class One:
    """A scheduler alone."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.service = SchedulerService(self.transport, self.backend, SchedulerSettings(), Clock())

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def publish(self, *messages: PublishOperatorState) -> None:
        for message in messages:
            await self.call(message)

    @property
    def mapped(self) -> int:
        return int(self.service.states.table.mapped.sum())


@pytest.fixture
async def one() -> AsyncIterator[One]:
    one = One()
    await one.service.start()
    yield one
    await one.service.stop()


async def test_parts_say_the_same_as_the_whole_and_each_fits_a_message(one: One) -> None:
    members = tuple(f"host-{number:08d}.example" for number in range(2 * PAGE_MEMBERS + 1))
    large = [
        AggregatePage(
            id=7, hosts=members[start : start + PAGE_MEMBERS], metadata={"availability_zone": "east"}, page=page
        )
        for page, start in enumerate(range(0, len(members), PAGE_MEMBERS))
    ]
    small = [AggregatePage(id=number, hosts=("host-00000001.example",)) for number in range(10, 60)]
    messages = parts(state_of(2 * PAGE_HOSTS + 1, *large, *small))
    assert max(len(encode(message, None)) for message in messages) < ONE_MESSAGE
    assert messages[-1].cells
    await one.publish(*messages)
    table = one.service.states.table
    assert one.mapped == 2 * PAGE_HOSTS + 1
    assert len(table.aggregates[7].hosts) == len(members)
    assert sorted(table.aggregates) == [7, *range(10, 60)]
    row = table.row_of[NodeUuid(f"{PAGE_HOSTS:08d}")]
    assert table.zone_of(row) == "east"


async def test_a_part_removes_what_it_does_not_name_and_nothing_else(one: One) -> None:
    state = state_of(10, AggregatePage(id=1, hosts=()), AggregatePage(id=2, hosts=("x",)))
    await one.publish(*parts(state))
    fewer = OperatorStatePart(kind="hosts", after="00000002", until="00000005")
    await one.publish(PublishOperatorState(hosts=(wish_of(4),), aggregates=(), cells=(), part=fewer))
    assert one.mapped == 8
    names = one.service.states.names
    assert names.of("operator") == [f"{number:08d}" for number in (0, 1, 2, 4, 6, 7, 8, 9)]
    gone = OperatorStatePart(kind="hosts", names=("00000009",))
    await one.publish(PublishOperatorState(hosts=(), aggregates=(), cells=(), part=gone))
    assert one.mapped == 7
    assert sorted(names.of("aggregates")) == ["1", "2"]
    assert names.of("cells") == [CELL]


async def test_what_is_published_again_is_not_written_again(one: One) -> None:
    messages = parts(state_of(10, AggregatePage(id=1, hosts=("x",))))
    await one.publish(*messages)
    before = (await one.backend.snapshot()).records
    await one.publish(*messages)
    assert (await one.backend.snapshot()).records == before


class Deaf(MemoryBackend):
    """Tells nobody who waits for changes; who looks is answered."""

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        if wait > 0:
            await asyncio.Event().wait()
        return await super().changes(cursor)


async def test_a_scheduler_that_has_not_heard_of_another_epoch_writes_into_it_all_the_same() -> None:
    transport, records = MemoryTransport(), MemoryBackend()
    deaf = SchedulerService(transport, Deaf(records=records.records), SchedulerSettings(), Clock())
    await deaf.start()
    try:
        await transport.call(SCHEDULER, state_of(3))
        records.wipe()
        await transport.call(SCHEDULER, state_of(3))
        told = {record.key.namespace for record in (await records.snapshot()).records}
        assert {"operator", "cells"} <= told
    finally:
        await deaf.stop()


async def test_claims_and_slots_are_listed_page_by_page_each_once(one: One) -> None:
    await one.publish(state_of(4))
    epoch = await one.backend.epoch()
    claims = tuple(
        Claim(
            instance=InstanceUuid(f"i{number:03d}"),
            attempt=1 + number % 3,
            node=NodeUuid(f"{number % 4:08d}"),
            resources={"VCPU": 1},
        )
        for number in range(50)
    )
    slots = tuple(
        Slot(
            key=ClaimKey(claim.instance, claim.attempt, claim.node, GroupUuid(f"g{number % 2}")), policy="soft-affinity"
        )
        for number, claim in enumerate(claims)
    )
    await one.call(AssertClaims(cell=CELL, epoch=epoch, claims=claims, slots=slots))
    whole = await one.call(ListClaims())
    assert (len(whole.claims), len(whole.slots), whole.next_marker) == (50, 50, None)
    found: list[Any] = []
    marker, pages = None, 0
    while True:
        page = await one.call(ListClaims(marker=marker, limit=7))
        found += [*page.claims, *page.slots]
        pages += 1
        marker = page.next_marker
        if marker is None:
            break
    assert pages == 15
    assert found == [*whole.claims, *whole.slots]
    for limit in (0, 2001):
        with pytest.raises(BadRequest, match="limit"):
            await one.call(ListClaims(limit=limit))


async def test_only_the_last_page_of_an_assertion_makes_a_cell_asserted(one: One) -> None:
    await one.publish(state_of(1))
    epoch = await one.backend.epoch()
    await one.call(AssertClaims(cell=CELL, epoch=epoch, claims=(), more=True))
    assert not one.service.states.asserted(CELL)
    await one.call(AssertClaims(cell=CELL, epoch=epoch, claims=()))
    assert one.service.states.asserted(CELL)
