"""Beats cost what changed: lists of nodes are records of their own, written when they change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest
from skep.domain.hosts import nodes_version
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_scheduler import AssertClaims, GetHostStates, HostReport, PublishOperatorState, UpdateHostState
from skep.messages.to_scheduler_liveness import Beat, BeatReply, HeardPage
from skep.placement.settings import SchedulerSettings
from skep.scheduler.records import BEATS, HEARING
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Epoch, Published, Refusal, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

CELL = CellUuid("cell-1")
NODES = tuple(NodeUuid(f"n{number}") for number in range(4))


class CountingBackend(MemoryBackend):
    """Counts the bytes that are written, by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, list[int]] = {}

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        for write in writes:
            self.written.setdefault(write.key.namespace, []).append(len(write.body))
        return await super().publish(writes, epoch=epoch)


class Schedulers:
    """Some schedulers on one backend, each to be asked by its number, and one cell of four hosts."""

    def __init__(self, usage: Any) -> None:
        self.backend = CountingBackend()
        self.usage = usage
        self.now = 0.0
        self.transports: list[MemoryTransport] = []
        self.services: list[SchedulerService] = []

    async def start(self, number: int) -> None:
        for _ in range(number):
            transport = MemoryTransport()
            service = SchedulerService(
                transport, self.backend, SchedulerSettings(), Clock(), monotonic=lambda: self.now
            )
            await service.start()
            self.transports.append(transport)
            self.services.append(service)

    async def ready(self, number: int = 1) -> None:
        await self.start(number)
        wishes = tuple(HostIntent(node=node, host=f"h-{node}", cell=CELL) for node in NODES)
        await self.call(PublishOperatorState(hosts=wishes, aggregates=(), cells=(Cell(uuid=CELL, name="one"),)))
        epoch = await self.backend.epoch()
        await self.call(AssertClaims(cell=CELL, epoch=epoch, claims=()))
        reports = tuple(
            HostReport(node=node, cell=CELL, incarnation=1, seq=1, usage=self.usage(f"h-{node}")) for node in NODES
        )
        await self.call(UpdateHostState(reports=reports))
        await self.settle()

    async def call(self, message: Any, scheduler: int = 0) -> Any:
        return await self.transports[scheduler].call(SCHEDULER, message)

    async def beat(
        self, nodes: tuple[NodeUuid, ...] = NODES, scheduler: int = 0, *, told: bool = False, run: str = "run-1"
    ) -> BeatReply:
        page = HeardPage(page=0, version=nodes_version(nodes), nodes=nodes)
        message = Beat(cell=CELL, conductor=run, pages=(page.version,), told=(page,) if told else ())
        reply: BeatReply = await self.call(message, scheduler)
        return reply

    async def settle(self) -> None:
        for service in self.services:
            await service._mirror.catch_up()  # what its own task does some turns of the loop later

    async def up(self, scheduler: int = 0) -> list[NodeUuid]:
        await self.settle()
        return [state.node for state in (await self.call(GetHostStates(), scheduler)).hosts if state.up]


@pytest.fixture
async def schedulers(usage: Any) -> AsyncIterator[Schedulers]:
    schedulers = Schedulers(usage)
    yield schedulers
    for service in schedulers.services:
        await service.stop()


async def test_a_list_that_is_not_known_is_asked_for_and_then_no_more(schedulers: Schedulers) -> None:
    await schedulers.ready()
    assert (await schedulers.beat()).wanted == (0,)
    assert await schedulers.up() == [], "nobody has said yet whom the conductor hears"
    assert (await schedulers.beat(told=True)).wanted == ()
    assert await schedulers.up() == list(NODES)
    for _ in range(5):
        assert (await schedulers.beat()).wanted == ()
    assert len(schedulers.backend.written[HEARING]) == 1, "what did not change was written once"
    assert max(schedulers.backend.written[BEATS]) < 200


async def test_a_changed_list_takes_effect_with_the_beat_that_stands_on_it(schedulers: Schedulers) -> None:
    await schedulers.ready()
    await schedulers.beat(told=True)
    assert (await schedulers.beat(NODES[:2])).wanted == (0,)
    assert await schedulers.up() == list(NODES), "until the new list is known the one before counts"
    await schedulers.beat(NODES[:2], told=True)
    assert await schedulers.up() == list(NODES[:2])


