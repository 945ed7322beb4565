"""Limits that no record knows of itself hold among schedulers that decide at the same time.

How many servers or builds a host may have, and what its aggregates leave of it, is judged when a host is chosen and
once more on the record that takes the claim.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.builds import NoValidHost, Placed
from skep.domain.cells import Cell, HostIntent
from skep.messages.to_scheduler import AggregatePage, PublishOperatorState
from skep.placement.options import PlacementOptions
from skep.placement.settings import DEFAULT_FILTERS
from tests.functional.schedulers.crowd import CELLS, Crowd

MOST = 3
HOSTS = 4

LIMITS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "servers": (
        {
            "filters": (*DEFAULT_FILTERS, "NumInstancesFilter"),
            "options": PlacementOptions(max_instances_per_host=MOST),
        },
        {},
    ),
    "servers by aggregate": (
        {"filters": (*DEFAULT_FILTERS, "AggregateNumInstancesFilter")},
        {"max_instances_per_host": str(MOST)},
    ),
    "operations": (
        {"filters": (*DEFAULT_FILTERS, "IoOpsFilter"), "options": PlacementOptions(max_io_ops_per_host=MOST)},
        {},
    ),
    "operations by aggregate": (
        {"filters": (*DEFAULT_FILTERS, "AggregateIoOpsFilter")},
        {"max_io_ops_per_host": str(MOST)},
    ),
    "ratio": ({}, {"cpu_allocation_ratio": "0.1875"}),
    "reserve": ({}, {"reserved_host_cpus": "13"}),
}
"""Settings and metadata that let three servers with one CPU onto a host of 16; by what limits them."""


@pytest.fixture(params=LIMITS)
async def crowd(request: pytest.FixtureRequest) -> AsyncIterator[Crowd]:
    settings, metadata = LIMITS[request.param]
    crowd = Crowd(seed=7, hosts=HOSTS, vcpus=16, partition=False, settings=settings)
    await crowd.start(2)
    hosts = tuple(HostIntent(node=node, host=f"host-{node}", cell=crowd.cell_of(node)) for node in crowd.nodes)
    named = tuple(wish.host for wish in hosts)
    aggregates = (AggregatePage(id=1, hosts=named, metadata=metadata), AggregatePage(id=2, hosts=named, metadata={}))
    cells = tuple(Cell(uuid=cell, name=cell) for cell in CELLS)
    await crowd.call(PublishOperatorState(hosts=hosts, aggregates=aggregates, cells=cells))
    await crowd.heal()
    yield crowd
    await crowd.close()


async def servers_by_node(crowd: Crowd) -> Counter[str]:
    return Counter(node for nodes in (await crowd.claimed()).values() for node in nodes)


async def test_two_schedulers_at_once_keep_them(crowd: Crowd) -> None:
    """More is asked for than fits, by many callers, while servers come and go: no record ever holds more."""

    async def caller(number: int) -> None:
        for turn in range(6):
            names = tuple(f"i-{number}-{turn}-{member}" for member in range(crowd.dice.randint(1, 2)))
            await crowd.create(names)
            assert max((await servers_by_node(crowd)).values()) <= MOST
            if crowd.book and crowd.dice.random() < 0.4:
                await crowd.delete(crowd.dice.choice(sorted(crowd.book)))

    await asyncio.gather(*(caller(number) for number in range(6)))
    while isinstance((await crowd.create((f"more-{len(crowd.book)}",)))[0], Placed):
        pass
    assert await servers_by_node(crowd) == dict.fromkeys(crowd.nodes, MOST)
    assert sum(process.conflicts for process in crowd.processes) > 0


async def test_a_place_that_another_scheduler_took_meanwhile_is_not_taken_too(crowd: Crowd) -> None:
    one, other = crowd.processes
    crowd.processes = [one]
    for number in range(HOSTS * MOST - 1):
        await crowd.create((f"i-{number}",))
    for process in (one, other):
        await process.service._mirror.look()
    gate, held = asyncio.Event(), asyncio.Event()
    one.gates.append(gate)

    async def wait(_writes: object) -> None:
        held.set()
        await gate.wait()

    one.backend.before = wait
    late = asyncio.create_task(crowd.create(("late",)))
    await held.wait()
    crowd.processes = [other]
    (quick,) = await crowd.create(("quick",))
    gate.set()
    ((refused,),) = await asyncio.gather(late)
    crowd.processes = [one, other]
    assert isinstance(quick, Placed)
    assert isinstance(refused, NoValidHost)
    assert await servers_by_node(crowd) == dict.fromkeys(crowd.nodes, MOST)
