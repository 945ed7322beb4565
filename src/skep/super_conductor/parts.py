"""What the stories of the super conductor share: databases, messaging, time, and who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from skep.audit.sources import Sources
from skep.config.sections import ConductorSettings
from skep.database.engine import Database, T, Unit
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CellUuid, Incarnation
from skep.messages.to_cell_conductor import InstancesChanged
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import Transport, cell_conductor

CELL_SECONDS = 2.0
"""How long the level above waits for one answer of a cell's database."""


@dataclass(frozen=True)
class CellAccess:
    """A cell as the level above reaches it: its database, and its messaging."""

    cell: Cell
    database: Database
    transport: Transport | None
    """None for cell0, where nobody listens."""

    async def write(self, unit: Unit[T]) -> T:
        """Write in the cell.

        Raises StorageUnavailable when it does not answer soon: one slow cell must not hold up the others. What it
        stores later all the same is fenced by its attempt.
        """
        return await self._in_time(self.database.write(unit))

    async def read(self, unit: Unit[T]) -> T:
        """Read in the cell. Raises StorageUnavailable as `write` does."""
        return await self._in_time(self.database.read(unit))

    async def _in_time(self, answer: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(answer, CELL_SECONDS)
        except TimeoutError:
            raise StorageUnavailable(f"cell {self.cell.name} did not answer in {CELL_SECONDS:g} s") from None


@dataclass(frozen=True)
class Parts:
    """Everything that a story of the super conductor works with."""

    owner: Incarnation
    api: Database
    cells: Mapping[CellUuid, CellAccess]
    """cell0 too."""
    transport: Transport
    clock: Clock
    steps: Steps
    notifier: Notifier
    settings: ConductorSettings
    max_attempts: int = 3
    max_cells: int = 2
    runs_on: str = ""
    """Where this process runs, as lists of services say."""
    busy: Callable[[], int] = field(default=lambda: 0)
    """Requests of users under way in this process: building makes room for them."""

    @property
    def sources(self) -> Sources:
        """What an audit reads."""
        return Sources(
            api=self.api,
            cells={uuid: access.database for uuid, access in self.cells.items()},
            names={uuid: access.cell for uuid, access in self.cells.items()},
            transport=self.transport,
        )

    def after(self, seconds: float) -> int:
        """Return the time `seconds` from now, in microseconds."""
        return self.clock.now() + round(seconds * SECOND)

    async def nudge(self, cell: CellUuid) -> None:
        """Tell a cell's conductors that rows of theirs wait for work."""
        access = self.cells[cell]
        if access.transport is not None:
            await access.transport.cast(cell_conductor(cell), InstancesChanged())
