"""The story of cold moves between cells: what no cell can do alone.

A move for which its cell has no host gets one in another (`seek`): the server is staged there as one that is away, with
its move. Then both cells have the move, and each has its own host take steps; what is newer in one is copied to the
other. When the disks are there, one statement on the mapping hands the server over. What is away is kept for as long as
the move of the server says that it may be needed, and let go then.

Nothing is owned here but the choice of a host: each write is fenced by the move's turn, and each pass goes on from what
the two cells and the mapping say.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from skep.database import Connection, timelines
from skep.database.api import instance_mappings as mappings
from skep.database.api import moves as above
from skep.database.api import recovery, server_ports
from skep.database.api.destinations import StagedMember, still_open
from skep.database.cell import between_cells as below
from skep.database.cell import hand_overs
from skep.database.cell import recovery as cell_recovery
from skep.database.cell.between_cells import CellAbility, PartOfMove, Seeking, Sought
from skep.database.cell.cold_moves import Move
from skep.database.cell.tables import time as cell_time
from skep.domain.actions import Over
from skep.domain.builds import Decision, Explanation, NotReady, NoValidHost, Placed
from skep.domain.claims import ClaimKey
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError, StorageUnavailable, Unavailable
from skep.domain.event_types import NO_HOST_ERRORS
from skep.domain.ids import CELL0, CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.leaving import in_other_cells
from skep.domain.moves import HANDING_OVER, SEEK
from skep.domain.states import ENDS
from skep.domain.timelines import Moment
from skep.messages.to_scheduler import Member, ReleaseClaims, SelectDestinations
from skep.super_conductor import notifications
from skep.super_conductor.decisions import not_final
from skep.super_conductor.events import copy_of_server
from skep.super_conductor.locations import resolved
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry import endings
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER

log = get_logger(__name__)

BATCH = 50
AWAITED_SECONDS = 2.0
"""For how long a cell waits for another before it is looked whether that one still has its part of a move."""
PAUSE_SECONDS = 0.5
"""Between two looks for a host while no scheduler can decide."""


class BetweenCells:
    """Moves servers between cells for whose cold moves their own cell has no host."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Look at every cell for moves that wait for another, and for servers that are away.

        Not while the API database recovers: which cell has a server is not known then.
        """
        if await self._parts.api.read(recovery.under_way) is not None:
            return False
        return await self._parts.in_each_cell("moves between cells", self._run_in)

    async def _run_in(self, access: CellAccess) -> bool:
        if access.cell.is_cell0:
            return False
        seeking = await access.read(partial(below.seeking, now=self._parts.clock.now(), limit=BATCH))
        for one in seeking:
            await self._try(access, one.instance, self._seek(access, one))
        since = self._parts.clock.now() - round(AWAITED_SECONDS * SECOND)
        after = ""
        while waiting := await access.read(partial(below.awaiting, since=since, after=after, limit=BATCH)):
            for part in waiting:
                await self._try(access, part.move.instance, self._give_up(access, part))
            after = waiting[-1].move.uuid
        after, more = "", len(seeking) >= BATCH
        while page := await access.read(partial(below.away, after=after, limit=BATCH)):
            for uuid in page:
                more |= await self._try(access, uuid, self._go_on(access, uuid))
            after = page[-1]
        return more

    async def _try(self, access: CellAccess, instance: InstanceUuid, work: object) -> bool:
        """One that fails does not hold up the others; it is found again."""
        try:
            return bool(await work)  # type: ignore[misc]
        except SkepError as error:
            log.warning("move between cells put off", instance=instance, cell=access.cell.name, error=str(error))
        except Exception:
            log.exception("move between cells put off", instance=instance, cell=access.cell.name)
        return False

    # --- a host in another cell ---------------------------------------------------------------------

    async def _seek(self, access: CellAccess, one: Seeking) -> bool:
        parts = self._parts
        take = partial(
            above.take,
            owner=parts.owner,
            instance=one.instance,
            cell=access.cell.uuid,
            attempt=one.highest,
            now=parts.clock.now(),
        )
        taken = await parts.api.write(take)
        if taken is None:
            return False
        late_before = parts.clock.now() - round(parts.settings.not_ready_deadline * SECOND)
        sought = await access.write(partial(below.take, uuid=one.uuid, taken=taken, late_before=late_before))
        if sought is None:
            # Another conductor has found a host since this one looked, or the move is over.
            unit = partial(above.take_no_more, owner=parts.owner, instance=one.instance, taken=taken)
            await parts.api.write(unit)
            return False
        await self._elsewhere(access, sought, taken)
        await self._let_go(one.instance)
        return True

    async def _let_go(self, instance: InstanceUuid) -> None:
        """Own a server no more; before the write after which it is sought no more, so that nobody is left its owner."""
        await self._parts.api.write(partial(above.give_back, owner=self._parts.owner, instance=instance))

    async def _elsewhere(self, access: CellAccess, sought: Sought, taken: int) -> None:
        parts, known = self._parts, sought.move
        async with parts.steps.step(
            "seek",
            request=known.context.request_id,
            instance=known.instance,
            attempt=taken,
            cell=access.cell.name,
            contexts=(sought.work.context,),
        ) as run:
            decision = await self._decision(access, sought, taken)
            if isinstance(decision, Placed):
                run.note(chosen=decision.host)
                if await self._stage(access, sought, decision):
                    return
                decision = NotReady(reason="the cell that has a host for it takes none at the moment")
            match decision:
                case NotReady() if not sought.too_late:
                    run.outcome = "not_ready"
                    again = partial(below.later, known=known, not_before=parts.after(PAUSE_SECONDS))
                    await access.write(again)
                case NotReady():
                    run.outcome = "no_valid_host"
                    await self._nowhere(access, sought, decision.reason)
                case NoValidHost():
                    run.outcome = "no_valid_host"
                    await self._nowhere(access, sought, decision.message())

    async def _decision(self, access: CellAccess, sought: Sought, taken: int) -> Decision:
        parts, known = self._parts, sought.move
        if len(sought.tried) >= parts.max_attempts * parts.max_cells:
            return NoValidHost(explanation=Explanation(considered=0), reason=f"{len(sought.tried)} hosts were tried")
        others = await self._able(access)
        cells = {cell: able for cell, able in others.items() if able is not None and able.conductors}
        if not cells and None in others.values():
            return NotReady(reason="no other cell answers")
        if not cells:
            return NoValidHost(explanation=Explanation(considered=0), reason="no other cell can have a part in it")
        unable: list[NodeUuid] = [node for able in cells.values() for node in able.unable]
        spec = msgspec.structs.replace(
            sought.work.spec, forced_host=None, forced_node=None, requested_host=known.wanted_host, requested_node=None
        )
        silent = parts.silent
        try:
            request = SelectDestinations(
                spec=await resolved(parts, spec, [known.instance]),
                members=(Member(known.instance, taken),),
                exclude_cells=tuple(cell for cell in parts.cells if cell not in cells),
                ignore=tuple(dict.fromkeys((*sought.tried, *unable))),
                alternates=0,
                source_cell=access.cell.uuid,
            )
            reply = await parts.transport.call(SCHEDULER, request, context=known.context)
        except SkepError as error:
            log.warning("no decision", instance=known.instance, attempt=taken, error=str(error))
            why = f"no scheduler answered: {error}" if isinstance(error, Unavailable) else "the scheduler failed"
            return NotReady(reason=why)
        decision = reply.decisions[0]
        return not_final(decision) if set(silent) - {access.cell.uuid, CELL0} else decision

    async def _able(self, access: CellAccess) -> dict[CellUuid, CellAbility | None]:
        """Ask all other cells whether they may have a part; None: it does not answer."""
        parts = self._parts
        others = [one for uuid, one in parts.cells.items() if uuid != access.cell.uuid and not one.cell.is_cell0]

        async def ask(other: CellAccess) -> CellAbility | None:
            try:
                return await other.read(partial(below.able, now=parts.clock.now()))
            except SkepError:
                return None

        return dict(zip([one.cell.uuid for one in others], await asyncio.gather(*map(ask, others)), strict=True))

    async def _stage(self, access: CellAccess, sought: Sought, placed: Placed) -> bool:
        """Stage the server there as one that is away, then write here where it goes; False where it is not taken."""
        parts, known = self._parts, sought.move
        group = sought.work.spec.group.uuid if sought.work.spec.group else None
        key = ClaimKey(known.instance, known.dest_attempt or 0, placed.node, group)
        try:
            other = parts.cell(placed.cell)
            async with parts.steps.step(
                "stage_move",
                request=known.context.request_id,
                instance=known.instance,
                attempt=key.attempt,
                host=placed.host,
                cell=other.cell.name,
            ):
                staging = partial(
                    below.stage, sought=sought, placed=placed, home=access.cell.uuid, now=parts.clock.now()
                )
                written = await other.write(staging)
        except SkepError:
            await parts.transport.call(SCHEDULER, ReleaseClaims(claims=(key,)))
            raise
        if not written:
            await parts.transport.call(SCHEDULER, ReleaseClaims(claims=(key,)))
            return False
        news = await other.read(partial(below.part, instance=known.instance, uuid=known.uuid))
        await self._let_go(known.instance)
        if news is not None:
            await self._follow(access, news, other)
        await parts.nudge(other.cell.uuid)
        return True

    async def _nowhere(self, access: CellAccess, sought: Sought, why: str) -> None:
        """No cell has a host: the move comes to nothing."""
        parts, known = self._parts, sought.move
        said = in_other_cells(known.error or "", why)
        if not any(uuid != access.cell.uuid and not one.cell.is_cell0 for uuid, one in parts.cells.items()):
            said = known.error or why
        await self._let_go(known.instance)
        over: list[Over] = await access.write(partial(below.not_found, known=known, why=said, now=parts.clock.now()))
        if over:
            name = NO_HOST_ERRORS[known.action]
            notifications.no_host_for_move(parts.notifier, sought.work, name, known.context, said)
        endings.ended(parts.steps.metrics, parts.notifier, over)

    # --- what goes on in two cells ------------------------------------------------------------------

    async def _go_on(self, access: CellAccess, instance: InstanceUuid) -> bool:
        """Go on with the move of a server that is away from this cell; True when something was written."""
        parts = self._parts
        mapping = await parts.api.read(partial(mappings.get, instance=instance))
        if mapping is None:
            others = [one for uuid, one in parts.cells.items() if uuid != access.cell.uuid]
            found = await asyncio.gather(*(one.read(partial(below.row_there, instance=instance)) for one in others))
            if any(one is not None and (one.rests or one.state not in ENDS) for one in found):
                log.warning("server without a mapping kept", instance=instance, cell=access.cell.name)
                return False
            return await self._fold(access, instance, None, None)
        if mapping.deleted_at is not None:
            return await self._fold(access, instance, None, None)
        if mapping.cell is None or mapping.cell == access.cell.uuid:
            # This row is the server: the other one is away, too, and the move goes on from there.
            return False
        mine = await access.read(partial(below.part, instance=instance))
        other = parts.cell(mapping.cell)
        there = mine and await other.read(partial(below.part, instance=instance, uuid=mine.move.uuid))
        if mapping.owner is not None:
            # A cell that still seeks a host may be told of the number that the dead one took: it stays taken.
            number = _number(there.move) if there is not None and there.move.step not in (SEEK, None) else None
            letting_go = partial(above.let_go_of_dead, instance=instance, number=number, now=parts.clock.now())
            await parts.api.write(letting_go)
        if mine is None:
            return await self._fold_beside(access, instance, None, other)
        return await self._between(access, mine, other, there)

    async def _between(self, access: CellAccess, mine: PartOfMove, other: CellAccess, there: PartOfMove | None) -> bool:
        """Go on with a move of which this cell and the one that has the server know this."""
        instance = mine.move.instance
        if there is None:
            # The other cell has forgotten the move: its database went back in time. What is here may be all there is.
            return await self._fold_beside(access, instance, mine, other)
        if there.rests:
            return False
        if there.is_over:
            is_nowhere = there.state is State.AWAY and not there.deleting
            is_kept = is_nowhere or below.keeps(mine, there)
            return not is_kept and await self._fold(access, instance, mine, there)
        if _is_stray(access.cell.uuid, mine, there):
            return await self._fold(access, instance, mine, there)
        step, turn = there.move.step, there.move.turn
        if mine.move.turn > turn:
            return await self._follow(other, mine, access)
        if mine.move.turn < turn:
            return await self._follow(access, there, other)
        if step in HANDING_OVER:
            return await self._hand_over(access, mine, other, there)
        return False

    async def _give_up(self, access: CellAccess, mine: PartOfMove) -> bool:
        """Let a move go on without a cell that has lost its part, or does not answer in time."""
        parts, known = self._parts, mine.move
        other = parts.cells.get(mine.other) if mine.other is not None else None
        why = below.SILENT_CELL
        try:
            if other is None:
                raise StorageUnavailable("this process does not know the cell")
            there = await other.read(partial(below.part, instance=known.instance, uuid=known.uuid))
            recovers = await other.read(cell_recovery.under_way) is not None if there is None else there.rests
        except SkepError:
            there, recovers = None, True
        if recovers:
            if parts.clock.now() - mine.step_at < parts.settings.move_deadline * SECOND:
                return False
        else:
            if there is not None and there.state is not State.MOVED and not there.deleting:
                return False
            why = below.LOST_PART
        stays = partial(above.stays, instance=known.instance, cell=access.cell.uuid, attempt=_number(known) or 0)
        if not await parts.api.write(stays):
            return False
        log.warning(
            "step of a move given up", instance=known.instance, cell=access.cell.name, step=known.step, why=why.error
        )
        done: bool = await access.write(
            partial(
                below.give_up,
                uuid=known.uuid,
                turn=known.turn,
                why=why,
                now=parts.clock.now(),
                most_hosts=parts.max_attempts,
            )
        )
        await parts.nudge(access.cell.uuid)
        return done

    async def _follow(self, access: CellAccess, news: PartOfMove, home: CellAccess) -> bool:
        """Copy to a cell what the other one knows."""
        parts = self._parts
        async with parts.steps.step(
            "follow_move",
            request=news.move.context.request_id,
            instance=news.move.instance,
            attempt=news.attempt,
            cell=access.cell.name,
        ):
            unit = partial(below.follow, uuid=news.move.uuid, news=news, home=home.cell.uuid, now=parts.clock.now())
            done: bool = await access.write(unit)
        if done:
            await parts.nudge(access.cell.uuid)
        return done

    async def _fold(
        self, access: CellAccess, instance: InstanceUuid, mine: PartOfMove | None, there: PartOfMove | None
    ) -> bool:
        parts = self._parts
        attempt = 0 if there is None else there.attempt
        request = mine.move.context.request_id if mine is not None else ""
        async with parts.steps.step("fold", request=request, instance=instance, attempt=attempt, cell=access.cell.name):
            done: bool = await access.write(
                partial(below.fold, instance=instance, mine=mine, there=there, now=parts.clock.now())
            )
        await parts.nudge(access.cell.uuid)
        return done

    async def _fold_beside(
        self, access: CellAccess, instance: InstanceUuid, mine: PartOfMove | None, other: CellAccess
    ) -> bool:
        """Let a server that is away go if the other cell has it whole, though nothing of the move is known there."""
        stands = await other.read(partial(below.row_there, instance=instance))
        return stands is not None and stands.lives and await self._fold(access, instance, mine, None)

    async def _hand_over(self, access: CellAccess, mine: PartOfMove, other: CellAccess, there: PartOfMove) -> bool:
        """Give the server to the cell that it goes to, by one statement on the mapping.

        Its row is frozen first, so that no action begins that the other cell does not know. The row in the other cell
        is seen from that statement on, and taken up then.
        """
        parts, known = self._parts, there.move
        forth = known.row.holder == "source"
        goes_here = forth is not mine.is_source
        number = _number(known)
        assert number is not None
        into, out_of = (access, other) if goes_here else (other, access)
        request = known.context.request_id
        async with parts.steps.step(
            "hand_over", request=request, instance=known.instance, attempt=number, cell=into.cell.name
        ) as run:
            freezing = partial(hand_overs.freeze, uuid=known.uuid, turn=known.turn, now=parts.clock.now())
            traveller = await out_of.write(freezing)
            if traveller is None:
                run.outcome = "replaced"
                return False
            if goes_here:
                await copy_of_server(parts, out_of, known.instance)
                pointed: bool | None = False
                if await into.read(partial(hand_overs.may_land, uuid=known.uuid, turn=known.turn)):
                    pointed = await self._point(known.instance, out_of, into, number, there, forth=forth)
                if pointed is None:
                    run.outcome = "put_off"
                    return False
                if not pointed:
                    run.outcome = "refused"
                    return await self._stays(out_of, there, number)
        async with parts.steps.step(
            "land", request=request, instance=known.instance, attempt=number, cell=into.cell.name
        ):
            moment = parts.time.moment if parts.time is not None else None
            done: bool = await into.write(
                partial(
                    _landing,
                    moment=moment,
                    land=partial(
                        hand_overs.land,
                        uuid=known.uuid,
                        turn=known.turn,
                        traveller=traveller,
                        home=out_of.cell.uuid,
                        now=parts.clock.now(),
                    ),
                )
            )
        await parts.nudge(into.cell.uuid)
        return done

    async def _point(
        self,
        instance: InstanceUuid,
        out_of: CellAccess,
        into: CellAccess,
        number: int,
        there: PartOfMove,
        *,
        forth: bool,
    ) -> bool | None:
        """Point the mapping at the other cell; False when somebody wants the server deleted, or a host is closed.

        None: another conductor has taken it, which came too late to look for a host. It gives the server back, or it is
        let go of by the next pass if it has died.
        """
        parts = self._parts
        waits = parts.clock.now() - there.step_at < parts.settings.not_ready_deadline * SECOND

        def pointing(connection: Connection) -> tuple[bool | None, Moment | None]:
            if forth and there.move.dest_node is not None:
                goes = StagedMember(
                    instance=instance, attempt=number, revision=0, node=there.move.dest_node, although_disabled=True
                )
                if not still_open(connection, into.cell.uuid, [goes]):
                    return False, None
            done = above.hand_over(connection, instance, out_of.cell.uuid, into.cell.uuid, number)
            if done:
                # What its row was told after it was copied, the copy does not know.
                server_ports.note_servers(connection, parts.clock.now(), [instance])
            if not done and waits and above.is_taken(connection, instance):
                return None, None
            return done, parts.advance(connection) if done else None

        moved, moment = await parts.api.write(pointing)
        parts.advanced(moment)
        return moved

    async def _stays(self, out_of: CellAccess, there: PartOfMove, number: int) -> bool:
        """The mapping cannot follow: nobody is to move it any more, and the host takes its guest back."""
        parts, known = self._parts, there.move
        unit = partial(above.stays, instance=known.instance, cell=out_of.cell.uuid, attempt=number)
        if not await parts.api.write(unit):
            return False
        why = "The other cell takes the server no more: its host is closed or fenced, or the server is to be deleted"
        done: bool = await out_of.write(
            partial(hand_overs.thaw, uuid=known.uuid, turn=known.turn, why=why, now=parts.clock.now())
        )
        await parts.nudge(out_of.cell.uuid)
        return done


def _number(move: Move) -> int | None:
    """Return the attempt under which a move hands its server over next; None: none is taken yet."""
    return move.dest_attempt if move.row.holder == "source" else move.back_attempt


def _is_stray(cell: CellUuid, mine: PartOfMove, there: PartOfMove) -> bool:
    """Tell whether what is away in a cell was staged there, and the move goes elsewhere by now.

    By a conductor that another one has replaced, or in a cell that was given up.
    """
    step = there.move.step
    if step == SEEK and mine.move.step != SEEK and mine.move.turn >= there.move.turn:
        return mine.move.dest_attempt != there.move.dest_attempt
    return there.is_source and step != SEEK and there.move.dest_cell != cell


def _landing(connection: Connection, moment: Moment | None, land: partial[bool]) -> bool:
    """Give a server to its cell, which remembers the moment of the API database in which the mapping named it."""
    if moment is not None:
        timelines.saw(connection, cell_time, moment)
    return bool(land(connection))
