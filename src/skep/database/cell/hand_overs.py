"""A move between cells gives a server from one cell to the other: what each of the two writes of it.

The row is frozen where the server is, the mapping is pointed at the other cell, and there the server lands. Where the
mapping cannot follow, the frozen row thaws.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.cell import attempts, fences, move_steps, numbers, travels
from skep.database.cell.cold_moves import COLUMNS, Move, MovePlace, anew, change, change_server, held_by, move_of
from skep.database.cell.move_statements import IS_HELD, KEEP
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances, migrations
from skep.database.cell.transitions import moving
from skep.database.cell.travels import Traveller
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import State
from skep.domain.moves import HANDING_OVER, STEPS, Side
from skep.domain.states import before

row = instances.c
move = migrations.c
attempt = attempt_rows.c


def freeze(connection: sa.Connection, uuid: str, turn: int, now: int) -> Traveller | None:
    """Have a server that is to be handed over be away, and return what goes with it; None when it is another's by now.

    It may be repeated.
    """
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn == turn)).first()
    if found is None or found.step not in HANDING_OVER:
        return None
    known = move_of(found)
    if connection.execute(IS_HELD, held_by(known)).first() is None:
        return None
    return travels.pack(connection, known.instance) if leave(connection, known.instance, now) else None


def leave(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Have the row of a server be away; its attempt keeps what it holds. False where the server may not go."""
    stands = connection.execute(sa.select(row.state, row.attempt, row.allocation).where(row.uuid == instance)).one()
    if stands.state == State.AWAY.value:
        return True
    connection.execute(KEEP, {"of": instance, "mine": stands.attempt, "holds": stands.allocation})
    frozen = connection.execute(
        instances.update()
        .where(row.uuid == instance, moving(before(State.AWAY), State.AWAY))
        .values(state=State.AWAY.value, host=None, node=None, allocation=None, changed_at=now, updated_at=now)
    )
    return frozen.rowcount == 1


def may_land(connection: sa.Connection, uuid: str, turn: int) -> bool:
    """Tell whether the attempt that a server is to be handed over to is under way still."""
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn == turn)).first()
    if found is None or found.step not in HANDING_OVER:
        return False
    known = move_of(found)
    goes_to = known.at(STEPS[known.row.next or ""].holder).attempt
    return goes_to is not None and attempts.is_under_way(connection, known.instance, goes_to)


def thaw(connection: sa.Connection, uuid: str, turn: int, why: str, now: int) -> bool:
    """Have a server stay that was to be handed over, since its mapping cannot follow: its host takes it back.

    It is ERROR where that host was fenced meanwhile.
    Only for who has made sure that nobody can point the mapping at the other cell any more.
    """
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn == turn)).first()
    if found is None or found.step not in HANDING_OVER:
        return False
    known = move_of(found)
    follows = STEPS[known.row.on_failure or ""]
    state = State(known.was) if known.row.holder == "source" else State.RESIZED
    place = known.at(known.row.holder)
    holds = connection.execute(
        sa.select(attempt.allocation).where(attempt.instance == known.instance, attempt.attempt == place.attempt)
    ).scalar_one_or_none()
    values: dict[str, Any] = {"task": follows.task.value, "step_at": now, "changed_at": now, "updated_at": now}
    if connection.execute(sa.select(row.state).where(row.uuid == known.instance)).scalar_one() == State.AWAY.value:
        values |= {"state": state.value, "host": place.host, "node": place.node, "allocation": holds}
    if connection.execute(IS_HELD, held_by(known)).first() is None:
        return False
    if not attempts.stands(connection, known.instance, place.attempt or 0):
        _lose(connection, known, place, {"allocation": holds}, why, now)
        return True
    change_server(connection, known, values)
    beside = known.dest_attempt if known.row.holder == "source" else known.back_attempt
    if beside is not None:
        attempts.give_up(connection, known.instance, beside, now)
    change(connection, known, {**anew(now), "step": follows.name, "status": follows.status, "error": why})
    return True


def _lose(connection: sa.Connection, known: Move, to: MovePlace, values: dict[str, Any], why: str, now: int) -> None:
    """Give a server to an attempt whose host was fenced meanwhile: it is ERROR there.

    Its move is over with that (`abandoned_moves`), and the other cell keeps what it has.
    """
    at = {"host": to.host, "node": to.node, "task": None, "secrets": None, "sent_at": None}
    connection.execute(
        instances.update()
        .where(row.uuid == known.instance, moving(before(State.ERROR), State.ERROR))
        .values({**values, **at, **numbers.raised(to.attempt or 0), **fences.in_error(to.host or "", now)})
    )
    connection.execute(migrations.update().where(move.uuid == known.uuid).values(error=why))


def land(connection: sa.Connection, uuid: str, turn: int, traveller: Traveller, home: CellUuid, now: int) -> bool:
    """Give a server that its mapping names here to the attempt that it goes to; False where it has been done.

    It is ERROR where that attempt is over by now, because its host was fenced. `home`: the cell that it comes from.
    """
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.turn == turn)).first()
    if found is None or found.step not in HANDING_OVER:
        return False
    known = move_of(found)
    follows = STEPS[known.row.next or ""]
    if connection.execute(IS_HELD, held_by(known)).first() is None:
        return False
    to: Side = follows.holder
    state = State(known.was) if to == "target" else State.RESIZED
    travels.unpack(connection, known.instance, traveller)
    seen = {
        "source_cell": home if to == "target" else None,
        "dest_cell": None if to == "target" else home,
        "owner": None,
        "turn": turn,
    }
    connection.execute(migrations.update().where(move.uuid == uuid).values(seen))
    place = known.at(to)
    if not attempts.is_under_way(connection, known.instance, place.attempt or 0):
        switched = move_steps.switched(connection, known, to)
        _lose(connection, known, place, switched, move_steps.LOST.message, now)
        return True
    values = {
        **move_steps.switched(connection, known, to),
        "state": state.value,
        "task": follows.task.value,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    change_server(connection, known, values)
    change(connection, known, {**anew(now), "step": follows.name, "status": follows.status})
    return True
