"""Which format a trace has is seen from its columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from skep.simulator.events import HostEvent, Trace
from skep.simulator.traces import azure, huawei, openb
from skep.simulator.traces.rows import BadTrace, header_of, rows_of

FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Path], Trace]]] = {
    "huawei": (huawei.COLUMNS, huawei.read),
    "openb": (openb.COLUMNS, openb.read),
    "azure": (azure.COLUMNS, azure.read),
}
OUTAGES = ("host", "from", "until")


def read(path: Path) -> Trace:
    """Read a trace of any format. Raises BadTrace saying what is wrong, OSError as the disk does."""
    columns = set(header_of(path))
    for wanted, reading in FORMATS.values():
        if columns.issuperset(wanted):
            trace = reading(path)
            if not trace.servers:
                raise BadTrace(f"{path}: expected at least one server")
            return trace
    nearest = max(FORMATS, key=lambda name: len(columns.intersection(FORMATS[name][0])))
    missing = [column for column in FORMATS[nearest][0] if column not in columns]
    if len(missing) <= len(FORMATS[nearest][0]) // 2:
        raise BadTrace(f"{path}, line 1: for the format {nearest} there is no column {', '.join(missing)}")
    known = "; ".join(f"{name}: {','.join(wanted)}" for name, (wanted, _) in FORMATS.items())
    raise BadTrace(f"{path}, line 1: these are the columns of no format ({known})")


def read_outages(path: Path) -> tuple[HostEvent, ...]:
    """Read when hosts fail: `host,from,until`, in seconds; without `until` for ever. Raises as `read`."""
    changes = []
    for row in rows_of(path, OUTAGES):
        host, begin = row.name("host"), row.time("from")
        changes.append(HostEvent(at=begin, host=host, up=False))
        if row.text("until"):
            end = row.time("until")
            if end <= begin:
                raise row.refuse("until", "expected a time after the beginning of the outage")
            changes.append(HostEvent(at=end, host=host, up=True))
    return tuple(changes)
