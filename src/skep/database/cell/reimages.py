"""Rebuilds for which a volume is filled anew: what their rows say of that, while a super conductor sees to it."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import move_steps, rebuilds, resting
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.cold_moves import COLUMNS, Move, is_held, move_of
from skep.database.cell.move_steps import Moved
from skep.database.cell.tables import migrations
from skep.database.cell.volumes import VolumesOfRow
from skep.database.constants import constants
from skep.domain.builds import BuildFailure
from skep.domain.images import Image
from skep.domain.instances import PowerState
from skep.domain.moves import REIMAGING
from skep.domain.volumes import ServerVolume

move = migrations.c


class Reimage(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that is to be filled anew, or is."""

    move: Move
    row: VolumesOfRow
    image: Image
    since: int
    """When its step began."""
    taken_at: int | None
    """When a process began to ask for it, of which nothing was heard since."""

    @property
    def root(self) -> ServerVolume | None:
        """The volume that the server boots from; None: its row has lost it."""
        return next((one for one in self.row.volumes if one.is_root), None)


def due(connection: sa.Connection, after: str, limit: int) -> tuple[list[Reimage], str | None]:
    """Return rebuilds that wait for a volume to be filled anew, in the order of the ids of their moves.

    Also the id behind which there are others; None: there are none.
    """
    rests = resting.move_rests(move.instance, move.source_host, move.dest_host)
    query = sa.select(*COLUMNS, move.step_at, move.granted, move.sent_at)
    waiting = query.where(move.step.in_(constants(REIMAGING)), move.uuid > after, ~rests)
    found = connection.execute(waiting.order_by(move.uuid).limit(limit)).all()
    here = [one for one in (_reimage(connection, said) for said in found) if one is not None]
    return here, found[-1].uuid if len(found) >= limit else None


def _reimage(connection: sa.Connection, found: Any) -> Reimage | None:
    known = move_of(found)
    row = cell_volumes.told(connection, [known.instance]).get(known.instance)
    if row is None or not is_held(connection, known):
        return None
    image = rebuilds.arguments(connection, known).reimage
    if image is None:
        return None
    taken_at = found.sent_at if found.granted else None
    return Reimage(move=known, row=row, image=image, since=found.step_at, taken_at=taken_at)


def take(connection: sa.Connection, known: Move, now: int, stale_before: int) -> bool:
    """Let one process ask for it; False where another one does, and took it after `stale_before`.

    What was taken as far in the future does not count: the clock was set back.
    """
    others = move.sent_at.between(stale_before, now + (now - stale_before))
    free = sa.or_(move.granted == sa.false(), ~others)
    mine = (move.uuid == known.uuid, move.step == known.step, free)
    if not is_held(connection, known):
        return False
    return bool(connection.execute(migrations.update().where(*mine).values(granted=True, sent_at=now)).rowcount)


def renew(connection: sa.Connection, known: Move, taken_at: int, now: int) -> bool:
    """Say again that the process that took it at `taken_at` asks; False where another one does, or it is over."""
    mine = (move.uuid == known.uuid, move.step == known.step, move.granted == sa.true(), move.sent_at == taken_at)
    return bool(connection.execute(migrations.update().where(*mine).values(sent_at=now)).rowcount)


def leave(connection: sa.Connection, known: Move, taken_at: int) -> None:
    """Let any process ask again, if the one that took it at `taken_at` still has it: what became of the question is
    not known.
    """
    mine = (move.uuid == known.uuid, move.step == known.step, move.sent_at == taken_at)
    connection.execute(migrations.update().where(*mine).values(granted=False, sent_at=None))


def done(connection: sa.Connection, known: Move, now: int) -> Moved | None:
    """Go on with the step after this one; None when the move is elsewhere by now."""
    attempt, host, _, _ = known.place()
    if attempt is None or host is None or known.step is None:
        return None
    return move_steps.done(
        connection,
        known.uuid,
        known.step,
        attempt,
        host,
        PowerState.NOSTATE,
        now,
        0,
        task_id=known.context.request_id,
    )


def failed(connection: sa.Connection, known: Move, why: BuildFailure, now: int) -> Moved | None:
    """Have the old guest made again, or the server be ERROR; None when the move is elsewhere by now."""
    attempt, host, _, _ = known.place()
    if attempt is None or host is None or known.step is None:
        return None
    return move_steps.failed(
        connection, known.uuid, known.step, attempt, host, why, now, 0, task_id=known.context.request_id
    )
