"""How far the clocks of processes are from those of the databases, by which everything is judged."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from skep.admin.answers import ListedClocks, ShownClock
from skep.admin.requests import AdminRequest, operation
from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.database import leases as lease_rows
from skep.database.api.tables import leases as leases_above
from skep.database.cell.tables import leases as leases_in_cell
from skep.database.clocks import DatabaseClock
from skep.database.engine import Database
from skep.database.leases import API, Leases
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError
from skep.domain.heard_time import ClockDifference
from skep.messages.to_scheduler import GetHostStates
from skep.messages.to_scheduler_liveness import ListSchedulers
from skep.transport.base import SCHEDULER

AHEAD = "usage.clock_ahead"


@operation()
async def index(request: AdminRequest) -> ListedClocks:
    """Answer by how many seconds processes are ahead of a database: this one, holders of leases, and hosts if off."""
    services = request.services
    found = await _in(services, services.database, leases_above, "api")
    for uuid, cell in sorted(services.names.items(), key=lambda item: item[1].name):
        if uuid in services.cells and not cell.is_cell0:
            found += await _in(services, services.cells[uuid], leases_in_cell, cell.name)
    found += await _of_schedulers(services)
    return {"clocks": found + await _of_hosts(services)}


async def _of_schedulers(services: AdminServices) -> list[ShownClock]:
    """Return the clocks of living schedulers; 0 for one that is not off for sure. Those before 0.6.0 do not tell.

    One answers for all: each writes its time down every second, and the others count on from there.
    """
    clock = DatabaseClock(services.clock)
    try:
        await services.database.read(clock.look, within=CELL_SECONDS)
        asked_at = clock.elapsed()
        reply = await services.transport.call(SCHEDULER, ListSchedulers(), timeout=CELL_SECONDS)
    except SkepError:
        return []
    within = (clock.elapsed() - asked_at) / 2
    answered_at = clock.now() - within * SECOND
    found: list[ShownClock] = []
    for one in reply.schedulers:
        if one.now is not None:
            difference = ClockDifference((one.now - answered_at) / SECOND, within)
            ahead = difference.ahead if difference.is_off else 0.0
            found.append({"process": "scheduler", "host": one.host, "database": "api", "seconds_ahead": ahead})
    return found


async def _of_hosts(services: AdminServices) -> list[ShownClock]:
    """Return the clocks of living hosts that are off, as schedulers know them. Those of before 0.6.0 do not."""
    cells = {uuid: cell.name for uuid, cell in services.names.items()}
    asked = GetHostStates(conditions=("up=true",), fields=("usage.host", "cell", AHEAD))
    found: list[ShownClock] = []
    while True:
        try:
            reply = await services.transport.call(SCHEDULER, asked)
        except SkepError:
            return found
        for host in reply.documents:
            if host[AHEAD]:
                cell = cells.get(host["cell"], host["cell"])
                found.append(
                    {"process": "compute", "host": host["usage.host"], "database": cell, "seconds_ahead": host[AHEAD]}
                )
        if reply.next_marker is None:
            return found
        asked = replace(asked, marker=reply.next_marker)


async def _in(services: AdminServices, database: Database, table: Leases, name: str) -> list[ShownClock]:
    unit = partial(_read, services=services, table=table, name=name)
    try:
        return await database.read(unit, within=CELL_SECONDS)
    except SkepError:
        return []


def _read(connection: Connection, services: AdminServices, table: Leases, name: str) -> list[ShownClock]:
    clock = DatabaseClock(services.clock)
    clock.look(connection)
    now = clock.now()
    found: list[ShownClock] = [
        {"process": API, "host": services.runs_on, "database": name, "seconds_ahead": clock.ahead}
    ]
    found.extend(
        {"process": row.role, "host": row.host, "database": name, "seconds_ahead": row.ahead}
        for row in lease_rows.every(connection, table)
        if row.lapses_at > now and row.ahead is not None and (row.role, row.owner) != (API, services.owner)
    )
    return found
