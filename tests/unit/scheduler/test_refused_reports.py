"""A release whose agents all say nonsense costs as many round trips as messages, not as many as hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from skep.domain.cells import HostIntent
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_scheduler import HostReport
from skep.scheduler import changes
from skep.scheduler.records import COMPUTE, OPERATOR
from skep.scheduler.reporting import Reporting
from skep.synchronizer.base import Key
from tests.unit.scheduler.test_commits import One

CELL = CellUuid("cell-1")
NODES = [NodeUuid(f"n{number}") for number in range(50)]


async def test_refusals_are_noted_together(usage: Callable[..., Any]) -> None:
    one = One()
    await one.mirror.load()
    for node in NODES:
        wish = HostIntent(node=node, host=node, cell=CELL)
        await one.commits.change(Key(OPERATOR, node), changes.set_value(wish))
    one.backend.batches.clear()
    reporting = Reporting(one.states, one.commits, Clock())
    nonsense = [replace(usage(node), used={"VCPU": -1}) for node in NODES]
    reports = tuple(
        HostReport(node=node, cell=CELL, incarnation=1, seq=1, usage=said)
        for node, said in zip(NODES, nonsense, strict=True)
    )
    answers = await reporting.take(reports)
    assert [answer.node for answer in answers] == NODES
    assert all(answer.error is not None for answer in answers)
    assert all(one.states.held(Key(COMPUTE, node)).value.refused is not None for node in NODES)
    assert len(one.backend.batches) == 1
