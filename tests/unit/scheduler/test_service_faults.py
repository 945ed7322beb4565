"""The service when the backend is away, when others are always quicker, and when little is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from skep.domain.builds import NotReady, NoValidHost, Placed
from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.errors import StorageUnavailable, Unavailable
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import (
    AssertClaims,
    GetHostStates,
    HostReport,
    Member,
    PublishOperatorState,
    SelectDestinations,
    UpdateHostState,
)
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Epoch, Published, Refusal, Write
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport

CELL = CellUuid("cell-1")
NODE = NodeUuid("n0")


class FickleBackend(MemoryBackend):
    """A backend that can be away, or be used by somebody else right before each write."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.before_write: Callable[[Write], Write | None] = lambda _: None

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        if self.away:
            raise StorageUnavailable("the synchronizer is away")
        for write in writes:
            first = self.before_write(write)
            if first is not None:
                await super().publish((first,))
        return await super().publish(writes, epoch=epoch)


class Small:
    """One cell with one host, and its scheduler."""

    def __init__(self, usage: Any, spec: Any) -> None:
        self.transport = MemoryTransport()
        self.backend = FickleBackend()
        self.service = SchedulerService(
            self.transport, self.backend, SchedulerSettings(), Clock(), monotonic=lambda: 0.0
        )
        self.usage = usage
        self.spec = spec

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def start(self, *, reported: bool = True) -> None:
        await self.service.start()
        wish = HostIntent(node=NODE, host="h0", cell=CELL)
        await self.call(PublishOperatorState(hosts=(wish,), aggregates=(), cells=(Cell(uuid=CELL, name="one"),)))
        epoch = (await self.call(Beat(cell=CELL, heard=(NODE,)))).epoch
        await self.call(AssertClaims(cell=CELL, epoch=epoch, claims=()))
        if reported:
            await self.report()

    async def report(self, seq: int = 1) -> None:
        report = HostReport(node=NODE, cell=CELL, incarnation=1, seq=seq, usage=self.usage("h0"))
        await self.call(UpdateHostState(reports=(report,)))

    async def tell_again(self) -> None:
        """As the cell's conductor does when the answer to its beat names lost records."""
        beat = await self.call(Beat(cell=CELL, heard=(NODE,)))
        assert beat.nodes == (NODE,)
        told = AssertClaims(cell=CELL, epoch=beat.epoch, claims=(), nodes=beat.nodes, groups=beat.groups)
        assert (await self.call(told)).refused == ()
        assert (await self.call(Beat(cell=CELL, heard=(NODE,)))).nodes == ()

    async def select(self, instance: str = "i", **spec: Any) -> Any:
        members = (Member(InstanceUuid(instance), 1),)
        return (await self.call(SelectDestinations(spec=self.spec(**spec), members=members))).decisions[0]

    async def claims(self) -> list[str]:
        return [claim.instance for state in (await self.call(GetHostStates())).hosts for claim in state.claims]


@pytest.fixture
async def small(usage: Any, spec: Any) -> Any:
    small = Small(usage, spec)
    yield small
    await small.service.stop()


async def test_a_claim_that_cannot_be_stored_is_no_answer_and_takes_no_room(
    small: Small, spec: Any, flavor: Any
) -> None:
    await small.start()
    small.backend.away = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="away"):
            await small.select(flavor=flavor(vcpus=16))
    small.backend.away = False
    assert isinstance(await small.select(flavor=flavor(vcpus=16)), Placed)
    assert await small.claims() == ["i"]


async def test_a_slot_whose_claim_could_not_be_stored_gives_way_when_the_attempt_is_selected_again(
    small: Small, group: Any
) -> None:
    await small.start()
    away_after_slot: list[str] = []

    def lose(write: Write) -> None:
        if write.key.namespace == "compute" and not away_after_slot:
            away_after_slot.append(write.key.name)
            raise StorageUnavailable("gone between slot and claim")

    small.backend.before_write = lose
    with pytest.raises(Unavailable):
        await small.select(group=group("anti-affinity"))
    assert isinstance(await small.select(group=group("anti-affinity")), Placed)
    assert isinstance(await small.select("j", group=group("anti-affinity")), NoValidHost)


async def test_a_refused_write_is_tried_again_on_the_fresh_record(small: Small) -> None:
    await small.start()
    times = iter(range(3))

    def interfere(write: Write) -> Write | None:
        if next(times, None) is None:
            return None
        return Write(key=write.key, expected=write.expected, body=b"not what a scheduler writes")

    small.backend.before_write = interfere
    await small.report(seq=2)
    await small.tell_again()
    assert isinstance(await small.select(), Placed)
    assert await small.claims() == ["i"]


async def test_a_record_that_changes_too_fast_is_an_error_not_an_endless_loop(small: Small) -> None:
    await small.start()
    small.backend.before_write = lambda write: Write(key=write.key, expected=write.expected, body=b"other")
    with pytest.raises(Unavailable, match="changes too fast"):
        await small.report(seq=2)
    small.backend.before_write = lambda _: None
    await small.report(seq=3)
    assert isinstance(await small.select(), NotReady), "nobody knows which claims the lost record held"
    await small.tell_again()
    assert isinstance(await small.select(), Placed)


async def test_a_host_that_is_heard_but_has_not_reported_is_waited_for_forced_or_not(small: Small) -> None:
    await small.start(reported=False)
    assert isinstance(await small.select(), NotReady)
    assert isinstance(await small.select(forced_host="h0"), NotReady)
    assert isinstance(await small.select(forced_host="another"), NoValidHost)
    assert isinstance(await small.select(availability_zone="elsewhere"), NoValidHost)


async def test_a_group_waits_only_for_the_cells_that_hold_members(small: Small, group: Any) -> None:
    await small.service.start()
    wish = HostIntent(node=NODE, host="h0", cell=CELL)
    cells = tuple(Cell(uuid=CellUuid(name), name=name) for name in (CELL, "cell-2"))
    await small.call(PublishOperatorState(hosts=(wish,), aggregates=(), cells=cells))
    epoch = (await small.call(Beat(cell=CELL, heard=(NODE,)))).epoch
    await small.call(AssertClaims(cell=CELL, epoch=epoch, claims=()))
    await small.report()
    rule = group("affinity")
    assert isinstance(await small.select(group=rule), NotReady)
    of_before = type(rule)(uuid=rule.uuid, policy=rule.policy, cells=(CELL,), epoch="the epoch before")
    assert isinstance(await small.select(group=of_before), NotReady), "a member may have got a cell since"
    rule_of_one_cell = type(rule)(uuid=rule.uuid, policy=rule.policy, cells=(CELL,), epoch=epoch)
    assert isinstance(await small.select(group=rule_of_one_cell), Placed)


async def test_stopping_finishes_what_is_under_way(small: Small) -> None:
    await small.start()
    asked = [asyncio.create_task(small.select(f"i{number}")) for number in range(5)]
    await asyncio.sleep(0)
    await small.service.stop()
    assert all(isinstance(decision, Placed) for decision in await asyncio.gather(*asked))
