"""Moves inside a cell: their rows, how cold ones begin and rest, and the choice of a host. Steps: `move_steps.py`.

Each is fenced by the step of the move and by the attempt that holds its server, which the row of the instance names. A
move whose server was taken away from it (deleted, fenced, reset) changes nothing any more, and is given up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.database import leases as lease_rows
from skep.database.cell import (
    actions,
    agents,
    asked,
    attempts,
    builds,
    move_statements,
    numbers,
    resting,
    second_bindings,
    tasks,
)
from skep.database.cell.attempts import NewAttempt
from skep.database.cell.builds import Work
from skep.database.cell.endings import with_instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances, leases, migrations
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.actions import ACTIONS, Action, Ended, Over
from skep.domain.builds import Placed
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict
from skep.domain.guests import state_after
from skep.domain.ids import CellUuid, Incarnation, InstanceUuid, NodeUuid, ProjectId, RequestId, UserId, new_uuid
from skep.domain.instances import Fault, Instance, State, Task
from skep.domain.moves import CHOICES, STEPS, MoveRow, Side, Size
from skep.domain.providers import Allocation
from skep.domain.server_migrations import MigrationType

row = instances.c
move = migrations.c

FINISHED = "finished"
"""Status of a move that rests until its user confirms it or goes back."""


class MovePlace(NamedTuple):
    """An attempt of a move; None where the move has none yet, or has no host for it."""

    attempt: int | None
    host: str | None
    node: NodeUuid | None
    zone: str | None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is under way, or rests."""

    uuid: str
    instance: InstanceUuid
    project_id: ProjectId
    user_id: UserId
    type: str
    status: str
    step: str | None
    task_id: str | None
    was: str
    error: str | None
    wanted_host: str | None
    tried: str
    source_host: str
    source_node: NodeUuid
    source_attempt: int
    source_zone: str | None
    dest_host: str | None
    dest_node: NodeUuid | None
    dest_attempt: int | None
    dest_zone: str | None
    back_attempt: int | None
    old_size: bytes | None
    new_size: bytes | None
    forced: bool
    wish: str | None
    elsewhere: bool = False
    """Another cell may have the server if this one has no room."""
    source_cell: CellUuid | None = None
    """Where its source is, and the attempt by which a revert comes back; None: in this cell."""
    dest_cell: CellUuid | None = None
    """Where its target is; None: in this cell, or nowhere yet."""
    turn: int = 0
    """Grows with each change: of the rows of a move between cells the one with the higher is newer."""

    @property
    def is_between_cells(self) -> bool:
        """Whether its two hosts are in different cells."""
        return self.source_cell is not None or self.dest_cell is not None

    @property
    def follows(self) -> str | None:
        """Return the step after this one."""
        return self.row.elsewhere or self.row.next if self.is_between_cells else self.row.next

    @property
    def after_failure(self) -> str | None:
        """Return the step that follows a failure of this one."""
        return self.row.elsewhere_failed or self.row.on_failure if self.is_between_cells else self.row.on_failure

    @property
    def row(self) -> MoveRow:
        """Its step in the table."""
        assert self.step is not None
        return STEPS[self.step]

    @property
    def action(self) -> str:
        """What is under way."""
        if self.row.task is Task.RESIZE_REVERTING:
            return "revert_resize"
        names = {
            MigrationType.EVACUATION.value: "evacuate",
            MigrationType.LIVE.value: "live_migrate",
            MigrationType.REBUILD.value: "rebuild",
            MigrationType.RESIZE.value: "resize",
        }
        return names.get(self.type, "migrate")

    @property
    def holder(self) -> int | None:
        """The attempt that holds the server while this step is under way."""
        return self.at(self.row.holder).attempt

    @property
    def context(self) -> RequestContext:
        """Who asked for what is under way."""
        return RequestContext(
            request_id=RequestId(self.task_id or ""), project_id=self.project_id, user_id=self.user_id
        )

    def place(self) -> MovePlace:
        """Return what the step is about; a choice of a host is about its target."""
        return self.at(self.row.side or "target")

    def size(self, side: Side) -> Size | None:
        """Return what a server is on a side of its move; None where the move changes nothing of it."""
        stored = self.new_size if side == "target" else self.old_size
        return None if stored is None else load(stored, Size)

    def sized(self, side: Side, server: Instance) -> Instance:
        """Return a server as it is on a side."""
        size = self.size(side)
        return server if size is None else size.instance(server)

    def at(self, side: Side) -> MovePlace:
        """Return the attempt of a side, and where it is."""
        match side:
            case "source":
                return MovePlace(self.source_attempt, self.source_host, self.source_node, self.source_zone)
            case "target":
                return MovePlace(self.dest_attempt, self.dest_host, self.dest_node, self.dest_zone)
            case "back":
                return MovePlace(self.back_attempt, self.source_host, self.source_node, self.source_zone)


