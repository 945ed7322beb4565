"""The story of guests that are otherwise than their rows say: hosts tell how their guests are, and rows follow."""

from __future__ import annotations

from skep.cell_conductor import endings
from skep.cell_conductor.parts import Parts
from skep.cell_conductor.tasks import Tasks
from skep.database import Connection
from skep.database.cell import agents, guests, tasks
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.domain.context import RequestContext
from skep.domain.guests import Correction, GuestKnown, correction
from skep.domain.instances import State
from skep.messages.to_cell_conductor import MayResume, Permission, ReportGuests
from skep.telemetry.logs import get_logger

log = get_logger(__name__)


class Guests:
    """Corrects rows by what hosts report of their guests."""

    def __init__(self, parts: Parts, tasks_story: Tasks) -> None:
        self._parts = parts
        self._telling = tasks_story.telling

    async def may_resume(self, message: MayResume, _context: RequestContext | None) -> Permission:
        """Answer whether a guest is to run after a boot: its server is ACTIVE there, and nothing is done with it."""

        def unit(connection: Connection) -> bool:
            agents.check_current(connection, message.host, message.incarnation)
            known = guests.known(connection, message.host, [message.instance])
            wanted = (message.attempt, State.ACTIVE, None)
            return any((one.attempt, one.state, one.task) == wanted for one in known)

        return Permission(granted=await self._parts.database.read(unit))

    async def reported(self, message: ReportGuests, _context: RequestContext | None) -> None:
        """Correct the rows that differ. Most reports differ in nothing, and write nothing."""
        differ = await self._parts.database.read(lambda connection: _differences(connection, message))
        if not differ:
            return
        now = self._parts.clock.now()

        def unit(connection: Connection) -> tuple[list[tuple[GuestKnown, Correction]], list[Over]]:
            agents.check_current(connection, message.host, message.incarnation)
            written = _differences(connection, message)
            settled = [tasks.correct(connection, known, found, message.host, now) for known, found in written]
            return written, with_instances(connection, [one for one in settled if one is not None])

        corrected, over = await self._parts.database.write(unit)
        endings.ended(self._parts, over)
        for known, found in corrected:
            log.warning(
                "guest differed from its server",
                instance=known.instance,
                host=message.host,
                state=known.state.value,
                power_state=found.power_state.name,
                becomes="stopped again" if found.stop else found.state.value,
            )
            if found.stop:
                self._telling.nudge()


def _differences(connection: Connection, message: ReportGuests) -> list[tuple[GuestKnown, Correction]]:
    seen = {one.instance: one for one in message.guests}
    compared = ((one, correction(one, seen[one.instance])) for one in guests.known(connection, message.host, seen))
    return [(one, found) for one, found in compared if found is not None]
