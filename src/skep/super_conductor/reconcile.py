"""Repair above the cells: staged rows that nobody finished, and rows that are kept longer than the operator wants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skep.config.sections import RetentionSettings
from skep.database import Connection
from skep.database.api import host_networks, kept_answers, network_changes
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import builds as cell_builds
from skep.database.cell import deletes as cell_deletes
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import ReleaseClaims
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.timelines import settle
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

BATCH = 200

StagedRow = tuple[InstanceUuid, int, NodeUuid | None]


class Leftovers:
    """Finishes or removes staged rows whose conductor died between mapping them and letting them go."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Look at every cell for rows that have been staged for too long."""
        return await self._parts.in_each_cell("staged rows", self._run_in)

    async def _run_in(self, access: CellAccess) -> bool:
        parts = self._parts
        before = parts.clock.now() - round(parts.settings.resend_seconds * SECOND)
        rows = await access.read(partial(cell_builds.staged_before, before=before, limit=BATCH))
        if not rows:
            return False
        found = await parts.api.read(partial(mappings.get_many, instances=[instance for instance, _, _ in rows]))
        mapped, orphans = _sorted_out(rows, found, access.cell.uuid)
        if mapped:
            moment = await parts.api.write(parts.advance)
            parts.advanced(moment)
            await settle(parts, access, mapped, moment)
            await parts.nudge(access.cell.uuid, "builds")
        if orphans:
            await self._remove(access, orphans)
        log.info("staged rows finished", cell=access.cell.name, settled=len(mapped), removed=len(orphans))
        return len(rows) >= BATCH and bool(mapped or orphans)

    async def _remove(self, access: CellAccess, orphans: Sequence[StagedRow]) -> None:
        def unit(connection: Connection) -> list[ClaimKey]:
            return [key for orphan in orphans for key in cell_builds.unstage(connection, orphan[0], orphan[1])]

        keys = await access.write(unit)
        if keys:
            await self._parts.transport.call(SCHEDULER, ReleaseClaims(claims=tuple(keys)))


def _sorted_out(
    rows: Sequence[StagedRow], found: dict[str, Mapping], cell: CellUuid
) -> tuple[list[tuple[InstanceUuid, int]], list[StagedRow]]:
    """Tell rows that their mapping names from those that it does not; leave alone what is being placed right now.

    A row whose mapping has its attempt may be mapped the next moment, so only a raised attempt or the server's
    end makes an orphan of it: also where the mapping names the cell, when that has gone back to before the end.
    """
    mapped: list[tuple[InstanceUuid, int]] = []
    orphans: list[StagedRow] = []
    for instance, attempt, node in rows:
        mapping = found.get(instance)
        if mapping is not None and mapping.cell == cell and mapping.deleted_at is None:
            mapped.append((instance, attempt))
        elif mapping is None or mapping.attempt > attempt or mapping.deleted_at:
            orphans.append((instance, attempt, node))
    return mapped, orphans


def _purged_of_themselves(connection: Connection, now: int, limit: int) -> int:
    """Purge a batch of each of what is kept for a time of its own, and return how many rows of one at most."""
    before = now - network_changes.KEPT_SECONDS * SECOND
    return max(
        kept_answers.purge(connection, now, limit),
        network_changes.purge(connection, before, limit),
        host_networks.purge_tunnels(connection, before, limit),
    )


class Retention:
    """Purges what was deleted long ago, in small batches."""

    def __init__(self, parts: Parts, settings: RetentionSettings) -> None:
        self._parts = parts
        self._settings = settings

    async def run(self) -> bool:
        """Purge one batch in each database; True when some may be left."""
        now, most = self._parts.clock.now(), self._settings.batch_rows
        more = await self._parts.api.write(partial(_purged_of_themselves, now=now, limit=most)) >= most
        if self._settings.days == 0:
            return more
        before = self._parts.clock.now() - self._settings.days * 86_400 * SECOND
        rows = self._settings.batch_rows
        gone = await self._parts.api.write(partial(mappings.purge, before=before, limit=rows))

        async def purge(access: CellAccess) -> bool:
            return await access.write(partial(cell_deletes.purge, before=before, limit=rows)) >= rows

        return await self._parts.in_each_cell("purging", purge) or gone >= rows or more
