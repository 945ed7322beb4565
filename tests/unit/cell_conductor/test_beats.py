"""A conductor whose beats do not reach a scheduler says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.cell_conductor.beats import FAILED_BEATS
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.service import CellConductor
from skep.config.sections import ConductorSettings
from skep.database.cell.tables import metadata
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, Incarnation
from skep.messages.to_scheduler import Beat, BeatReply
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import scheduler_for
from skep.transport.memory import MemoryTransport


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


async def test_beats_that_fail_again_and_again_are_said_until_one_arrives(parts: Parts) -> None:
    async def hear(_beat: Beat, _context: RequestContext | None) -> BeatReply:
        return BeatReply(asserted=True, epoch="e")

    conductor = CellConductor(parts)
    for _ in range(FAILED_BEATS):
        assert conductor.troubles() == [], "a scheduler that is started anew is no trouble"
        await conductor._beats._beat()
    [trouble] = conductor.troubles()
    assert trouble.startswith(f"beat: schedulers were not reached {FAILED_BEATS} times in a row: ")
    subscription = await parts.above.serve(scheduler_for(parts.cell.uuid), {Beat: hear})
    await conductor._beats._beat()
    assert conductor.troubles() == []
    await subscription.close()
