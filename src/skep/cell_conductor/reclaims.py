"""The story of soft-deleted servers whose time is over: they are deleted for good."""

from __future__ import annotations

from functools import partial

from skep.cell_conductor import endings
from skep.cell_conductor.deletes import Deletes
from skep.cell_conductor.parts import Parts
from skep.database import Connection
from skep.database.cell import soft_deletes
from skep.database.cell.endings import with_instances
from skep.domain.actions import Over
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 100
LONGEST_PAUSE = 10.0
"""Seconds between two looks."""


class Reclaims:
    """Begins to delete what is soft-deleted for longer than the operator keeps it."""

    def __init__(self, parts: Parts, deletes: Deletes) -> None:
        self._parts = parts
        self._undoing = deletes.undoing
        often = max(parts.reclaim_seconds / 4, 0.1) if parts.reclaim_seconds > 0 else LONGEST_PAUSE
        self.loop = Loop("reclaim", self._run, every=min(LONGEST_PAUSE, often))

    async def _run(self) -> bool:
        parts = self._parts
        if parts.reclaim_seconds <= 0:
            return False
        before = parts.before(parts.reclaim_seconds)
        if not await parts.database.read(partial(soft_deletes.any_due, before=before)):
            return False

        def unit(connection: Connection) -> tuple[int, list[Over]]:
            begun, ended = soft_deletes.reclaim(connection, before, BATCH, parts.clock.now())
            return begun, with_instances(connection, ended)

        begun, over = await parts.database.write(unit)
        if begun:
            log.info("soft-deleted servers reclaimed", cell=parts.cell.name, servers=begun)
            self._undoing.nudge()
        endings.ended(parts, over)
        return begun >= BATCH
