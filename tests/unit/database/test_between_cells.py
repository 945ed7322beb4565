"""A server that is away: what may let it go or give it back, and what a cell that is behind writes over nothing."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.cell import between_cells, cold_moves, hand_overs, move_steps
from skep.database.cell import instances as rows
from skep.database.cell.between_cells import PartOfMove, Sought
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances, leases, migrations
from skep.domain.actions import ACTIONS
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.ids import CellUuid
from skep.domain.instances import State
from skep.domain.server_events import GIVEN_UP
from tests.support.rows import CELL, HOST, ONE, bring_to, context, placed, state_of
from tests.support.rows import move as moved

NOW = 100
OTHER = CellUuid("cell2")


def away(cell: sa.Connection) -> PartOfMove:
    """Have a server be away that is handed over; return what the cell has of its move."""
    bring_to(cell, State.AWAY)
    found = between_cells.part(cell, ONE)
    assert found is not None
    return found


def newer(part: PartOfMove, **changed: object) -> PartOfMove:
    """Return what the other cell has after one more change."""
    return msgspec.structs.replace(
        part, move=msgspec.structs.replace(part.move, turn=part.move.turn + 1, **changed), task="resize_finish"
    )


def test_it_is_not_let_go_by_who_has_read_an_older_move(cell: sa.Connection) -> None:
    part = away(cell)
    cold_moves.change(cell, part.move, {"error": "changed"})
    over = newer(part, step=None, status="error")
    assert not between_cells.fold(cell, ONE, part, over, NOW)
    assert state_of(cell) is State.AWAY
    again = between_cells.part(cell, ONE)
    assert between_cells.fold(cell, ONE, again, over, NOW)
    assert state_of(cell) is State.MOVED
    left = cell.execute(sa.select(attempt_rows.c.outcome).where(attempt_rows.c.open)).scalars().all()
    assert left == [GIVEN_UP]
    assert not between_cells.fold(cell, ONE, None, None, NOW), "once"


def test_what_is_older_is_not_copied(cell: sa.Connection) -> None:
    part = away(cell)
    assert not between_cells.follow(cell, part.move.uuid, part, OTHER, NOW)
    assert between_cells.follow(cell, part.move.uuid, newer(part, step="take_up"), OTHER, NOW)
    now = between_cells.part(cell, ONE)
    assert now is not None
    assert (now.move.step, now.move.turn, now.task) == ("take_up", part.move.turn + 1, "resize_finish")
    assert not between_cells.follow(cell, part.move.uuid, newer(part, step="take_back"), OTHER, NOW)


def test_what_was_staged_under_another_number_is_not_copied(cell: sa.Connection) -> None:
    """A conductor above that was replaced does not say where the server goes."""
    bring_to(cell, State.ACTIVE)
    begin(cell, elsewhere=True)
    cell.execute(migrations.update().values(step="seek", dest_attempt=6))
    part = between_cells.part(cell, ONE, cell.execute(sa.select(migrations.c.uuid)).scalar_one())
    assert part is not None
    stale = newer(part, step="prepare", dest_attempt=5)
    assert not between_cells.follow(cell, part.move.uuid, stale, OTHER, NOW)
    assert between_cells.follow(cell, part.move.uuid, newer(part, step="prepare", dest_attempt=6), OTHER, NOW)


def test_a_server_that_cannot_be_handed_over_is_its_hosts_again(cell: sa.Connection) -> None:
    part = away(cell)
    assert hand_overs.thaw(cell, part.move.uuid, part.move.turn, "why", NOW)
    row = cell.execute(sa.select(instances)).one()
    assert (row.state, row.host, row.task) == (State.ACTIVE.value, HOST, "resize_migrating")
    assert not hand_overs.thaw(cell, part.move.uuid, part.move.turn, "why", NOW), "once"
    found = between_cells.part(cell, ONE)
    assert found is not None
    assert found.move.step == "take_back"


@pytest.mark.parametrize("state", [State.ERROR, State.ACTIVE])
def test_a_server_in_error_keeps_what_it_was(cell: sa.Connection, state: State) -> None:
    part = away(cell)
    there = msgspec.structs.replace(newer(part, step=None, status="error"), state=state)
    assert there.is_over
    assert between_cells.keeps(part, there) is (state is State.ERROR)
    assert not between_cells.keeps(part, msgspec.structs.replace(there, deleting=True))


def begin(cell: sa.Connection, *, elsewhere: bool) -> None:
    known = rows.get(cell, ONE)
    assert known is not None
    assert cold_moves.begin(cell, known, ACTIONS["migrate"], context("req-move"), NOW, elsewhere=elsewhere) is not None


def test_a_move_that_rests_in_its_cell_is_in_no_other(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    moved(cell, "host2", now=NOW)
    assert between_cells.part(cell, ONE) is None
    assert between_cells.away(cell, "", 10) == []


def test_conductors_that_do_not_say_that_they_know_it_keep_a_cell_out(cell: sa.Connection) -> None:
    lease = {"owner": "one", "role": "cell_conductor", "lapses_at": NOW + 5}
    cell.execute(leases.insert().values(lease))
    assert not between_cells.able(cell, NOW).conductors
    assert between_cells.able(cell, NOW + 5).conductors, "it has lapsed"
    cell.execute(leases.update().values(understands=between_cells.UNDERSTANDS))
    assert between_cells.able(cell, NOW).conductors


def sought(cell: sa.Connection, *numbers: int) -> list[Sought]:
    """Return what its own cell says of a move for which another cell is sought, under each of these numbers.

    Nothing is left of it: the connection is that of another cell afterwards.
    """
    with cell.begin_nested() as own_cell:
        bring_to(cell, State.ACTIVE)
        begin(cell, elsewhere=True)
        uuid = cell.execute(sa.select(migrations.c.uuid)).scalar_one()
        cell.execute(migrations.update().values(step="seek"))
        found = [between_cells.take(cell, uuid, number, 0) for number in numbers]
        own_cell.rollback()
    return [one for one in found if one is not None]


def test_a_number_is_given_to_one_target_alone(cell: sa.Connection) -> None:
    """Who took a number, was thought dead and comes back with it finds that another has it by now."""
    assert [one.move.dest_attempt for one in sought(cell, 2, 2, 3, 2)] == [2, 3]


def refuse(cell: sa.Connection, staged: Sought, host: str) -> None:
    """Have the host to which a server was to go refuse it."""
    known, number = staged.move, staged.move.dest_attempt
    why = BuildFailure(kind=FailureKind.RESCHEDULE, error="Full", message="There is no room")
    assert number is not None
    assert move_steps.failed(cell, known.uuid, "prepare", number, host, why, NOW, 3, task_id=known.task_id or "")


def test_a_second_host_is_staged_after_the_first_refused_whatever_was_copied_meanwhile(cell: sa.Connection) -> None:
    """Its own cell may have told of the next number before the host is written that bears it: that one is written."""
    first, second = sought(cell, 2, 3)
    assert between_cells.stage(cell, first, placed("host2"), CELL, NOW)
    refuse(cell, first, "host2")
    here = between_cells.part(cell, ONE)
    assert here is not None
    assert between_cells.follow(cell, here.move.uuid, told(here, highest=3, dest_attempt=3), CELL, NOW)
    assert between_cells.stage(cell, second, placed("host3"), CELL, NOW)
    found = between_cells.part(cell, ONE)
    assert found is not None
    assert (found.move.step, found.move.dest_host, found.move.dest_attempt) == ("prepare", "host3", 3)


def test_a_number_is_staged_once(cell: sa.Connection) -> None:
    """Nothing of a host that refused, or of a conductor above that was replaced, is written over what came later."""
    first, second = sought(cell, 2, 3)
    assert between_cells.stage(cell, second, placed("host2"), CELL, NOW)
    assert not between_cells.stage(cell, second, placed("host3"), CELL, NOW)
    refuse(cell, second, "host2")
    for one in (first, second):
        assert not between_cells.stage(cell, one, placed("host3"), CELL, NOW)


def told(here: PartOfMove, *, highest: int, **changed: object) -> PartOfMove:
    """Return what the cell that has the server says after one more change, while another host is sought."""
    return msgspec.structs.replace(newer(here, step="seek", **changed), highest=highest, task=here.task)
