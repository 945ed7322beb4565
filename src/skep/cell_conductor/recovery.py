"""The story of a cell's database that went back in time: hosts are asked what they have, and rows follow their guests.

It is noticed by whoever saw a later moment: this process, an agent, a scheduler, or the level above. Until all is known
nothing is undone on a host that has not told, and no build goes on that may have ended otherwise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from skep.cell_conductor.parts import Parts
from skep.database import Connection, timelines
from skep.database.cell import recovery
from skep.database.cell.tables import time as time_tables
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import InstanceUuid, ProjectId, UserId, new_request_id
from skep.domain.recovery import Adopt, Doubt, FoundGuest, GoOn, Wait, decide, in_words
from skep.domain.timelines import Moment
from skep.messages.base import Done
from skep.messages.to_cell_conductor import GuestsFound
from skep.messages.to_compute import TellGuests, TerminateInstance, UndoAttempt
from skep.reconciler.lease import Time
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger
from skep.transport.base import compute

log = get_logger(__name__)

Handler = Callable[[Any, RequestContext | None], Awaitable[Any]]

BATCH = 100
ASKED_AGAIN = 5 * SECOND
"""A host that has not told what it has is asked again after so long."""
LOOK_SECONDS = 5.0
"""How long a process that starts waits for the level above to look whether the database went back."""
BELIEVED = 2**53
"""A tick or timeline beyond it is nonsense."""


class Recovery:
    """Finds out that the database went back, and has its rows follow what hosts have."""

    def __init__(self, parts: Parts, time: Time) -> None:
        self._parts = parts
        self._time = time
        self._held: dict[str, int] = {}
        """By process: the latest tick of it that the database is known to hold."""
        self._started = False
        self._undo_after = 0
        self._looked = asyncio.Event()
        self._evident: set[str] = set()
        """Hosts whose word has begun a recovery: one does so once, for what it has is decided about then."""
        self.all_heard: Callable[[], Awaitable[bool]] = _yes
        """Whether all agents were heard, with the moments that they remember."""
        self.on_change: Callable[[], None] = _nothing
        """Called when rows may go on that have rested."""
        self.loop = Loop("recovery", self._run, every=parts.settings.resend_seconds)

    async def looked_at(self) -> None:
        """Wait until somebody has looked whether the database went back before this process started, or long enough.

        What a cell remembers of itself goes back with it. Without a level above the cell goes on by itself.
        """
        parts, since = self._parts, self._time.moment
        await parts.tell_above()
        end = asyncio.get_running_loop().time() + LOOK_SECONDS
        while since is not None and asyncio.get_running_loop().time() < end:
            try:
                looked = partial(timelines.was_looked_at, tables=time_tables, since=since)
                if await parts.database.read(looked) and await self.all_heard():
                    break
            except SkepError as error:
                log.warning(
                    "not checked whether the database went back in time", cell=parts.cell.name, error=str(error)
                )
            await asyncio.sleep(0.02)
        self._time.judges = True
        try:
            await parts.database.write(lambda connection: timelines.note_judged(connection, time_tables))
        except SkepError as error:
            log.warning("said with the next lease", cell=parts.cell.name, error=str(error))
        self._looked.set()

    def stop_waiting(self) -> None:
        """Let the handlers that wait go on: the process stops."""
        self._looked.set()

    def once_looked(self, handler: Handler) -> Handler:
        """Have a handler wait for `looked_at`."""

        async def waiting(message: Any, context: RequestContext | None) -> Any:
            await self._looked.wait()
            return await handler(message, context)

        return waiting

    async def saw(self, seen: Moment | None, who: str) -> None:
        """Take a moment that somebody else saw; one that the database does not hold begins a recovery."""
        parts = self._parts
        if seen is None or seen.database != parts.cell.uuid or not 0 <= max(seen.order) < BELIEVED:
            return
        mine = self._time.moment
        if mine is not None and mine.timeline > seen.timeline:
            return
        if self._held.get(seen.owner, -1) >= seen.tick or self._time.holds(seen):
            return
        begun = await parts.database.write(
            partial(recovery.begin_if_lost, seen=seen, who=who, now=parts.clock.now()),
        )
        if begun:
            self._held.clear()
            log.error("the cell's database went back in time", cell=parts.cell.name, noticed_by=who, seen=seen.order)
            self.loop.nudge()
        else:
            self._held[seen.owner] = seen.tick

    async def evidence(self, host: str, said: str) -> None:
        """Begin a recovery for what a host said, which only a database can contradict that went back."""
        parts = self._parts
        if host in self._evident:
            return
        self._evident.add(host)
        log.error("the cell's database went back in time", cell=parts.cell.name, noticed_by=host, why=said)
        begin = partial(recovery.begin, seen=self._time.moment, reason=said, now=parts.clock.now())
        await parts.database.write(begin)
        self.loop.nudge()

    async def registered(self, identity: AgentIdentity) -> None:
        """Wait for a host too that the database had lost."""

        def unit(connection: Connection) -> bool:
            if recovery.under_way(connection) is None:
                return False
            recovery.expect(connection, identity.node, identity.host)
            return True

        if await self._parts.database.write(unit):
            self.loop.nudge()

    async def found(self, message: GuestsFound, _context: RequestContext | None) -> Done:
        """Store what a host has. What answers an earlier question is left aside."""
        now = self._parts.clock.now()

        def unit(connection: Connection) -> None:
            state = recovery.under_way(connection)
            if state is None or state.timeline != message.timeline:
                return
            recovery.expect(connection, message.node, message.host)
            recovery.take_report(connection, [_guest(message, number) for number in range(len(message.guests))])
            if not message.more:
                recovery.end_report(connection, message.node, message.host, now)

        await self._parts.database.write(unit)
        self.loop.nudge()
        return Done()

    async def _run(self) -> bool:
        parts = self._parts
        await self._undo()
        state = await parts.database.read(recovery.under_way)
        if state is None:
            return False
        if not self._started:
            self._started = True
            log.warning(
                "the cell's database began to recover", cell=parts.cell.name, timeline=state.timeline, why=state.reason
            )
            await parts.tell_above()
        await self._ask(state.timeline)
        decided = await self._decide()
        ended = await parts.database.write(partial(recovery.end_if_settled, timeline=state.timeline))
        if ended:
            self._started = False
            log.warning("the cell's database recovered", cell=parts.cell.name, timeline=state.timeline)
        if decided or ended:
            self.on_change()
        return False

    async def _undo(self) -> None:
        """Tell hosts of the guests that an operator wants destroyed, until they answer that they are."""
        parts, now = self._parts, self._parts.clock.now()
        if now < self._undo_after:
            return
        for guest, alone in await parts.database.read(recovery.to_undo):
            self._undo_after = now + ASKED_AGAIN
            context = RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))
            kind = UndoAttempt if alone else TerminateInstance
            message = kind(context=context, instance=guest.instance, attempt=guest.attempt)
            await parts.transport.cast(compute(parts.cell.uuid, guest.host), message, context)

    async def _ask(self, timeline: int) -> None:
        parts, now = self._parts, self._parts.clock.now()

        def unit(connection: Connection) -> list[recovery.AwaitedHost]:
            silent = recovery.awaited_hosts(connection)
            due = [one for one in silent if one.told_at is None or one.told_at < now - ASKED_AGAIN]
            recovery.note_told(connection, [one.node for one in due], now)
            return due

        for one in await parts.database.write(unit):
            await parts.transport.cast(compute(parts.cell.uuid, one.host), TellGuests(timeline=timeline, aside=True))

    async def _decide(self) -> int:
        after, decided = InstanceUuid(""), 0
        while True:
            page, done = await self._parts.database.write(partial(self._decide_some, after=after))
            decided += done
            if not page:
                return decided
            after = page[-1]

    def _decide_some(self, connection: Connection, after: InstanceUuid) -> tuple[list[InstanceUuid], int]:
        """Decide about some instances; return them, and about how many there was something to be decided."""
        state = recovery.under_way(connection)
        page = recovery.undecided(connection, after, BATCH)
        if state is None or not page:
            return [], 0
        now = self._parts.clock.now()
        all_told = state.compared_at is not None and not recovery.awaited_hosts(connection)
        rows, guests = recovery.rows_before(connection, page), recovery.guests_of(connection, page)
        done: Counter[str] = Counter()
        for uuid in page:
            row = rows.get(uuid)
            verdict = Wait() if row is None else decide(row, guests.get(uuid, ()), all_told=all_told)
            match verdict:
                case Adopt():
                    recovery.adopt(connection, uuid, verdict, now)
                case GoOn():
                    recovery.go_on(connection, uuid, verdict, now)
                case Doubt():
                    recovery.doubt(connection, uuid, verdict)
                case Wait():
                    if row is None:
                        recovery.let_go(connection, uuid)
                    continue
            done[type(verdict).__name__.lower()] += 1
            log.warning("row went back in time", instance=uuid, verdict=in_words(verdict))
        return page, done.total()


def _guest(message: GuestsFound, number: int) -> FoundGuest:
    one = message.guests[number]
    return FoundGuest(
        node=message.node,
        host=message.host,
        instance=one.instance,
        attempt=one.attempt,
        highest=one.highest,
        phase=one.phase,
        power_state=one.power_state,
        launched_at=one.launched_at,
        described=one.described,
        deleted=one.deleted,
    )


def _nothing() -> None:
    return None


async def _yes() -> bool:
    return True
