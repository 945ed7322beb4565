"""Numbers of attempts: each is given once, whoever gives it, and an attempt beside the holder is undone by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from skep.database.cell import (
    agents,
    attempts,
    comparing,
    deletes,
    fences,
    missing_hosts,
    moves,
    numbers,
    recovery,
    reschedules,
    resting,
    row_actions,
    unreadable,
)
from skep.database.cell import tables as cell_tables
from skep.database.cell.attempts import NewAttempt, StaleAttempt
from skep.database.cell.fences import FencedHost
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import State
from skep.domain.recovery import GoOn
from skep.domain.server_events import GIVEN_UP
from tests.support.rows import HOST, ME, ONE, bring_to, context, state_of

NOW = 100
NODE = NodeUuid(f"node-{HOST}")
OTHER = "host2"


def attempt_of(cell: sa.Connection) -> int:
    return int(cell.execute(sa.select(cell_tables.instances.c.attempt)).scalar_one())


def target(cell: sa.Connection, host: str = OTHER) -> int:
    """Begin an attempt beside the one that holds the server."""
    number = numbers.next_target(cell, ONE, attempt_of(cell))
    assert number is not None
    node = NodeUuid(f"node-{host}")
    attempts.begin(cell, [NewAttempt(instance=ONE, attempt=number, node=node, host=host, now=NOW, role="move_target")])
    return number


def stale(cell: sa.Connection) -> list[StaleAttempt]:
    return sorted(attempts.stale_due(cell, NOW + 10, NOW + 9, 10), key=lambda one: one.attempt)


def _register(cell: sa.Connection) -> FencedHost:
    agents.register(cell, AgentIdentity(node=NODE, host=HOST, process=Incarnation("p")), NOW)
    return FencedHost(node=NODE, host=HOST)


def _fence(cell: sa.Connection) -> object:
    host = _register(cell)
    assert fences.mark(cell, NODE, NOW, NOW)
    assert fences.take_effect(cell, NODE, NOW)
    return fences.close(cell, host, NOW, 10)


def _reset(cell: sa.Connection) -> object:
    asked = ActionRequest(action="reset_state", context=context(), arguments={"state": "error"})
    return row_actions.carry_out(cell, ONE, ACTIONS["reset_state"], asked, lambda _server: None, "api", NOW)


RAISES: dict[str, tuple[State, Callable[[sa.Connection], object]]] = {
    "delete": (State.ACTIVE, lambda c: deletes.begin(c, ONE, context("req-delete"), NOW)),
    "delete of what is known above": (State.ACTIVE, lambda c: comparing.follow_above(c, [ONE], [], [], NOW)),
    "fence of a build": (State.BUILDING, _fence),
    "fence of a server": (State.ACTIVE, _fence),
    "fence of what is nowhere": (State.ERROR, _fence),
    "silence": (State.BUILDING, lambda c: reschedules.take_from_host(c, ONE, 1, NOW)),
    "next host": (State.RESCHEDULING, lambda c: reschedules.take(c, ME, NOW, 1)),
    "reset": (State.BUILDING, _reset),
    "damage": (State.SCHEDULED, lambda c: unreadable.give_up(c, ONE, 1, NOW)),
    "time lost after a move": (State.RESCHEDULING, lambda c: moves.left_since(c, ONE, 0, NOW)),
}


@pytest.mark.parametrize("how", RAISES)
def test_every_raise_gives_a_number_above_all_that_were_given(cell: sa.Connection, how: str) -> None:
    state, raise_it = RAISES[how]
    bring_to(cell, state)
    assert (target(cell), target(cell)) == (2, 3)
    raise_it(cell)
    assert attempt_of(cell) == 4
    assert numbers.next_target(cell, ONE, 4) in (5, None), "a deleted row gives none"


def test_a_row_of_a_release_that_knows_its_attempt_alone(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    cell.execute(cell_tables.instances.update().values(attempt=7))
    assert numbers.next_target(cell, ONE, 7) == 8


def test_a_target_is_not_begun_beside_an_attempt_that_holds_the_server_no_more(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert numbers.next_target(cell, ONE, 1) is None


def test_what_another_cell_gives_is_above_too(cell: sa.Connection) -> None:
    bring_to(cell, State.HANDED_BACK)
    target(cell)
    [leaver] = moves.waiting(cell, NOW, 5)
    assert (leaver.attempt, leaver.highest) == (1, 2)


def test_what_goes_on_after_a_recovery_is_above_what_hosts_have_heard_of(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    target(cell)
    recovery.go_on(cell, ONE, GoOn(highest=9, elsewhere=True), NOW)
    assert attempt_of(cell) == 9


def test_an_attempt_that_was_given_up_is_undone_alone_whatever_its_number(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell)
    assert stale(cell) == [], "it is under way"
    assert attempts.give_up(cell, ONE, number, NOW)
    [one] = stale(cell)
    assert (one.attempt, one.host, one.alone, one.deleted) == (number, OTHER, True, False)
    assert attempts.close_one(cell, ONE, OTHER, number, NOW)
    assert stale(cell) == []
    assert not attempts.give_up(cell, ONE, number, NOW), "it is closed"


def test_the_attempt_that_holds_the_server_is_never_stale(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert attempts.give_up(cell, ONE, 1, NOW)
    assert stale(cell) == []


def test_an_attempt_that_a_move_left_is_undone_alone(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell, HOST)
    cell.execute(cell_tables.instances.update().values(attempt=number))
    assert stale(cell) == [], "the guest's disks are kept"
    assert attempts.give_up(cell, ONE, 1, NOW)
    [one] = stale(cell)
    assert (one.attempt, one.alone) == (1, True)
    closed = attempts.close_one(cell, ONE, HOST, 1, NOW)
    assert [key.attempt for key in closed] == [1]
    assert [one.open for one in attempts.history(cell, ONE)] == [False, True]


def test_a_delete_undoes_all_attempts(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell)
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert [(one.attempt, one.deleted, one.alone) for one in stale(cell)] == [(1, True, False), (number, True, False)]


def test_a_delete_by_a_release_that_knows_no_targets_undoes_them_too(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell)
    cell.execute(cell_tables.instances.update().values(attempt=number, task="deleting"))
    assert [one.attempt for one in stale(cell)] == [1, number]


def test_a_target_is_no_sign_of_a_database_that_went_back(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell)
    resting.refuse_no(cell, ONE, number, OTHER)
    with pytest.raises(resting.WentBack):
        resting.refuse_no(cell, ONE, number + 1, OTHER)


def test_a_target_on_a_host_that_is_marked_as_dead_is_waited_for_no_more(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell, HOST)
    attempts.give_up(cell, ONE, number, NOW)
    host = _register(cell)
    assert fences.mark(cell, NODE, NOW, NOW + 5)
    closed = fences.settle(cell, host, NOW, 10)
    assert [key.attempt for key in closed.released] == [number]
    assert state_of(cell) is State.ACTIVE
    assert fences.came_back(cell, NODE) == 1
    assert [one.attempt for one in stale(cell)] == [number], "what was closed meanwhile is undone"


def test_a_target_on_a_host_that_was_missing_is_undone_when_it_comes_back(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    number = target(cell, HOST)
    assert missing_hosts.give_up(cell, ONE, number, NOW) is not None
    _register(cell)
    assert missing_hosts.came_back(cell, NODE) == 1
    assert [(one.attempt, one.outcome) for one in attempts.history(cell, ONE)] == [(1, "built"), (number, GIVEN_UP)]
    assert [one.attempt for one in stale(cell)] == [number]
