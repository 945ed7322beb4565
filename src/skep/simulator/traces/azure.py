"""AzurePackingTraceV1 with concrete sizes: `vmId,tenantId,cores,ram,vmTypeId,starttime,endtime`.

Cores are in hundredths, ram is in GB, times are in days: below 0 before the window, `inf` after it. A server that was
there before the window comes at its beginning, in the order in which it came then.
"""

from __future__ import annotations

import math
from pathlib import Path

from skep.simulator.events import Trace, TracedServer
from skep.simulator.traces.flavors import Requests
from skep.simulator.traces.rows import TraceRow, rows_of

COLUMNS = ("vmId", "tenantId", "cores", "ram", "starttime", "endtime")
HUNDREDTHS = 100
DAY_SECONDS = 86_400


def read(path: Path) -> Trace:
    """Read a trace. Raises BadTrace naming line and column, OSError as the disk does."""
    requests = Requests()
    rows = sorted(rows_of(path, COLUMNS), key=lambda row: row.number("starttime"))
    servers = [
        TracedServer(
            name=row.name("vmId"),
            at=max(0, row.time("starttime", seconds=DAY_SECONDS)),
            until=_end(row),
            spec=requests.spec(
                row.amount("cores"), row.amount("ram", factor=1024), project=f"tenant-{row.name('tenantId')}"
            ),
        )
        for row in rows
    ]
    return Trace(name=path.stem, servers=tuple(servers), units={"VCPU": HUNDREDTHS})


def _end(row: TraceRow) -> int | None:
    return None if row.number("endtime") == math.inf else row.time("endtime", seconds=DAY_SECONDS)
