"""Cold moves between cells: both cells have the row of the move, and a row of the server. Where it is not it is `away`.

Each cell's conductors have their own hosts take steps, as inside a cell, and write what came of them. The level above
copies what is newer in one cell to the other (`turn`), and takes the steps that concern both: `seek` and the two that
hand the server over. The mapping says which row is the server.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import agents, attempts, cold_moves, hand_overs, move_steps, numbers, resting, travels
from skep.database.cell.attempts import NewAttempt
from skep.database.cell.builds import Work
from skep.database.cell.cold_moves import (
    COLUMNS,
    FINISHED,
    Move,
    anew,
    change,
    change_server,
    move_of,
)
from skep.database.cell.event_facts import no_news
from skep.database.cell.tables import AWAY, action_events, instances, leases, migrations
from skep.database.cell.tables import actions as action_table
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.transitions import moving
from skep.database.cell.travels import Traveller
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.database.upsert import insert
from skep.domain.actions import Over
from skep.domain.builds import BuildFailure, FailureKind, Placed
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import State
from skep.domain.moves import HANDING_OVER, HELD_BY, OF_SIDE, SEEK, STEPS
from skep.domain.states import SETTLED

row = instances.c
move = migrations.c
attempt = attempt_rows.c

UNDERSTANDS = '["moves_between_cells"]'
"""What conductors of cells say in their leases since they know the state `away`."""

CAPABILITY = "move_between_cells"
"""Of hosts whose agents look whether both hosts see one exchange, before they touch a guest."""

LOST_PART = BuildFailure(
    kind=FailureKind.RESCHEDULE, error="PartLost", message="The other cell has nothing of the move any more"
)
SILENT_CELL = BuildFailure(kind=FailureKind.RESCHEDULE, error="CellSilent", message="The other cell did not answer")

_OWN = frozenset({"uuid", "instance", "source_cell", "dest_cell", "turn", "elsewhere"})
"""Fields of a move that say it apart, or how its cell sees it."""
_NEWS = tuple(name for name in Move.__struct_fields__ if name not in _OWN)


_SOUGHT = sa.and_(move.step == SEEK, move.source_cell.is_(None))


class CellAbility(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a cell may have a part in a move between cells."""

    conductors: bool
    """All its conductors that live know of them."""
    unable: tuple[NodeUuid, ...]
    """Nodes that take part in none."""


class Seeking(msgspec.Struct, frozen=True, kw_only=True):
    """A move for which another cell is to be found."""

    uuid: str
    instance: InstanceUuid
    highest: int


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to choose a host for a move in another cell."""

    move: Move
    work: Work
    """As the target has to have it."""
    traveller: Traveller
    """What goes with it."""
    tried: tuple[NodeUuid, ...]
    too_late: bool


class PartOfMove(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell has of a move between cells."""

    move: Move
    state: State
    attempt: int
    highest: int
    task: str | None
    task_id: str | None
    deleting: bool
    step_at: int
    rests: bool = False
    """What became of the server is not known: a database went back in time."""
    events: tuple[dict[str, Any], ...]
    """Of the action that is under way."""
    actions: tuple[dict[str, Any], ...]

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it, so that the other cell need keep nothing."""
        return self.deleting or (self.move.step is None and self.move.status != FINISHED)

    @property
    def is_source(self) -> bool:
        """Whether the source of the move is in this cell."""
        return self.move.source_cell is None

    @property
    def other(self) -> CellUuid | None:
        """The cell that has the other part."""
        return self.move.dest_cell if self.is_source else self.move.source_cell


class RowThere(msgspec.Struct, frozen=True, kw_only=True):
    """How a cell has a server."""

    state: State
    rests: bool
    """What became of it is not known: the cell's database went back in time."""

    @property
    def lives(self) -> bool:
        """Whether it is there, as far as is known, whole."""
        return not self.rests and self.state in SETTLED and self.state is not State.ERROR


