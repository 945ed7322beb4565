"""A cell with a database of its own and nobody in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.cell_conductor.parts import Parts
from skep.config.sections import ConductorSettings
from skep.contracts.databases import new_database
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, Incarnation
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.memory import MemoryTransport


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    database = new_database(tmp_path / "cell1.db", "cell", readers=1)
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
