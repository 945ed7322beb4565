"""Gauges of cells: they are there for as long as the cell is."""

from __future__ import annotations

from pathlib import Path

from skep.contracts.databases import new_database
from skep.domain.cells import Cell
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid
from skep.messages.to_scheduler import GetHostStates, GetHostStatesReply
from skep.processes.gauges import Gauges
from skep.telemetry.metrics import Metrics
from skep.transport.base import SCHEDULER
from skep.transport.memory import MemoryTransport


async def test_the_gauges_of_a_cell_that_is_gone_go_with_it(tmp_path: Path) -> None:
    async def no_hosts(_message: GetHostStates, _context: RequestContext | None) -> GetHostStatesReply:
        return GetHostStatesReply(hosts=(), epoch="e")

    cells = {CellUuid(name): Cell(uuid=CellUuid(name), name=name) for name in ("cell1", "cell2")}
    transport, metrics = MemoryTransport(), Metrics()
    subscription = await transport.serve(SCHEDULER, {GetHostStates: no_hosts})
    database = new_database(tmp_path / "api.db", "api")
    gauges = Gauges(database, cells, transport, metrics)
    await gauges._count_hosts()
    text = metrics.exposition().decode()
    assert 'skep_claims{cell="cell2"} 0.0' in text
    assert 'skep_hosts{cell="cell2",state="up"} 0.0' in text
    del cells[CellUuid("cell2")]
    await gauges._count_hosts()
    text = metrics.exposition().decode()
    assert "cell2" not in text
    assert 'skep_hosts{cell="cell1",state="up"} 0.0' in text
    await subscription.close()
    await database.close()