def able(connection: sa.Connection, now: int) -> CellAbility:
    """Tell whether this cell may have a part in moves between cells, and which of its nodes may not."""
    lease = leases.c
    older = sa.select(lease.owner).where(
        lease.role == "cell_conductor", lease.lapses_at > now, lease.understands.is_(None)
    )
    unable = agents.without(connection, "MoveStep", CAPABILITY)
    return CellAbility(conductors=connection.execute(older.limit(1)).first() is None, unable=tuple(unable))


def seek(connection: sa.Connection, known: Move, why: str, now: int) -> bool:
    """Have the level above look for a host in another cell, because this one has none; False where that may not be."""
    abilities = able(connection, now)
    if not known.elsewhere or not abilities.conductors or known.source_node in abilities.unable:
        return False
    if not cold_moves.is_held(connection, known):
        return False
    mine = sa.and_(move.uuid == known.uuid, move.step == "select")
    values = {**anew(now), "step": SEEK, "error": why, "owner": None, "turn": move.turn + 1}
    return connection.execute(migrations.update().where(mine).values(values)).rowcount == 1


def seeking(connection: sa.Connection, now: int, limit: int) -> list[Seeking]:
    """Return moves that wait for another cell."""
    found = connection.execute(
        sa.select(move.uuid, move.instance, numbers.given().label("given"))
        .join(instances, row.uuid == move.instance)
        .where(_SOUGHT, sa.or_(move.sent_at.is_(None), move.sent_at <= now), ~resting.resting(move.instance))
        .order_by(move.step_at)
        .limit(limit)
    )
    return [Seeking(uuid=one.uuid, instance=one.instance, highest=one.given) for one in found]


def take(connection: sa.Connection, uuid: str, taken: int, late_before: int) -> Sought | None:
    """Give the number that was taken above to the target of a move; None when it needs no other cell any more.

    None also where the number is another attempt's by now: who took it was thought dead, and it was given back.
    """
    found = connection.execute(sa.select(*COLUMNS, move.step_at).where(move.uuid == uuid, _SOUGHT)).first()
    if found is None:
        return None
    known = move_of(found)
    held = cold_moves.held(connection, known)
    if held is None:
        return None
    size = known.size("target")
    work = held if size is None else msgspec.structs.replace(held, spec=size.spec(held.spec))
    is_next = (row.uuid == known.instance, numbers.given() < taken)
    if not connection.execute(instances.update().where(*is_next).values(highest=taken)).rowcount:
        return None
    change(connection, known, {"dest_attempt": taken})
    return Sought(
        move=msgspec.structs.replace(known, dest_attempt=taken, turn=known.turn + 1),
        work=work,
        traveller=travels.pack(connection, known.instance),
        tried=load(known.tried.encode(), tuple[NodeUuid, ...]),
        too_late=found.step_at < late_before,
    )


def forsaken(connection: sa.Connection, since: int, limit: int) -> list[Move]:
    """Return moves for which nobody has looked for another cell since before `since`."""
    late = sa.and_(_SOUGHT, move.step_at < since, ~resting.resting(move.instance))
    return [move_of(one) for one in connection.execute(sa.select(*COLUMNS).where(late).limit(limit))]


