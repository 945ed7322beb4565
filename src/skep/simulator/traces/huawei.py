"""Huawei-East-1: `vmid,cpu,mem,at,lt`: cores, GB, arrival and lifetime in seconds."""

from __future__ import annotations

from pathlib import Path

from skep.simulator.events import Trace, TracedServer
from skep.simulator.traces.flavors import Requests
from skep.simulator.traces.rows import rows_of

COLUMNS = ("vmid", "cpu", "mem", "at", "lt")


def read(path: Path) -> Trace:
    """Read a trace. Raises BadTrace naming line and column, OSError as the disk does."""
    requests = Requests()
    servers = []
    for row in rows_of(path, COLUMNS):
        at = row.time("at")
        servers.append(
            TracedServer(
                name=row.name("vmid"),
                at=at,
                until=at + row.time("lt"),
                spec=requests.spec(row.amount("cpu"), row.amount("mem", factor=1024)),
            )
        )
    return Trace(name=path.stem, servers=tuple(servers))
