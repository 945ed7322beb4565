"""Hard topology spread holds among the members that several schedulers place at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from skep.domain.builds import Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.groups import GroupRule, SpreadConstraint
from skep.domain.ids import GroupUuid
from skep.messages.to_scheduler import AggregatePage, PublishOperatorState
from tests.functional.schedulers.crowd import CELLS, Crowd

ZONES = ("east", "north", "west")
GROUP = GroupRule(
    uuid=GroupUuid("g"), policy="soft-affinity", spread=(SpreadConstraint(key="zone", max_skew=1, hard=True),)
)


def zone_of(crowd: Crowd, node: str) -> str:
    return ZONES[[str(one) for one in crowd.nodes].index(node) % len(ZONES)]


@pytest.fixture(params=range(3))
async def crowd(request: pytest.FixtureRequest) -> AsyncIterator[Crowd]:
    crowd = Crowd(seed=request.param, hosts=9, vcpus=16)
    await crowd.start(2)
    hosts = tuple(HostIntent(node=node, host=f"host-{node}", cell=crowd.cell_of(node)) for node in crowd.nodes)
    aggregates = tuple(
        AggregatePage(
            id=number,
            hosts=tuple(f"host-{node}" for node in crowd.nodes[number :: len(ZONES)]),
            metadata={"availability_zone": zone},
        )
        for number, zone in enumerate(ZONES)
    )
    cells = tuple(Cell(uuid=cell, name=cell) for cell in CELLS)
    await crowd.call(PublishOperatorState(hosts=hosts, aggregates=aggregates, cells=cells))
    await crowd.heal()
    yield crowd
    await crowd.close()


async def test_members_placed_by_two_schedulers_at_once_keep_the_skew(crowd: Crowd) -> None:
    async def caller(number: int) -> None:
        for turn in range(6):
            (decision,) = await crowd.create((f"i-{number}-{turn}",), group=GROUP)
            assert isinstance(decision, Placed)

    await asyncio.gather(*(caller(number) for number in range(4)))
    placed = Counter(zone_of(crowd, row.node) for row in crowd.book.values())
    assert dict(placed) == dict.fromkeys(ZONES, 8)
    slots = (await crowd.contents())["groups", GROUP.uuid].slots
    assert Counter(zone_of(crowd, slot.node) for slot in slots) == placed


async def test_a_zone_that_another_scheduler_took_meanwhile_is_not_taken_too(crowd: Crowd) -> None:
    one, other = crowd.processes
    crowd.processes = [one]
    gate = asyncio.Event()
    one.gates.append(gate)
    held = asyncio.Event()

    async def wait(_writes: object) -> None:
        held.set()
        await gate.wait()

    one.backend.before = wait
    mine = asyncio.create_task(crowd.create(("mine",), group=GROUP))
    await held.wait()
    crowd.processes = [other]
    for name in ("first", "second"):
        await crowd.create((name,), group=GROUP)
    gate.set()
    await mine
    crowd.processes = [one, other]
    assert Counter(zone_of(crowd, row.node) for row in crowd.book.values()) == dict.fromkeys(ZONES, 1)