def stage(connection: sa.Connection, sought: Sought, placed: Placed, home: CellUuid, now: int) -> bool:
    """Write a server that is away, and its move at the step `prepare`; `home` is the cell that has it.

    False where this cell takes it not (now): its row is another move's, or of before, and a host has something of it.
    """
    known = sought.move
    traveller = sought.traveller
    assert known.dest_attempt is not None
    if agents.closed(connection, [placed.node]):
        return False
    follows = STEPS["prepare"]
    values = {
        **traveller.columns,
        "uuid": known.instance,
        "availability_zone": known.source_zone,
        "state": State.AWAY.value,
        "task": follows.task.value,
        "attempt": known.source_attempt,
        "highest": known.dest_attempt,
        "host": None,
        "node": None,
        "owner": None,
        "epoch": placed.epoch,
        "sent_at": None,
        "step_at": now,
        "changed_at": now,
        "terminated_at": None,
        "deleted_at": None,
        "forgotten": False,
        "alternates": dump(()),
        "allocation": None,
        "left_cells": "[]",
        "secrets": None,
        "fault": None,
    }
    statement = insert(connection, instances).values(values)
    opened = sa.exists(
        sa.select(attempt.attempt).where(attempt.open, attempt.instance == sa.literal_column("instances.uuid"))
    )
    same = sa.exists(
        sa.select(move.uuid).where(move.uuid == known.uuid, move.instance == sa.literal_column("instances.uuid"))
    )
    mine = (attempt.instance == sa.literal_column("instances.uuid"), attempt.attempt == known.dest_attempt)
    begun = sa.exists(sa.select(attempt.attempt).where(*mine))
    written = connection.execute(
        statement.on_conflict_do_update(
            index_elements=["uuid"],
            set_={name: statement.excluded[name] for name in values if name != "uuid"},
            where=sa.or_(
                sa.and_(row.highest < known.dest_attempt, row.state == State.MOVED.value, ~opened),
                # After a host that refused: the number may be known here already by what was copied (`follow`).
                sa.and_(row.highest <= known.dest_attempt, row.state == State.AWAY.value, same, ~begun),
            ),
        )
    ).rowcount
    if not written:
        return False
    # What was read of a row must not be true of it again: its turn grows here, too.
    before_this = connection.execute(sa.select(move.turn).where(move.uuid == known.uuid)).scalar_one_or_none() or 0
    travels.unpack(connection, known.instance, traveller)
    ours = {
        **anew(now),
        "step": follows.name,
        "status": follows.status,
        "owner": None,
        "error": None,
        "source_cell": home,
        "dest_cell": None,
        "dest_host": placed.host,
        "dest_node": placed.node,
        "dest_zone": placed.zone,
        "dest_attempt": known.dest_attempt,
        "turn": max(known.turn, before_this) + 1,
    }
    connection.execute(migrations.update().where(move.uuid == known.uuid).values(ours))
    beside = NewAttempt(
        instance=known.instance,
        attempt=known.dest_attempt,
        node=placed.node,
        host=placed.host,
        now=now,
        explanation=placed.explanation,
        role="move_target",
        resources=sought.work.spec.resources(),
        allocation=placed.allocation,
    )
    attempts.begin(connection, [beside])
    return True


def away(connection: sa.Connection, after: str, limit: int) -> list[InstanceUuid]:
    """Return the servers of this cell that are away, by their UUIDs, some at a time."""
    found = sa.select(row.uuid).where(AWAY, row.uuid > after, ~resting.resting(row.uuid))
    return [InstanceUuid(one) for one in connection.scalars(found.order_by(row.uuid).limit(limit))]


def part(connection: sa.Connection, instance: InstanceUuid, uuid: str | None = None) -> PartOfMove | None:
    """Return what this cell has of a move between cells: of the one named, or of the latest of the server."""
    wanted = (
        move.uuid == uuid
        if uuid is not None
        else sa.and_(move.instance == instance, sa.or_(move.source_cell.is_not(None), move.dest_cell.is_not(None)))
    )
    rests = sa.or_(resting.resting(row.uuid), resting.any_awaited()).label("rests")
    about = (row.state, row.attempt, row.highest, row.task, row.task_id.label("asked"), row.deleted_at)
    found = connection.execute(
        sa.select(*COLUMNS, move.step_at, rests, *(one.label(f"row_{one.name}") for one in about))
        .join(instances, row.uuid == move.instance)
        .where(wanted)
        .order_by(move.created_at.desc(), move.id.desc())
        .limit(1)
    ).first()
    if found is None:
        return None
    known = move_of(found)
    asked = known.task_id or ""
    return PartOfMove(
        move=known,
        state=State(found.row_state),
        attempt=found.row_attempt,
        highest=found.row_highest,
        task=found.row_task,
        task_id=found.row_asked,
        deleting=found.row_deleted_at is not None or found.row_task == "deleting",
        step_at=found.step_at or 0,
        rests=bool(found.rests),
        actions=tuple(travels.past_of(connection, action_table, known.instance, request_id=asked)),
        events=tuple(travels.past_of(connection, action_events, known.instance, request_id=asked)),
    )


