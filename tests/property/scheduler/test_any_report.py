"""Whatever decodes as a host's report raises nothing, poisons no column and changes no other host."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skep.domain.cells import Cell, HostIntent
from skep.domain.clock import Clock
from skep.domain.hosts import HostState, HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Inventory
from skep.messages.to_scheduler import AssertClaims, GetHostStates, HostReport, PublishOperatorState, UpdateHostState
from skep.messages.to_scheduler_liveness import Beat
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.memory import MemoryBackend
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport
from tests.support.samples import examples

CELL, OTHER = CellUuid("cell-1"), CellUuid("cell-2")
NODES = tuple(NodeUuid(f"n{number}") for number in range(7))

numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.sampled_from((-1, 0, 1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**64 - 1))
)
texts = st.one_of(st.text(max_size=8), st.sampled_from(("", "VCPU", "MEMORY_MB", "CUSTOM_X", "x" * 300, "\ud7ff")))
names = st.one_of(texts, st.sampled_from(("HW_CPU_X86_AVX2", "CUSTOM_A", "NO_TRAIT", "CUSTOM_" + "A" * 249)))
shapeless = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | texts | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(0, 9), inner, max_size=3),
    max_leaves=8,
)
inventories = st.fixed_dictionaries(
    {"total": numbers}, optional={"reserved": numbers, "allocation_ratio": st.floats() | st.integers(0, 20_000)}
)
usages = st.fixed_dictionaries(
    {
        "host": texts,
        "inventory": st.dictionaries(texts, inventories, max_size=4),
        "used": st.dictionaries(texts, numbers, max_size=4),
    },
    optional={
        "traits": st.lists(names, max_size=6),
        "failed_builds": numbers,
        "servers": numbers,
        "hypervisor_type": texts,
        "hypervisor_version": numbers,
        "hypervisor_hostname": texts,
        "host_ip": texts,
        "cpu_info": st.dictionaries(texts, shapeless, max_size=3),
        "service_version": numbers,
        "uptime": texts | st.none(),
        "started_at": numbers,
    },
)
reports = st.fixed_dictionaries(
    {
        "node": st.sampled_from((*NODES[:1], "unknown", "", "n" * 300)),
        "cell": st.sampled_from((CELL, OTHER, "")),
        "incarnation": numbers,
        "seq": numbers,
        "usage": usages,
    },
    optional={"settled": st.lists(st.tuples(texts, numbers, texts), max_size=3)},
)


def good_usage(node: str) -> HostUsage:
    inventory = {"VCPU": Inventory(total=4, allocation_ratio=4.0), "MEMORY_MB": Inventory(total=8192)}
    return HostUsage(host=f"h-{node}", inventory=inventory, used={"VCPU": 0, "MEMORY_MB": 0})


class Scheduler:
    """One scheduler with seven good hosts."""

    def __init__(self) -> None:
        self.transport = MemoryTransport()
        self.backend = MemoryBackend()
        self.service = SchedulerService(self.transport, self.backend, SchedulerSettings(), Clock())

    async def start(self) -> None:
        await self.service.start()
        wishes = tuple(HostIntent(node=node, host=f"h-{node}", cell=CELL) for node in NODES)
        cells = (Cell(uuid=CELL, name="one"), Cell(uuid=OTHER, name="two"))
        await self.call(PublishOperatorState(hosts=wishes, aggregates=(), cells=cells))
        await self.call(Beat(cell=CELL, heard=NODES))
        await self.call(AssertClaims(cell=CELL, epoch=await self.backend.epoch(), claims=()))
        good = tuple(HostReport(node=node, cell=CELL, incarnation=1, seq=1, usage=good_usage(node)) for node in NODES)
        await self.call(UpdateHostState(reports=good))

    async def call(self, message: Any) -> Any:
        return await self.transport.call(SCHEDULER, message)

    async def states(self) -> dict[NodeUuid, HostState]:
        return {state.node: state for state in (await self.call(GetHostStates())).hosts}

    def check_columns(self) -> None:
        table = self.service.states.table
        for name, amounts in table.resources.items():
            assert np.isfinite(amounts.share).all(), name
            assert (np.abs(amounts.capacity) < 2**53).all(), name
            assert ((amounts.used >= 0) & (amounts.used < 2**31)).all(), name


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=reports)
@example(
    raw={
        "node": "n0",
        "cell": CELL,
        "incarnation": 1,
        "seq": 2,
        "usage": {"host": "h", "inventory": {"VCPU": {"total": 1}}, "used": {}, "cpu_info": {"a": {1: b"x"}}},
    }
)
async def test_a_report_of_any_content_changes_at_most_its_own_host(raw: dict[str, Any]) -> None:
    scheduler = Scheduler()
    await scheduler.start()
    before = await scheduler.states()
    try:
        report = msgspec.msgpack.decode(msgspec.msgpack.encode(raw), type=HostReport)
    except (msgspec.ValidationError, OverflowError):
        await scheduler.service.stop()
        return
    good = HostReport(node=NODES[1], cell=CELL, incarnation=1, seq=2, usage=good_usage(NODES[1]))
    answers = (await scheduler.call(UpdateHostState(reports=(report, good)))).answers
    after = await scheduler.states()
    assert answers[1].error is None, "others in the same message go on"
    assert after[NODES[1]].seq == 2
    assert after[NODES[2]] == before[NODES[2]]
    if answers[0].error is not None:
        assert after[NODES[0]].usage == before[NODES[0]].usage, "the last good report stays"
    scheduler.check_columns()
    assert not scheduler.service.states.quarantined
    await scheduler.service.stop()


def usage_with(**changes: Any) -> HostUsage:
    return msgspec.structs.replace(good_usage("n0"), **changes)


@pytest.mark.parametrize(
    ("usage", "field"),
    [
        (usage_with(used={"VCPU": -1}), "usage.used.VCPU"),
        (usage_with(inventory={"VCPU": Inventory(total=2**60)}), "usage.inventory.VCPU.total"),
        (usage_with(inventory={"VCPU": Inventory(total=1, allocation_ratio=math.nan)}), "usage.inventory.VCPU"),
        (usage_with(inventory={"VCPU": Inventory(total=1, allocation_ratio=math.inf)}), "usage.inventory.VCPU"),
        (usage_with(inventory={f"CUSTOM_{n}": Inventory(total=1) for n in range(101)}), "usage.inventory: more than"),
        (usage_with(traits=tuple(f"CUSTOM_{n}" for n in range(1_000_000))), "usage.traits: more than 2000"),
        (usage_with(traits=("HW_CPU_OF_MY_OWN",)), "usage.traits: 'HW_CPU_OF_MY_OWN'"),
        (usage_with(host="h" * 256), "usage.host"),
        (usage_with(hypervisor_hostname="h" * 256), "usage.hypervisor_hostname"),
        (usage_with(cpu_info={"flags": ["f" * 100] * 1000}), "usage.cpu_info: 1"),
        (usage_with(started_at=2**53), "usage.started_at"),
    ],
)
async def test_the_field_is_named_and_the_host_says_so(usage: HostUsage, field: str) -> None:
    scheduler = Scheduler()
    await scheduler.start()
    report = HostReport(node=NODES[0], cell=CELL, incarnation=1, seq=2, usage=usage)
    (answer,) = (await scheduler.call(UpdateHostState(reports=(report,)))).answers
    assert answer.error is not None
    assert answer.error.startswith(field)
    assert len(answer.error) < 600
    state = (await scheduler.states())[NODES[0]]
    assert state.refused is not None
    assert state.refused.reason == answer.error
    await scheduler.service.stop()


async def test_more_used_than_there_is_is_taken_and_leaves_no_room() -> None:
    scheduler = Scheduler()
    await scheduler.start()
    report = HostReport(node=NODES[0], cell=CELL, incarnation=1, seq=2, usage=usage_with(used={"VCPU": 40}))
    (answer,) = (await scheduler.call(UpdateHostState(reports=(report,)))).answers
    assert answer.error is None
    table = scheduler.service.states.table
    assert table.resources["VCPU"].free[table.row_of[NODES[0]]] == 16 - 40
    await scheduler.service.stop()


async def test_names_that_hosts_make_up_take_no_room_from_the_others() -> None:
    scheduler = Scheduler()
    await scheduler.start()
    errors = []
    for node in NODES[:5]:
        inventory = {f"CUSTOM_{node.upper()}_{n}": Inventory(total=1) for n in range(90)}
        usage = msgspec.structs.replace(good_usage(node), inventory=inventory, used={})
        report = HostReport(node=node, cell=CELL, incarnation=1, seq=2, usage=usage)
        errors += [one.error for one in (await scheduler.call(UpdateHostState(reports=(report,)))).answers]
    assert errors[0] is None
    assert errors[-1] is not None
    assert errors[-1].startswith("usage.inventory: 90 classes that no other host has")
    good = HostReport(node=NODES[6], cell=CELL, incarnation=1, seq=2, usage=good_usage(NODES[6]))
    assert (await scheduler.call(UpdateHostState(reports=(good,)))).answers[0].error is None
    await scheduler.service.stop()