class WaitingMove(msgspec.Struct, frozen=True, kw_only=True):
    """A move that waits for a host, with all that the choice needs."""

    move: Move
    work: Work
    """The server as it is; its spec is what the target has to have."""
    attempt: int
    ignore: tuple[NodeUuid, ...]
    forced: bool = False
    """The host that was named is taken whatever the scheduler thinks of it, or none."""


COLUMNS = tuple(move[name] for name in Move.__struct_fields__)


_RESTING = sa.and_(
    move.instance == sa.bindparam("of"),
    move.status == FINISHED,
    move.step.is_(None),
    move.dest_attempt == sa.bindparam("of_attempt"),
)
_CONFIRM = (
    migrations.update()
    .where(_RESTING)
    .values(status="confirmed", updated_at=sa.bindparam("now"))
    .returning(move.source_attempt, move.was)
)
_REVERT = migrations.update().where(_RESTING).values(turn=move.turn + 1).returning(*COLUMNS)


def begin(
    connection: sa.Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    *,
    wanted_host: str | None = None,
    size: Size | None = None,
    elsewhere: bool = False,
) -> list[Over] | None:
    """Begin a cold move of a server, to another size where one is given; return what that ended.

    None when the row does not allow it. `elsewhere`: another cell may have the server if this one has no room.
    """
    work = builds.work(connection, server.uuid)
    over = tasks.begin_over(connection, server.uuid, action, context, now) if work is not None else None
    if over is None or work is None:
        return None
    old = Size(flavor=server.flavor, devices=work.spec.devices, disk_config=server.disk_config)
    first = STEPS["select"]
    flavor = server.flavor if size is None else size.flavor
    connection.execute(
        migrations.insert().values(
            uuid=new_uuid(),
            instance=server.uuid,
            project_id=context.project_id,
            user_id=context.user_id,
            type=(MigrationType.MIGRATION if size is None else MigrationType.RESIZE).value,
            status=first.status,
            source_host=server.host,
            source_node=server.node,
            source_attempt=server.attempt,
            source_zone=server.availability_zone,
            old_flavor=server.flavor.flavorid,
            new_flavor=flavor.flavorid,
            old_size=None if size is None else dump(old),
            new_size=None if size is None else dump(size),
            wanted_host=wanted_host,
            elsewhere=elsewhere,
            was=server.state.value,
            task_id=context.request_id,
            step=first.name,
            step_at=now,
            created_at=now,
        )
    )
    return over


def begin_revert(
    connection: sa.Connection, server: Instance, action: Action, context: RequestContext, now: int
) -> list[Over] | None:
    """Begin to go back; None when the row does not allow it. Raises BadRequest where no finished move is found."""
    over = tasks.begin_over(connection, server.uuid, action, context, now)
    if over is None:
        return None
    number = numbers.next_target(connection, server.uuid, server.attempt)
    first = STEPS["revert_put_aside"]
    values = {
        **anew(now),
        "back_attempt": number,
        "task_id": context.request_id,
        "step": first.name,
        "status": first.status,
        "error": None,
    }
    begun = connection.execute(_REVERT, {**_rests(server), **values}).first()
    if begun is None or number is None:
        raise _none_finished(server)
    known = move_of(begun)
    if known.source_cell is not None:
        # The source is in another cell: the attempt by which the server comes back is begun there.
        return over
    kept = connection.execute(
        sa.select(attempt_rows.c.allocation).where(
            attempt_rows.c.instance == server.uuid,
            attempt_rows.c.attempt == known.source_attempt,
            attempt_rows.c.open,
        )
    ).first()
    if kept is None:
        raise Conflict(f"Cannot '{action.record}' instance {server.uuid}: the host that it left is lost")
    attempts.begin(
        connection,
        [
            NewAttempt(
                instance=server.uuid,
                attempt=number,
                node=known.source_node,
                host=known.source_host,
                now=now,
                role="move_target",
                allocation=allocation_of(kept.allocation),
            )
        ],
    )
    return over


def confirm(connection: sa.Connection, server: Instance, now: int) -> State:
    """Let the source of a finished move go; return the state of its server. Raises BadRequest where there is none."""
    found = connection.execute(_CONFIRM, {**_rests(server), "now": now}).first()
    if found is None:
        raise _none_finished(server)
    attempts.give_up(connection, server.uuid, found.source_attempt, now)
    return state_after(State(found.was), server.power_state)


def source_of(connection: sa.Connection, instance: InstanceUuid) -> str | None:
    """Return the host that the latest move of a server leaves, or has left."""
    latest = move.created_at.desc(), move.id.desc()
    return connection.scalar(sa.select(move.source_host).where(move.instance == instance).order_by(*latest).limit(1))