def follow(connection: sa.Connection, uuid: str, news: PartOfMove, home: CellUuid, now: int) -> bool:
    """Copy what the other cell, `home`, knows of a move; False when this one knows more, or the server is not its own.

    Where the server is, its row must still be that of the move.
    """
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn < news.move.turn)).first()
    if found is None:
        return False
    known, step = move_of(found), news.move.step
    if known.step == SEEK and step != SEEK and known.dest_attempt != news.move.dest_attempt:
        # Another conductor looks for a host: what was staged under this number is let go.
        return False
    state = connection.execute(sa.select(row.state).where(row.uuid == known.instance)).scalar_one()
    if state == State.AWAY.value:
        told = {
            "attempt": news.attempt,
            "highest": sa.case((row.highest > news.highest, row.highest), else_=news.highest),
            "task": news.task,
            "task_id": news.task_id,
            "changed_at": now,
        }
        mine = (row.uuid == known.instance, row.state == State.AWAY.value)
        connection.execute(instances.update().where(*mine).values(told))
    else:
        if step is None or known.step is None or not cold_moves.is_held(connection, known):
            return False
        change_server(connection, known, {"task": STEPS[step].task.value, "changed_at": now, "updated_at": now})
    values: dict[str, Any] = {name: getattr(news.move, name) for name in _NEWS}
    if known.source_cell is None:
        values["dest_cell"] = home
    connection.execute(
        migrations.update()
        .where(move.uuid == uuid)
        .values(**{**anew(now), **values, "owner": None, "turn": news.move.turn})
    )
    with no_news(connection):
        for table, rows in ((action_table, news.actions), (action_events, news.events)):
            of = (table.c.instance == known.instance, table.c.request_id == news.move.task_id)
            connection.execute(table.delete().where(*of))
            if rows:
                connection.execute(table.insert(), list(rows))
    if step == "revert_receive" and known.source_cell is None:
        _begin_back(connection, news.move, now)
    return True


def _begin_back(connection: sa.Connection, known: Move, now: int) -> None:
    """Begin the attempt by which a server comes back to the host that it left. Without the first one it is lost."""
    kept = connection.execute(
        sa.select(attempt.allocation).where(
            attempt.instance == known.instance, attempt.attempt == known.source_attempt, attempt.open
        )
    ).first()
    if kept is None or known.back_attempt is None:
        return
    back = NewAttempt(
        instance=known.instance,
        attempt=known.back_attempt,
        node=known.source_node,
        host=known.source_host,
        now=now,
        role="move_target",
        allocation=cold_moves.allocation_of(kept.allocation),
    )
    attempts.begin(connection, [back])


def awaiting(connection: sa.Connection, since: int, after: str, limit: int) -> list[PartOfMove]:
    """Return moves of servers of this cell that have waited for the other cell since before `since`, some at a time.

    They come by their UUIDs, the first after `after`.
    """
    there = sa.or_(
        sa.and_(
            move.dest_cell.is_not(None),
            move.step.in_(constants({*OF_SIDE["target"] & HELD_BY["source"], "hand_over"})),
        ),
        sa.and_(move.source_cell.is_not(None), move.step.in_(constants(("revert_receive", "revert_hand_over")))),
    )
    late = sa.and_(there, move.step_at < since, move.uuid > after, ~resting.resting(move.instance))
    found = connection.execute(sa.select(move.uuid, move.instance).where(late).order_by(move.uuid).limit(limit)).all()
    parts = [part(connection, one.instance, one.uuid) for one in found]
    return [one for one in parts if one is not None]


