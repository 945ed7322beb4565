"""What the stories of a cell conductor share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from skep.config.sections import ConductorSettings
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.context import RequestContext
from skep.domain.ids import Incarnation
from skep.messages.base import Call
from skep.messages.to_super_conductor import CellChanged
from skep.reconciler.lease import Time
from skep.telemetry.clock_watch import Told, ignore
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import Transport, super_conductor_for

ReplyT = TypeVar("ReplyT")

ABOVE_SECONDS = 3.0
"""For the level above to answer; less than a host waits for its answer."""


@dataclass(frozen=True)
class Parts:
    """Everything that a story of a cell conductor works with. There is no API database here."""

    owner: Incarnation
    cell: Cell
    database: Database
    transport: Transport
    """The cell's own: conductors and agents."""
    above: Transport
    """Where the scheduler and the super conductor are."""
    clock: Clock
    steps: Steps
    notifier: Notifier
    settings: ConductorSettings
    require_signatures: bool = False
    """Whether also hosts that were there before agents had sessions are believed only in one."""
    max_attempts: int = 3
    max_cells: int = 2
    reclaim_seconds: float = 0
    """How long soft-deleted servers are kept; 0: for ever."""
    offload_seconds: float = 0
    """How long shelved servers stay on their hosts; negative: for ever."""
    time: Time | None = None
    """The time of the cell's database."""
    runs_on: str = ""
    """Where this process runs, as lists of services say."""
    on_clock: Told = ignore
    """Is told by how many seconds this process' clock is ahead of the database's."""

    def before(self, seconds: float) -> int:
        """Return the time `seconds` ago, in microseconds."""
        return self.clock.now() - round(seconds * SECOND)

    def progress_before(self) -> int:
        """Return the time since when a host must have said that it has something in hand, for that to count."""
        return self.before(3 * self.settings.progress_seconds)

    def unfollowed_before(self) -> int:
        """Return the time before which a step must have begun for its host to be told, whatever has not followed yet.

        A quarter of the deadline of builds that no host has begun: none comes to it by this alone.
        """
        return self.before(self.settings.scheduled_deadline / 4)

    async def ask_above(self, call: Call[ReplyT], context: RequestContext | None) -> ReplyT:
        """Ask the level above. Raises Unavailable while nobody answers there, and what the answer is."""
        above = super_conductor_for(self.cell.uuid)
        reply: ReplyT = await self.above.call(above, call, timeout=ABOVE_SECONDS, context=context)
        return reply

    async def tell_above(self) -> None:
        """Say that a row reached a state that concerns the level above; it would find out by itself, later."""
        await self.above.cast(super_conductor_for(self.cell.uuid), CellChanged(cell=self.cell.uuid))
