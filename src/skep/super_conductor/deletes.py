"""The story of a delete above the cells: the intent stands in the mapping; the cell's row is told; the end is noted.

A server without a cell is deleted by the API's own transaction. For all others the pass raises the attempt in the
cell's row, again and again until the row is deleted; then quota, mapping and spec are given up, once. A delete that was
accepted while the cell could not be read is refused there if the server is locked: the intent is withdrawn, and the
action of the delete says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypedDict

from skep.database import Connection
from skep.database.api import awaited_images, ends
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import DeleteIntent
from skep.database.cell import deletes as cell_deletes
from skep.database.cell import recovery
from skep.database.cell.deletes import Gone
from skep.database.cell.endings import with_instances
from skep.domain.actions import Ended, Over
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.volumes import VolumesOfServers
from skep.telemetry import endings
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 100

RELEASE_SECONDS = 10.0
"""In which the ports and volumes of servers are released before they are gone for their users."""


class Deletes:
    """Follows deletes until nothing is left of the server above its cell."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._volumes = VolumesOfServers(parts)
        self.nudge_forget: Callable[[], None] = lambda: None
        """Has `forget` run soon: cell0 has no conductor that tells of its deletes."""

    async def begin(self) -> bool:
        """Act on delete intents: raise the attempts in the cells' rows."""
        parts = self._parts
        again = parts.after(parts.settings.resend_seconds)
        # Those in silent cells wait: however many they are, they hold up no others.
        unit = partial(mappings.deletes_due, now=parts.clock.now(), again_at=again, limit=BATCH, without=parts.silent)
        due = await parts.api.write(unit)
        by_cell: dict[CellUuid, list[DeleteIntent]] = {}
        for intent in due:
            if intent.cell in parts.cells:
                by_cell.setdefault(intent.cell, []).append(intent)
            else:
                log.warning(
                    "delete waits for a cell that is not configured", instance=intent.instance, cell=intent.cell
                )
        await asyncio.gather(*(self._begin_in(cell, intents) for cell, intents in by_cell.items()))
        return len(due) >= BATCH

    async def _begin_in(self, cell: CellUuid, intents: Sequence[DeleteIntent]) -> None:
        parts, access = self._parts, self._parts.cell(cell)
        contexts = [intent.context for intent in intents]
        named = _named_once([(intent.instance, intent.context.request_id) for intent in intents])
        async with parts.steps.step("delete", cell=access.cell.name, contexts=contexts, **named):
            now = parts.clock.now()

            def unit(connection: Connection) -> tuple[list[InstanceUuid], list[InstanceUuid], list[Over]]:
                absent: list[InstanceUuid] = []
                refused: list[InstanceUuid] = []
                ended: list[Ended] = []
                for intent in intents:
                    if (refusal := _refusal(connection, intent, now)) is not None:
                        ended.append(refusal)
                        refused.append(intent.instance)
                        continue
                    over = cell_deletes.begin(connection, intent.instance, intent.context, now)
                    ended += over or ()
                    # A row that was lost may be made anew before it is known what hosts have.
                    gone = over is None and cell_deletes.is_absent(connection, intent.instance)
                    if gone and recovery.under_way(connection) is None:
                        absent.append(intent.instance)
                return absent, refused, with_instances(connection, ended)

            try:
                absent, refused, over = await access.write(unit)
            except SkepError as error:
                log.warning("deletes not written to a cell", cell=access.cell.name, error=str(error))
                return
        endings.ended(parts.steps.metrics, parts.notifier, over)
        if refused:
            await parts.api.write(partial(mappings.withdraw_deletes, instances=refused))
        if absent:
            await self._forget_above([Gone(instance=instance, group=None) for instance in absent])
        await parts.nudge(cell, "deletes")
        if access.transport is None:
            self.nudge_forget()

    async def forget(self) -> bool:
        """Note the end of servers that their cells have deleted: of all cells."""
        return await self._parts.in_each_cell("ends of deletes", self.forget_in)

    async def forget_in(self, access: CellAccess) -> bool:
        """Note the end of servers that one cell has deleted."""
        gone = await access.read(partial(cell_deletes.unforgotten, limit=BATCH))
        if not gone:
            return False
        named = _named_once([(one.instance, one.request_id or "") for one in gone])
        async with self._parts.steps.step("forget", cell=access.cell.name, **named):
            await self._forget_above(gone)
            uuids = [one.instance for one in gone]
            await access.write(partial(cell_deletes.mark_forgotten, uuids=uuids))
        return len(gone) >= BATCH

    async def _forget_above(self, gone: Sequence[Gone]) -> None:
        # First, and however long it takes: afterwards no row says what the volume service is still to be told.
        held = await self._volumes.note_ended(gone)
        await asyncio.gather(self._release_ports(gone), self._release_volumes(held))
        await self._parts.api.write(partial(_end, gone=gone, now=self._parts.clock.now()))

    async def _release_ports(self, gone: Sequence[Gone]) -> None:
        """Release ports before users see that servers are gone: they delete networks and groups next.

        A network service that does not answer holds nothing up for long: the ports follow once it does.
        """
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._parts.networks.release_ended({one.instance: one.has_interfaces for one in gone})
        except (SkepError, TimeoutError) as error:
            log.warning("ports not released yet", members=len(gone), error=str(error) or "too slow")

    async def _release_volumes(self, held: Sequence[InstanceUuid]) -> None:
        """Release volumes likewise: users attach them elsewhere next, or delete them."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._volumes.release_ended(held)
        except (SkepError, TimeoutError) as error:
            log.warning("volumes not released yet", members=len(held), error=str(error) or "too slow")


def _end(connection: Connection, gone: Sequence[Gone], now: int) -> None:
    """Note the end of servers, and have the images deleted in which the content of shelved ones was."""
    for one in gone:
        if one.image_id is not None and one.project_id is not None:
            request = one.request_id or ""
            awaited_images.await_shelved(connection, one.image_id, one.instance, request, one.project_id, now)
    ends.end(connection, instances=[one.instance for one in gone], now=now)


def _refusal(connection: Connection, intent: DeleteIntent, now: int) -> Ended | None:
    """Refuse a delete in its server's row if a lock that could not be read before binds who asked for it."""
    if not intent.unless_locked:
        return None
    return cell_deletes.refuse_if_locked(connection, intent.instance, intent.context, now)


class _Named(TypedDict, total=False):
    members: int
    request: str
    instance: InstanceUuid


def _named_once(of: Sequence[tuple[InstanceUuid, str]]) -> _Named:
    """Return what a line about deletes can say: the server and the request where it is one, else how many."""
    if len(of) > 1:
        return {"members": len(of)}
    [(instance, request)] = of
    return {"instance": instance, "request": request}
