"""The story of databases that remember each other: those above and those of the cells, so that none goes back unseen.

The level above is the only one that reaches them all. Each pass tells every database where the others are; one that has
lost what another remembers begins to recover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from skep.database import Connection, timelines
from skep.database.api import recovery as above
from skep.database.api.time_tables import time as api_time
from skep.database.cell import builds
from skep.database.cell import recovery as below
from skep.database.cell.tables import time as cell_time
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.timelines import API, Moment
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

JUDGED_SECONDS = 10.0
"""How long servers that were not placed before the start wait for conductors of their cells to hear their hosts."""


class Timelines:
    """Has the databases remember each other, and notices which of them went back."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Do one pass over all cells."""

        async def of_cell(access: CellAccess) -> bool:
            await exchange(self._parts, access)
            return False

        return await self._parts.in_each_cell("times of databases", of_cell)

    async def judged(self) -> None:
        """Wait until in each cell a conductor lives that has heard whoever may know that it went back, some seconds.

        What went back together with all that it could be compared with is known by hosts alone.
        """
        since: dict[CellUuid, Moment] = {}
        end = asyncio.get_running_loop().time() + JUDGED_SECONDS
        while asyncio.get_running_loop().time() < end:
            waiting = False
            for cell, access in list(self._parts.cells.items()):
                if access.transport is None:
                    continue
                try:
                    at, done = await access.read(partial(_judged, cell=cell, since=since.get(cell)))
                except SkepError:
                    continue
                if at is not None:
                    since.setdefault(cell, at)
                waiting |= not done
            if not waiting:
                break
            await asyncio.sleep(0.05)
        await self.run()


async def exchange(parts: Parts, access: CellAccess) -> None:
    """Have the API database and that of one cell remember each other; whichever went back begins to recover."""
    cell, now = access.cell.uuid, parts.clock.now()
    api, remembered = await parts.api.read(partial(_known_above, cell=cell))

    def in_cell(connection: Connection) -> tuple[bool, bool, Moment | None, Moment | None]:
        lost = remembered is not None and below.begin_if_lost(connection, remembered, "the API database", now)
        both = not lost and _may_both(connection, remembered)
        timelines.note_looked(connection, cell_time)
        seen = timelines.last_seen(connection, cell_time, API)
        if api is not None:
            timelines.saw(connection, cell_time, api)
        if access.transport is None or timelines.current(connection, cell_time, cell) is None:
            # Nobody has a lease in cell0, or one that begins another timeline.
            timelines.advance(connection, cell_time, cell, parts.owner)
        return lost, both, timelines.current(connection, cell_time, cell), seen

    lost, both, current, seen = await access.write(in_cell)
    if lost:
        log.error("a cell's database went back in time", cell=access.cell.name, seen=remembered)
        await parts.nudge(cell)

    def in_api(connection: Connection) -> bool:
        if current is not None and (remembered is None or current != remembered):
            timelines.saw(connection, api_time, current)
        if both and above.under_way(connection) is None:
            above.begin(connection, api, f"cell {access.cell.name} went back, maybe with this one", now)
            return True
        return seen is not None and above.begin_if_lost(connection, seen, f"cell {access.cell.name}", now)

    if await parts.api.write(in_api):
        log.error("the API database went back in time", noticed_by=access.cell.name, seen=seen)


def _known_above(connection: Connection, cell: CellUuid) -> tuple[Moment | None, Moment | None]:
    """Return the moment of the API database, and the last one of a cell that it remembers."""
    return timelines.current(connection, api_time, API), timelines.last_seen(connection, api_time, cell)


def _judged(connection: Connection, cell: CellUuid, since: Moment | None) -> tuple[Moment | None, bool]:
    """Return the moment of a cell, and whether it was judged after the one that was returned first."""
    now = timelines.current(connection, cell_time, cell)
    return now, since is not None and timelines.was_judged(connection, cell_time, since)


def _may_both(connection: Connection, remembered: Moment | None) -> bool:
    """Tell whether a cell has begun a timeline that is news above, and has lost nothing that is remembered there.

    Then the API database may have gone back together with it.
    """
    state = below.under_way(connection)
    if state is None or (remembered is not None and remembered.timeline >= state.timeline):
        return False
    return remembered is None or timelines.holds_run(connection, cell_time, remembered)


async def settle(
    parts: Parts, access: CellAccess, mapped: Sequence[tuple[InstanceUuid, int]], moment: Moment | None
) -> None:
    """Let go of staged rows, and have the cell remember the moment of the API database in which they were mapped.

    So no host hears of a server before its cell knows what an API database has lost that does not name this cell.
    """
    now = parts.clock.now()

    def unit(connection: Connection) -> None:
        if moment is not None:
            timelines.saw(connection, cell_time, moment)
        builds.settle(connection, mapped, now)

    await access.write(unit)