async def test_any_scheduler_takes_any_beat(schedulers: Schedulers) -> None:
    await schedulers.ready(number=2)
    await schedulers.beat(told=True, scheduler=0)
    assert (await schedulers.beat(scheduler=1)).wanted == (), "it looks at what others were told before it asks"
    assert await schedulers.up(0) == await schedulers.up(1) == list(NODES)
    await schedulers.beat(NODES[1:], told=True, scheduler=1)
    assert (await schedulers.beat(NODES[1:], scheduler=0)).wanted == ()
    assert await schedulers.up(0) == await schedulers.up(1) == list(NODES[1:])


async def test_a_scheduler_that_begins_finds_the_lists_in_the_records(schedulers: Schedulers) -> None:
    await schedulers.ready()
    await schedulers.beat(told=True)
    await schedulers.start(1)
    await schedulers.beat(scheduler=1)
    assert await schedulers.up(1) == list(NODES)
    assert len(schedulers.backend.written[HEARING]) == 1


async def test_a_conductor_that_begins_anew_is_another_and_its_predecessor_goes_with_its_lists(
    schedulers: Schedulers,
) -> None:
    await schedulers.ready()
    await schedulers.beat(told=True)
    await schedulers.beat(NODES[:1], told=True, run="run-2")
    assert await schedulers.up() == list(NODES), "what the one before heard last counts until its beat lapses"
    schedulers.now = 11.0
    await schedulers.beat(NODES[:1], run="run-2")
    assert await schedulers.up() == list(NODES[:1])
    schedulers.now = 100.0
    await schedulers.beat(NODES[:1], run="run-2")
    await schedulers.settle()
    names = {
        record.key.name for record in (await schedulers.backend.snapshot()).records if record.key.namespace == HEARING
    }
    assert names == {f"{CELL}/run-2/0"}


async def test_fewer_pages_than_before_leave_no_record(schedulers: Schedulers) -> None:
    await schedulers.ready()
    pages = tuple(
        HeardPage(
            page=page, version=nodes_version(NODES[2 * page : 2 * page + 2]), nodes=NODES[2 * page : 2 * page + 2]
        )
        for page in range(2)
    )
    versions = tuple(page.version for page in pages)
    assert (await schedulers.call(Beat(cell=CELL, conductor="c", pages=versions, told=pages))).wanted == ()
    assert await schedulers.up() == list(NODES)
    await schedulers.call(Beat(cell=CELL, conductor="c", pages=versions[:1]))
    assert await schedulers.up() == list(NODES[:2])
    records = (await schedulers.backend.snapshot()).records
    assert [record.key.name for record in records if record.key.namespace == HEARING] == [f"{CELL}/c/0"]


@pytest.mark.parametrize(
    ("beat", "field"),
    [
        ({"pages": (1,) * 201}, "pages"),
        ({"pages": (-1,)}, "pages"),
        ({"pages": (2**53,)}, "pages"),
        ({"pages": (1,), "told": (HeardPage(page=0, version=2, nodes=()),)}, "told"),
        ({"pages": (1,), "told": (HeardPage(page=1, version=1, nodes=()),)}, "told"),
        ({"pages": (1,), "told": (HeardPage(page=0, version=1, nodes=(NodeUuid("n"),) * 5001),)}, "told"),
        ({"pages": (1,), "told": (HeardPage(page=0, version=1, nodes=(NodeUuid("n" * 256),)),)}, "told"),
        ({"conductor": "c" * 256}, "cell, conductor"),
    ],
)
async def test_a_beat_that_makes_no_sense_is_refused_by_name(schedulers: Schedulers, beat: Any, field: str) -> None:
    await schedulers.ready()
    await schedulers.beat(told=True)
    with pytest.raises(BadRequest, match=f"^{field}: "):
        await schedulers.call(Beat(cell=CELL, **beat))
    assert await schedulers.up() == list(NODES)


async def test_a_cell_speaks_of_its_own_hosts_only(schedulers: Schedulers) -> None:
    await schedulers.ready()
    await schedulers.call(Beat(cell=CellUuid("cell-2"), heard=NODES))
    assert await schedulers.up() == []
