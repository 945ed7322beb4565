"""Copies what cells noted about servers into the event log, and prunes the log.

Any number of processes may copy at once: an event that is there already is not written again, and a cell forgets its
facts only after they are committed above.
"""

from __future__ import annotations

from functools import partial
from time import monotonic

from skep.config.events import EventsSettings
from skep.database import Connection, clocks
from skep.database.api import events
from skep.database.cell import event_facts
from skep.domain.clock import SECOND
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.server_events import UNREADABLE, Fact, event_of, is_news
from skep.super_conductor.parts import CellAccess, Parts

MOST_OF_SERVER = 1000
"""Facts of one server that are copied at once before it goes to another cell."""


class Events:
    """Moves facts from cells into the log, each cell's in its order."""

    def __init__(self, parts: Parts, settings: EventsSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._since: dict[CellUuid, float] = {}
        """Cell -> when (monotonic seconds) it was last known that nothing waits there."""
        self._shown: set[str] = set()

    async def run(self) -> bool:
        """Copy one batch of each cell and prune one; True when there may be more."""
        pruned = await self._parts.api.read(self._any_old)
        if pruned:
            await self._parts.api.write(self._prune)
        more = await self._parts.in_each_cell("events", self._copy)
        self._show_lag()
        return more or pruned

    async def _copy(self, access: CellAccess) -> bool:
        limit = self._settings.batch_rows
        began = monotonic()
        facts = await access.read(partial(event_facts.oldest, limit=limit))
        await _copied(self._parts, access, facts)
        more = len(facts) >= limit
        if not more:
            self._since[access.cell.uuid] = began
        return more

    def _show_lag(self) -> None:
        """Say since when a cell may have facts that are not copied: also of one that does not answer."""
        now, lag = monotonic(), self._parts.steps.metrics.events_lag
        cells = {access.cell.uuid: access.cell.name for access in list(self._parts.cells.values())}
        self._since = {uuid: self._since.get(uuid, now) for uuid in cells}
        for gone in self._shown - set(cells.values()):
            lag.remove(gone)
        self._shown = set(cells.values())
        for uuid, name in cells.items():
            lag.labels(name).set(now - self._since[uuid])

    def _any_old(self, connection: Connection) -> bool:
        now = clocks.now(connection, self._parts.clock)
        return events.any_before(connection, now - self._settings.keep_seconds * SECOND, now)

    def _prune(self, connection: Connection) -> None:
        now = clocks.now(connection, self._parts.clock)
        before = now - self._settings.keep_seconds * SECOND
        gone = events.prune(connection, before, now, self._settings.batch_rows)
        self._parts.steps.metrics.events_pruned.inc(gone)


async def copy_of_server(parts: Parts, access: CellAccess, instance: InstanceUuid) -> None:
    """Copy what a cell has noted of a server that is about to leave it: it comes before what the next cell tells.

    Raises StorageUnavailable when the cell does not answer.
    """
    more = True
    while more:
        facts = await access.read(partial(event_facts.of_server, instance=instance, limit=MOST_OF_SERVER))
        await _copied(parts, access, facts)
        more = len(facts) >= MOST_OF_SERVER


async def _copied(parts: Parts, access: CellAccess, facts: list[Fact]) -> None:
    if not facts:
        return
    new = [event_of(fact, access.cell.uuid) for fact in facts if is_news(fact)]

    def write(connection: Connection) -> int:
        return events.add(connection, new, clocks.now(connection, parts.clock))

    parts.steps.metrics.events_copied.inc(await parts.api.write(write))
    parts.steps.metrics.events_unreadable.inc(sum(one.type == UNREADABLE for one in new))
    await access.write(partial(event_facts.forget, facts=facts))
