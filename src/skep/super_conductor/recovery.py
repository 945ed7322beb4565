"""The story of databases that went back in time, seen from above: mappings follow rows, rows follow what is mapped.

A cell's database that went back is compared with the mappings once its hosts have told what they have; the API database
that went back is compared with the rows of all cells. Where one of them alone went back, the other is right. What
neither can know is left to an operator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import msgspec

from skep.database import Connection, timelines
from skep.database.api import instance_mappings, server_ports
from skep.database.api import recovery as above
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import actions, between_cells, comparing, deletes
from skep.database.cell import recovery as below
from skep.database.cell.comparing import Living
from skep.database.cell.tables import time as cell_time
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance, State
from skep.domain.recovery import ENDED
from skep.domain.states import PLACELESS
from skep.domain.vifs import LostPort
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.timelines import exchange
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

PAGE = 200


class ServerInCells(msgspec.Struct, frozen=True):
    """What the cells say of one server."""

    rows: dict[CellUuid, Living]
    guests: tuple[str, ...]
    """Hosts that have something of it."""
    highest: int
    homes: tuple[CellUuid, ...]
    """Cells whose hosts have something of it."""
    deleted: bool
    """Whether a host remembers that it was deleted."""
    staged: bool
    """Whether all of them have a staged row of it, which follows its guest once it is mapped."""


class Recovery:
    """Compares databases of which one went back, and mends what follows from the other."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Do what can be done now; cells whose hosts have not all told wait."""
        state = await self._parts.api.read(above.under_way)
        if state is not None:
            await self._recover_api(state.timeline)
            state = await self._parts.api.read(above.under_way)
        if state is None:
            await self._parts.in_each_cell("recovery", self._compare)
        return False

    # --- the API database went back -----------------------------------------------------------------

    async def _recover_api(self, timeline: int) -> None:
        """Have mappings follow the rows of the cells. Nothing is concluded before every cell was read."""
        accesses = list(self._parts.cells.values())
        for access in accesses:
            if await access.read(_hosts_awaited):
                return
        for access in accesses:
            await self._follow_rows(access)
        for access in accesses:
            await self._follow_ends(access)
        after = InstanceUuid("")
        while page := await self._parts.api.read(partial(above.undecided, after=after, limit=PAGE)):
            for instance, seen in (await self._seen(page)).items():
                await self._decide(instance, seen)
            after = page[-1]
        if await self._parts.api.write(partial(above.end, timeline=timeline)):
            log.warning("the API database recovered", timeline=timeline)

    async def _follow_rows(self, access: CellAccess) -> None:
        after = ""
        while page := await access.read(partial(comparing.living, after=after, limit=PAGE)):
            uuids = [one.uuid for one in page]
            found = await self._parts.api.read(partial(instance_mappings.get_many, instances=uuids))
            for one in page:
                mapping = found.get(one.uuid)
                if mapping is None or (mapping.deleted_at is None and mapping.cell != access.cell.uuid):
                    await self._follow(access, one, mapping)
            after = uuids[-1]

    async def _follow(self, access: CellAccess, row: Living, mapping: Mapping | None) -> None:
        """Point a mapping at this row, if no other cell has one that goes before it."""
        cell, parts = access.cell.uuid, self._parts
        rows = (await self._seen([row.uuid]))[row.uuid].rows
        best = max(rows.items(), key=lambda item: (item[1].state not in PLACELESS, item[1].attempt), default=None)
        placed = [uuid for uuid, one in rows.items() if one.state not in PLACELESS]
        if best is None or best[0] != cell or len(placed) > 1:
            return
        known = await access.read(partial(comparing.server, uuid=row.uuid))
        if known is None:
            return
        server = above.MappedServer(instance=known.instance, spec=known.spec, context=known.context)
        follow = partial(
            above.follow_row,
            server=server,
            before=mapping,
            cell=cell,
            now=parts.clock.now(),
            has_ports=not parts.networks.elsewhere,
        )
        lost = await parts.api.write(follow)
        if lost is not None:
            log.warning("mapping corrected to its row", instance=row.uuid, cell=access.cell.name, attempt=row.attempt)
        if lost:
            await self._tell_lost(access, known.instance, lost)

    async def _tell_lost(self, access: CellAccess, server: Instance, lost: Sequence[LostPort]) -> None:
        """Tell the owner of a server, its row and the log of interfaces that cannot be had again."""
        now = self._parts.clock.now()
        await access.write(partial(actions.tell_lost, server=server, lost=lost, now=now))
        await self._parts.api.write(partial(server_ports.note_server, now=now, instance=server.uuid))
        for one in lost:
            log.warning("interface lost", instance=server.uuid, port=one.id, why=one.for_operator)

    async def _follow_ends(self, access: CellAccess) -> None:
        """Have the level above told again of deleted rows whose servers live on in the mappings."""
        after = ""
        while page := await access.read(partial(comparing.deleted, after=after, limit=PAGE)):
            found = await self._parts.api.read(partial(instance_mappings.get_many, instances=page))
            lives = [
                uuid
                for uuid in page
                if uuid in found
                and found[uuid].deleted_at is None
                and found[uuid].cell in (None, access.cell.uuid)
                and not await self._is_anywhere(InstanceUuid(uuid))
            ]
            if lives:
                await access.write(partial(deletes.tell_again, uuids=lives))
                await self._parts.api.write(partial(above.let_go, instances=lives))
                log.warning("deletes written again", cell=access.cell.name, servers=len(lives))
            after = page[-1]

    async def _is_anywhere(self, instance: InstanceUuid) -> bool:
        return bool((await self._seen([instance]))[instance].rows)

    async def _decide(self, instance: InstanceUuid, seen: ServerInCells) -> None:
        """Decide about a server that had no cell and that no row was found of."""
        if len(seen.rows) > 1:
            names = ", ".join(sorted(self._parts.cells[cell].cell.name for cell in seen.rows))
            await self._parts.api.write(partial(above.doubt, instance=instance, reason=f"rows in {names}"))
        elif len(seen.homes) == 1 and seen.staged:
            follow = partial(above.follow, instance=instance, before=None, cell=seen.homes[0])
            await self._parts.api.write(follow)
        elif seen.guests:
            reason = f"guests on {', '.join(seen.guests)}"
            await self._parts.api.write(partial(above.doubt, instance=instance, reason=reason))
        elif seen.deleted and not seen.rows:
            await self._parts.api.write(partial(above.doubt, instance=instance, reason=ENDED.reason))
        elif not seen.rows:
            now = self._parts.clock.now()
            await self._parts.api.write(partial(above.go_on, instance=instance, highest=seen.highest, now=now))
            log.warning("server without a row to be placed again", instance=instance, above_attempt=seen.highest)

    async def _seen(self, uuids: list[InstanceUuid]) -> dict[InstanceUuid, ServerInCells]:
        """Return what all cells say of servers. Raises StorageUnavailable when one cannot be read."""
        rows: dict[InstanceUuid, dict[CellUuid, Living]] = defaultdict(dict)
        guests: dict[InstanceUuid, list[str]] = defaultdict(list)
        highest: dict[InstanceUuid, int] = defaultdict(int)
        homes: dict[InstanceUuid, list[tuple[CellUuid, bool]]] = defaultdict(list)
        deleted: set[InstanceUuid] = set()
        for cell, access in list(self._parts.cells.items()):
            said = await access.read(partial(comparing.say, uuids=uuids))
            for one in said:
                highest[one.uuid] = max(highest[one.uuid], one.highest)
                guests[one.uuid] += one.hosts
                if one.deleted:
                    deleted.add(one.uuid)
                if one.hosts:
                    homes[one.uuid].append((cell, one.staged))
                if one.living is not None:
                    rows[one.uuid][cell] = one.living
        return {
            uuid: ServerInCells(
                rows[uuid],
                tuple(sorted(guests[uuid])),
                highest[uuid],
                tuple(cell for cell, _ in homes[uuid]),
                uuid in deleted,
                all(staged for _, staged in homes[uuid]),
            )
            for uuid in uuids
        }

    # --- a cell's database went back ----------------------------------------------------------------

    async def _compare(self, access: CellAccess) -> bool:
        """Compare a cell that recovers with the mappings, once its hosts have told what they have."""
        state = await access.read(below.under_way)
        if state is None or state.compared_at is not None:
            return False
        await self._expect_hosts(access)
        if await access.read(_hosts_awaited):
            return False
        # The hosts' reports may show that the API database went back, too. Its recovery reads them before they go.
        await exchange(self._parts, access)
        if await self._parts.api.read(above.under_way) is not None:
            return False
        await self._end_deleted(access)
        await self._remake(access)
        await access.write(
            partial(_note_compared, timeline=state.timeline, now=self._parts.clock.now()),
        )
        if access.transport is None:
            await access.write(partial(_end_without_hosts, timeline=state.timeline))
        await self._parts.nudge(access.cell.uuid)
        return False

    async def _expect_hosts(self, access: CellAccess) -> None:
        """Have the cell wait for hosts too that it has lost with their registration."""
        mapped = await self._parts.api.read(partial(above.hosts_of, cell=access.cell.uuid))
        await access.write(partial(comparing.expect_unknown, hosts=mapped))

    async def _end_deleted(self, access: CellAccess) -> None:
        """Delete rows again whose servers were deleted in the time that is lost."""
        after, parts = "", self._parts
        while page := await access.read(partial(comparing.living, after=after, limit=PAGE)):
            uuids = [one.uuid for one in page]
            found = await parts.api.read(partial(instance_mappings.get_many, instances=uuids))
            over = [uuid for uuid in uuids if uuid in found and found[uuid].deleted_at is not None]
            elsewhere = {
                uuid: cell
                for uuid in uuids
                if uuid in found and found[uuid].deleted_at is None
                if (cell := found[uuid].cell) is not None and cell != access.cell.uuid
            }
            unknown = [uuid for uuid in uuids if uuid not in found]
            now = parts.clock.now()
            moved = [uuid for uuid, cell in elsewhere.items() if not await self._left(access, uuid, cell)]
            if over or moved or unknown:
                await access.write(partial(comparing.follow_above, over=over, moved=moved, unknown=unknown, now=now))
            after = uuids[-1]

    async def _left(self, access: CellAccess, instance: InstanceUuid, cell: CellUuid) -> bool:
        """Have a server be away again that a move between cells gave to the other one in the time that is lost."""
        other = self._parts.cells.get(cell)
        mine = await access.read(partial(between_cells.part, instance=instance))
        if other is None or mine is None:
            return False
        there = await other.read(partial(between_cells.part, instance=instance, uuid=mine.move.uuid))
        if there is None or there.rests or there.state is State.AWAY or there.move.turn <= mine.move.turn:
            return False
        left: bool = await access.write(partial(comparing.be_away, uuid=instance, now=self._parts.clock.now()))
        if left:
            log.warning("server that was handed over is away again", instance=instance, cell=access.cell.name)
        return left

    async def _remake(self, access: CellAccess) -> None:
        """Make rows anew that the cell has lost, of servers whose guest one host described."""
        parts = self._parts
        lost = await access.read(comparing.lost)
        if not lost:
            return
        uuids = list(lost)
        found = await parts.api.read(partial(instance_mappings.get_many, instances=uuids))
        mine = [
            uuid
            for uuid in uuids
            if uuid in found and found[uuid].deleted_at is None and found[uuid].cell == access.cell.uuid
        ]
        specs = await parts.api.read(partial(above.specs_of, instances=mine))
        contexts = await parts.api.read(partial(above.contexts_of, instances=mine))
        for uuid in mine:
            if uuid in specs and uuid in contexts and len(lost[uuid]) == 1:
                remake = partial(
                    comparing.remake,
                    guest=lost[uuid][0],
                    spec=specs[uuid],
                    context=contexts[uuid],
                    now=parts.clock.now(),
                )
                if await access.write(remake):
                    log.warning("lost row restored", instance=uuid, cell=access.cell.name)


def _hosts_awaited(connection: Connection) -> bool:
    return bool(below.awaited_hosts(connection))


def _end_without_hosts(connection: Connection, timeline: int) -> None:
    """End the recovery of cell0, which has neither hosts nor conductors."""
    for uuid in below.undecided(connection, "", PAGE):
        below.let_go(connection, uuid)
    below.end_if_settled(connection, timeline)


def _note_compared(connection: Connection, timeline: int, now: int) -> None:
    timelines.note_compared(connection, cell_time, timeline, now)
