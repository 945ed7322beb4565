"""The writes of a cell that went back to before a move: nothing is undone that an operator did not name."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database import timelines
from skep.database.cell import attempts, cold_moves, deletes, instances, numbers, recovery
from skep.database.cell.resting import MISSING
from skep.database.cell.tables import instances as rows
from skep.database.cell.tables import time
from skep.domain.actions import ACTIONS
from skep.domain.ids import NodeUuid
from skep.domain.instances import State
from skep.domain.recovery import Adopt, FoundGuest, FoundPhase
from tests.support.rows import HOST, ME, ONE, bring_to, context

NOW = 100
OTHER = "host2"


def guest(attempt: int, phase: FoundPhase, host: str = HOST) -> FoundGuest:
    return FoundGuest(
        node=NodeUuid(f"node-{host}"), host=host, instance=ONE, attempt=attempt, highest=attempt, phase=phase
    )


def tell(cell: sa.Connection, host: str, *guests: FoundGuest) -> None:
    recovery.take_report(cell, guests)
    recovery.end_report(cell, NodeUuid(f"node-{host}"), host, NOW)


def doubt(cell: sa.Connection) -> str | None:
    return dict(recovery.doubtful(cell)).get(ONE)


@pytest.mark.parametrize("known", [False, True], ids=["lost", "known"])
def test_what_is_aside_is_held_unless_its_move_is_known(cell: sa.Connection, known: bool) -> None:
    bring_to(cell, State.ACTIVE)
    server = instances.get(cell, ONE)
    assert server is not None
    if known:
        assert cold_moves.begin(cell, server, ACTIONS["migrate"], context("req-move"), NOW) is not None
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "aside"))
    assert recovery.is_held(cell, ONE) is not known
    assert doubt(cell) is None, "its disks are not missing"


@pytest.mark.parametrize("phase", ["aside", "none"])
def test_an_attempt_is_undone_alone_beside_an_older_one(cell: sa.Connection, phase: FoundPhase) -> None:
    """What is put aside has the disks of the server: they would go with all that its host has of it."""
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, phase), guest(2, "building"))
    recovery.want_undone(cell, guest(2, "building"))
    [(undone, alone)] = recovery.to_undo(cell)
    assert (undone.attempt, alone) == (2, phase == "aside")
    assert recovery.is_undone(cell, ONE, HOST, 2, left=True)
    assert recovery.to_undo(cell), "something is left of it"
    assert recovery.is_undone(cell, ONE, HOST, 2, left=False)
    assert recovery.to_undo(cell) == []
    assert not recovery.is_undone(cell, ONE, HOST, 1, left=False), "nobody wants it undone"


def test_a_server_of_which_nothing_is_left_may_be_deleted(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "aside"))
    tell(cell, OTHER, guest(2, "building", OTHER))
    recovery.put_aside_since(cell, ONE, 1, HOST, "a move")
    recovery.note_undone(cell, ONE, OTHER, 2)
    assert doubt(cell) not in (None, MISSING)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is None, "it is in doubt"
    recovery.note_undone(cell, ONE, HOST, 1)
    assert doubt(cell) == MISSING
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None


def test_a_guest_that_is_put_aside_for_a_lost_move_is_in_doubt(cell: sa.Connection) -> None:
    """Its host goes on with a step that it was told of before the database went back."""
    bring_to(cell, State.ACTIVE)
    assert not recovery.put_aside_since(cell, ONE, 2, HOST, "a move"), "it is not the server"
    assert not recovery.put_aside_since(cell, ONE, 1, OTHER, "a move"), "the server is not there"
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "whole"))
    assert recovery.put_aside_since(cell, ONE, 1, HOST, "a move")
    assert doubt(cell) == f"a move had begun: attempt 1 on {HOST} was put aside since"
    [told] = recovery.guests_of(cell, [ONE])[ONE]
    assert told.phase == "aside", "nobody takes it for the guest"


def test_a_guest_that_is_put_aside_for_a_known_move_is_not(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    server = instances.get(cell, ONE)
    assert server is not None
    assert cold_moves.begin(cell, server, ACTIONS["migrate"], context("req-move"), NOW) is not None
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert not recovery.put_aside_since(cell, ONE, 1, HOST, waiting.move.uuid)
    cell.execute(rows.update().values(deleted_at=NOW))
    assert not recovery.put_aside_since(cell, ONE, 1, HOST, "a move"), "it is deleted"


@pytest.mark.parametrize("host", [HOST, OTHER])
def test_the_target_of_a_lost_move_is_undone_when_the_guest_is_kept(cell: sa.Connection, host: str) -> None:
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "whole"))
    tell(cell, host, guest(2, "building", host))
    recovery.adopt(cell, ONE, Adopt(guest(1, "whole")), NOW)
    due = [(one.attempt, one.host, one.alone) for one in attempts.stale_due(cell, NOW, NOW, 9)]
    assert due == [(2, host, True)]
    assert numbers.next_target(cell, ONE, 1) == 3


def test_what_is_aside_stays_when_another_guest_is_adopted(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "aside"))
    tell(cell, OTHER, guest(2, "whole", OTHER))
    recovery.adopt(cell, ONE, Adopt(guest(2, "whole", OTHER)), NOW)
    assert attempts.stale_due(cell, NOW, NOW, 9) == []


def test_a_build_that_was_replaced_in_the_lost_time_is_undone(cell: sa.Connection) -> None:
    bring_to(cell, State.RESCHEDULING)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, OTHER, guest(2, "spawning", OTHER))
    tell(cell, "host3", guest(3, "whole", "host3"))
    recovery.adopt(cell, ONE, Adopt(guest(3, "whole", "host3")), NOW)
    due = [(one.attempt, one.host, one.alone) for one in attempts.stale_due(cell, NOW, NOW, 9)]
    assert (2, OTHER, True) in due
    assert not {"host3"} & {host for _, host, _ in due}


@pytest.mark.parametrize("doubtful", [False, True])
def test_a_number_that_hosts_have_heard_of_is_not_given_again(cell: sa.Connection, doubtful: bool) -> None:
    """Of a server in doubt the number still says what its row has lost, should the cell recover once more."""
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", NOW)
    tell(cell, HOST, guest(1, "whole"))
    tell(cell, OTHER, msgspec.structs.replace(guest(0, "none", OTHER), highest=5))
    if doubtful:
        recovery.put_aside_since(cell, ONE, 1, HOST, "a move")
    state = recovery.under_way(cell)
    assert state is not None
    timelines.note_compared(cell, time, state.timeline, NOW)
    assert recovery.end_if_settled(cell, state.timeline)
    assert numbers.next_target(cell, ONE, 1) == (2 if doubtful else 6)
