"""The story of charges that bear a task: soft-deleted servers leave the quota of their project, restored ones join it,
resized ones keep the share of their flavor.

The API notes in the charge which task decides about it before it writes that task into the cell. Once the task is over
there, the cell's row says what the charge has to be. A task that its cell has not heard of after a while is given up:
the cell refuses it from then on, so that nothing is settled behind its back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from skep.database import Connection
from skep.database.api import build_requests, task_charges
from skep.database.api.task_charges import TaskCharge
from skep.database.cell import owed
from skep.database.cell.owed import Owed
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 200
GIVE_UP_SECONDS = 60.0
"""How long a process of the API may take from writing the charge to writing the task."""


class Charges:
    """Settles charges by what their servers are, once the tasks that they bear are over."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Look at all charges that bear a task."""
        parts = self._parts
        by_cell: dict[CellUuid, list[TaskCharge]] = {}
        for charge in await parts.api.read(task_charges.waiting):
            if charge.cell in parts.cells and charge.cell not in parts.silent:
                by_cell.setdefault(charge.cell, []).append(charge)
        await asyncio.gather(*(self._settle_in(parts.cell(cell), found) for cell, found in by_cell.items()))
        return False

    async def _settle_in(self, access: CellAccess, charges: Sequence[TaskCharge]) -> None:
        for start in range(0, len(charges), BATCH):
            try:
                await self._settle(access, charges[start : start + BATCH])
            except SkepError as error:
                log.warning("charges not settled", cell=access.cell.name, error=str(error))
                return

    async def _settle(self, access: CellAccess, charges: Sequence[TaskCharge]) -> None:
        given_up_before = self._parts.clock.now() - round(GIVE_UP_SECONDS * SECOND)
        named = [(one.instance, one.task_id) for one in charges if one.since >= given_up_before]
        given_up = [(one.instance, one.task_id) for one in charges if one.since < given_up_before]
        # Resizes may rest for days: a look that writes nothing comes first.
        ready = await access.read(partial(owed.all_over, named=named, given_up=given_up))
        await self._correct(access, [one for one in charges if one.instance not in ready])
        if not ready:
            return

        def look(connection: Connection) -> list[tuple[TaskCharge, Owed]]:
            found = (
                (one, owed.settle(connection, one.instance, one.task_id, give_up=one.since < given_up_before))
                for one in charges
                if one.instance in ready
            )
            return [(one, told) for one, told in found if told is not None]

        over = await access.write(look)

        def write(connection: Connection) -> None:
            for one, told in over:
                if task_charges.settle(connection, one.instance, one.task_id, told.charge):
                    build_requests.follow_resize(connection, one.instance, told.spec)

        if over:
            await self._parts.api.write(write)

    async def _correct(self, access: CellAccess, charges: Sequence[TaskCharge]) -> None:
        """Charge resizes that rest for their two flavors alone, whatever was charged for others that were refused."""
        if not charges:
            return
        rest = await access.read(partial(owed.resting, uuids=[one.instance for one in charges]))
        wrong = [one for one in charges if rest.get(one.instance, one.charged) != one.charged]

        def write(connection: Connection) -> None:
            for one in wrong:
                task_charges.correct(connection, one.instance, one.task_id, rest[one.instance])

        if wrong:
            await self._parts.api.write(write)