def give_up(connection: sa.Connection, uuid: str, turn: int, why: BuildFailure, now: int, most_hosts: int) -> bool:
    """Go on without the other cell, as after a failure there; False when the move is at another step.

    Only for who has made sure that nobody can point the mapping at the other cell any more.
    """
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn == turn)).first()
    if found is None or found.step is None:
        return False
    known = move_of(found)
    if known.step in HANDING_OVER:
        return hand_overs.thaw(connection, uuid, turn, why.message, now)
    attempt_there, host, _, _ = known.place()
    if attempt_there is None or host is None:
        return False
    failed = move_steps.failed(
        connection,
        uuid,
        known.step or "",
        attempt_there,
        host,
        why,
        now,
        most_hosts,
        task_id=known.task_id or "",
    )
    return failed is not None


def keeps(mine: PartOfMove, there: PartOfMove) -> bool:
    """Tell whether a server that is ERROR where it is may need what is here.

    It was here once, since its move began, or was on its way here with all that it has.
    """
    held_here = mine.move.step not in HELD_BY["source"] and mine.move.back_attempt is not None
    was_here = mine.is_source or held_here or mine.move.step in HANDING_OVER
    return there.state is State.ERROR and not there.deleting and was_here


def row_there(connection: sa.Connection, instance: InstanceUuid) -> RowThere | None:
    """Return what this cell has of a server; None: nothing."""
    rests = sa.or_(resting.resting(row.uuid), resting.any_awaited())
    found = connection.execute(sa.select(row.state, rests.label("rests")).where(row.uuid == instance)).first()
    return None if found is None else RowThere(state=State(found.state), rests=bool(found.rests))


def fold(
    connection: sa.Connection, instance: InstanceUuid, mine: PartOfMove | None, there: PartOfMove | None, now: int
) -> bool:
    """Let a server that is away go for good: its hosts undo what they have of it.

    `mine`: what was read of this cell to decide it; False when it is newer by now. `there`: what the cell has that has
    the server; None: it is nowhere any more.
    """
    if mine is not None:
        seen = (mine.move.turn, mine.move.step, mine.move.dest_attempt)
        query = sa.select(move.turn, move.step, move.dest_attempt).where(move.uuid == mine.move.uuid)
        found = connection.execute(query).first()
        if found is None or tuple(found) != seen:
            return False
    number = numbers.given() + 1
    if there is not None:
        number = sa.case((row.attempt > there.attempt, row.attempt), else_=there.attempt)
    folded = connection.execute(
        instances.update()
        .where(row.uuid == instance, moving(State.AWAY, State.MOVED))
        .values(
            state=State.MOVED.value,
            attempt=number,
            task=None,
            deleted_at=now,
            changed_at=now,
            forgotten=True,
            secrets=None,
            owner=None,
            sent_at=None,
        )
    ).rowcount
    if not folded:
        return False
    opened = sa.select(attempt.attempt).where(attempt.instance == instance, attempt.open)
    for one in connection.scalars(opened).all():
        attempts.give_up(connection, instance, one, now)
    left = (move.instance == instance, sa.or_(move.step.is_not(None), move.status == FINISHED))
    ended = "error" if there is None or not there.is_over or there.move.status == FINISHED else there.move.status
    # A server that is deleted while it rests is one whose move was confirmed, as in its own cell.
    rests = sa.and_(move.step.is_(None), move.status == FINISHED) if there is None or there.deleting else sa.false()
    status = sa.case((rests, "confirmed"), else_=ended)
    connection.execute(migrations.update().where(*left).values(step=None, owner=None, status=status))
    return True


def not_found(connection: sa.Connection, known: Move, why: str, now: int) -> list[Over]:
    """End a move for which no cell has a host: the server stays as it was."""
    mine = sa.and_(move.uuid == known.uuid, move.step == SEEK)
    values = {**cold_moves.over_with("error", now, why), "turn": move.turn + 1}
    if not connection.execute(migrations.update().where(mine).values(values)).rowcount:
        return []
    return cold_moves.as_it_was(connection, known, why, now)


def later(connection: sa.Connection, known: Move, not_before: int) -> None:
    """Look for another cell again, from `not_before` on."""
    mine = sa.and_(move.uuid == known.uuid, move.step == SEEK)
    connection.execute(migrations.update().where(mine).values(sent_at=not_before))