def to_confirm(connection: sa.Connection, before: int, limit: int) -> list[InstanceUuid]:
    """Return servers whose move has rested since before `before`."""
    found = connection.scalars(
        sa.select(move.instance)
        .join(instances, sa.and_(row.uuid == move.instance, row.attempt == move.dest_attempt))
        .where(
            move.status == FINISHED,
            move.step.is_(None),
            move.updated_at < before,
            row.state == State.RESIZED.value,
            row.task.is_(None),
        )
        .limit(limit)
    )
    return [InstanceUuid(one) for one in found]


def take(
    connection: sa.Connection, owner: Incarnation, now: int, limit: int, *, same_host: bool = False
) -> list[WaitingMove]:
    """Take moves that need a host and that nobody living works on; each has the number of its target.

    With `same_host` a resize may stay on the host of its server.
    """
    taken = connection.execute(_TAKE, {"mine": owner, "now": now, "most": limit}).all()
    found = [_selecting(connection, move_of(one), same_host=same_host) for one in taken]
    return [one for one in found if one is not None]


_FREE = sa.and_(
    move.step.in_(constants(CHOICES)),
    sa.or_(move.sent_at.is_(None), move.sent_at <= lease_rows.NOW),
    sa.or_(move.owner == sa.bindparam("mine"), lease_rows.unowned(leases, move.owner)),
    ~resting.resting(move.instance),
)
_TAKE = (
    migrations.update()
    .where(
        move.uuid.in_(
            sa.select(move.uuid).where(_FREE).order_by(move.step_at).limit(sa.bindparam("most", type_=sa.Integer))
        )
    )
    .values(owner=sa.bindparam("mine"))
    .returning(*COLUMNS)
)


def _selecting(connection: sa.Connection, known: Move, *, same_host: bool) -> WaitingMove | None:
    found = connection.execute(move_statements.HELD, held_by(known)).first()
    work = None if found is None else builds.readable(found)
    if found is None or work is None:
        return None
    size = known.size("target")
    if size is not None:
        work = msgspec.structs.replace(work, spec=size.spec(work.spec))
    number = known.dest_attempt or numbers.next_target(connection, known.instance, known.source_attempt)
    if number is None:
        return None
    change(connection, known, {"dest_attempt": number})
    unable = agents.without(connection, "MoveStep", str(ACTIONS[known.action].capability))
    tried: tuple[NodeUuid, ...] = load(known.tried.encode(), tuple[NodeUuid, ...])
    left = () if same_host and size is not None else (known.source_node,)
    ignore = tuple(dict.fromkeys((*left, *tried, *unable)))
    return WaitingMove(
        move=msgspec.structs.replace(known, dest_attempt=number),
        work=work,
        attempt=number,
        ignore=ignore,
        forced=known.forced or bool(asked.request_of(found, ACTIONS[known.action]).arguments.get("forced")),
    )


def later(connection: sa.Connection, known: Move, not_before: int) -> None:
    """Let anybody take the move again, from `not_before` on."""
    mine = sa.and_(move.uuid == known.uuid, move.step == known.step)
    connection.execute(migrations.update().where(mine).values(owner=None, sent_at=not_before))


_PLACED = migrations.update().where(
    move.uuid == sa.bindparam("of_move"),
    move.step == sa.bindparam("at_step"),
    move.dest_attempt == sa.bindparam("of_attempt"),
)


def placed(connection: sa.Connection, chosen: WaitingMove, decision: Placed, now: int) -> bool:
    """Write the target of a move; False when the move is over, another's, or the host is being deleted."""
    known = chosen.move
    if agents.closed(connection, [decision.node]) or not is_held(connection, known):
        return False
    follows = known.row.next
    assert follows is not None
    values = {
        **anew(now),
        "dest_host": decision.host,
        "dest_node": decision.node,
        "dest_zone": decision.zone,
        "step": follows,
        "status": STEPS[follows].waits or STEPS[follows].status,
        "owner": None,
        # Of a target before this one.
        "error": None,
    }
    if follows == second_bindings.PREPARING:
        values["dest_binding"] = second_bindings.wanted(connection, known.instance)
    mine = {"of_move": known.uuid, "at_step": known.step, "of_attempt": chosen.attempt}
    if not connection.execute(_PLACED, {**mine, **values}).rowcount:
        return False
    beside = NewAttempt(
        instance=known.instance,
        attempt=chosen.attempt,
        node=decision.node,
        host=decision.host,
        now=now,
        explanation=decision.explanation,
        role="move_target",
        resources=chosen.work.spec.resources(),
        allocation=decision.allocation,
    )
    attempts.begin(connection, [beside])
    return True


def is_anothers(connection: sa.Connection, chosen: WaitingMove, decision: Placed, owner: Incarnation) -> bool:
    """Tell whether another conductor took a choice over with its number, and so what is claimed for that number.

    It may not have written its choice yet: schedulers give it the host that is claimed.
    """
    chosen_already = move.dest_node == decision.node
    is_chosen_now = sa.and_(move.step == chosen.move.step, move.owner.is_not(None), move.owner != owner)
    found = sa.select(move.uuid).where(
        move.uuid == chosen.move.uuid,
        move.dest_attempt == chosen.attempt,
        sa.or_(chosen_already, is_chosen_now),
    )
    return connection.execute(found).first() is not None


def no_host(connection: sa.Connection, known: Move, why: str, now: int) -> list[Over]:
    """End a move for which there is no host: the server stays as it was."""
    mine = sa.and_(move.uuid == known.uuid, move.step == known.step)
    if not connection.execute(migrations.update().where(mine).values(over_with("error", now, why))).rowcount:
        return []
    return as_it_was(connection, known, why, now)


def mine(known: Move) -> sa.ColumnElement[bool]:
    """Say of an instance that it is the one of this move, and still the move's."""
    return sa.and_(
        row.uuid == known.instance,
        row.attempt == known.holder,
        row.task_id == known.task_id,
        row.task == known.row.task.value,
        row.deleted_at.is_(None),
    )


def held_by(known: Move) -> dict[str, Any]:
    """Name the parameters of `move_statements.MINE`."""
    doing = known.row.task.value
    return {"of": known.instance, "holder": known.holder, "asked": known.task_id, "doing": doing}


def held(connection: sa.Connection, known: Move) -> Work | None:
    """Return the server of a move if it still is the move's."""
    found = connection.execute(move_statements.HELD, held_by(known)).first()
    return None if found is None else builds.readable(found)


def is_held(connection: sa.Connection, known: Move) -> bool:
    """Tell whether the server of a move still is the move's."""
    return connection.execute(move_statements.IS_HELD, held_by(known)).first() is not None


def change(connection: sa.Connection, known: Move, values: dict[str, Any]) -> None:
    """Write columns of a move."""
    connection.execute(move_statements.CHANGE, {"of_move": known.uuid, **values})


def change_server(connection: sa.Connection, known: Move, values: dict[str, Any]) -> None:
    """Write columns of the server of a move, if it still is the move's."""
    connection.execute(move_statements.CHANGE_SERVER, {**held_by(known), **values})


def as_it_was(connection: sa.Connection, known: Move, why: str, now: int) -> list[Over]:
    """End the action with the server as it was."""
    fault = Fault(code=500, message=why, created_at=now)
    change_server(
        connection,
        known,
        {
            "task": None,
            "action_request": None,
            "secrets": None,
            "fault": dump(fault),
            "step_at": now,
            "changed_at": now,
            "updated_at": now,
        },
    )
    return told(connection, known, why, now)


def told(connection: sa.Connection, known: Move, error: str | None, now: int) -> list[Over]:
    """Write that the action of a move is over."""
    begun = actions.began_at(connection, known.instance, known.task_id or "")
    event_of = ACTIONS[known.action].event_of
    if event_of is not None:
        host = known.at(event_of).host
    else:
        host = known.place().host if known.step not in CHOICES else None
    over = Ended(
        action=known.action,
        context=known.context,
        instance=known.instance,
        attempt=known.holder or 0,
        host=host,
        started_at=now if begun is None else begun,
        ended_at=now,
        error=error,
    )
    actions.ended(connection, over)
    return with_instances(connection, [over])


def _rests(server: Instance) -> dict[str, Any]:
    """Name the parameters of `_RESTING`."""
    return {"of": server.uuid, "of_attempt": server.attempt}


def _none_finished(server: Instance) -> BadRequest:
    return BadRequest(f"Instance {server.uuid} has not been resized.")


def anew(now: int) -> dict[str, Any]:
    """Return the columns of a move at the beginning of a step."""
    return {"step_at": now, "sent_at": None, "granted": False, "updated_at": now}


def over_with(status: str, now: int, error: str | None = None) -> dict[str, Any]:
    """Return the columns of a move that is over, or rests."""
    return {**anew(now), "step": None, "owner": None, "status": status, "error": error}


def allocation_of(stored: bytes | None) -> Allocation | None:
    """Return an allocation as a column holds it."""
    return None if stored is None else load(stored, Allocation)


def move_of(found: Any) -> Move:
    """Return the move of a row whose first columns are `COLUMNS`."""
    # By position: lookups by name take ten times as long.
    return Move(**dict(zip(Move.__struct_fields__, found, strict=False)))
