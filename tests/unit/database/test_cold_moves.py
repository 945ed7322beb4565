"""The writes of cold moves: each is fenced by its step and by the attempt that holds the server."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import (
    agents,
    assertions,
    attempts,
    cold_moves,
    deletes,
    fences,
    guests,
    instances,
    move_steps,
    server_migrations,
)
from skep.database.cell import tables as cell_tables
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.fences import FencedHost
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.errors import Conflict
from skep.domain.guests import GuestSeen, correction
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from tests.support.rows import CELL, FLAVOR, HOST, ME, ONE, bring_to, context, everything, placed, state_of

NOW = 100
OTHER = "host2"
BROKE = BuildFailure(kind=FailureKind.RESCHEDULE, error="SpawnFailed", message="it broke")
STEPS = ("prepare", "put_aside", "transfer", "take_up")


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def status(cell: sa.Connection) -> str:
    return server_migrations.listed(cell, MigrationQuery())[0].status


def begin(cell: sa.Connection) -> WaitingMove:
    """Begin a move of a server that runs, and choose its host."""
    bring_to(cell, State.ACTIVE)
    assert cold_moves.begin(cell, server(cell), ACTIONS["migrate"], context("req-move"), NOW) is not None
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, waiting, placed(OTHER), NOW)
    return waiting


def done(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    found = move_steps.done(cell, waiting.move.uuid, step, attempt, host, PowerState.RUNNING, NOW)
    return found is not None


def failed(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    return move_steps.failed(cell, waiting.move.uuid, step, attempt, host, BROKE, NOW, 3) is not None


def place(waiting: WaitingMove, step: str) -> tuple[int, str]:
    return (1, HOST) if step == "put_aside" else (waiting.attempt, OTHER)


def up_to(cell: sa.Connection, waiting: WaitingMove, last: str) -> None:
    """Let the hosts take all steps before `last`."""
    for step in STEPS:
        if step == last:
            return
        assert done(cell, waiting, step, *place(waiting, step))


def revert(cell: sa.Connection) -> None:
    asked = context("req-back")
    assert cold_moves.begin_revert(cell, server(cell), ACTIONS["revert_resize"], asked, NOW) is not None


def given_up(cell: sa.Connection) -> list[int]:
    return sorted(one.attempt for one in attempts.stale_due(cell, NOW + 10, NOW + 9, 10))


def fence(cell: sa.Connection, host: str, *, effect: bool) -> fences.Closed:
    node = NodeUuid(f"node-{host}")
    agents.register(cell, AgentIdentity(node=node, host=host, process=Incarnation(host)), NOW)
    assert fences.mark(cell, node, NOW, NOW)
    if not effect:
        return fences.settle(cell, FencedHost(node=node, host=host), NOW, 10)
    assert fences.take_effect(cell, node, NOW)
    return fences.close(cell, FencedHost(node=node, host=host), NOW, 10)


@pytest.mark.parametrize("step", STEPS)
def test_only_the_host_of_the_step_ends_it(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    attempt, host = place(waiting, step)
    before = everything(cell)
    for other in (*(one for one in STEPS if one != step), "take_back"):
        assert not done(cell, waiting, other, attempt, host)
        assert not failed(cell, waiting, other, attempt, host)
    assert not done(cell, waiting, step, attempt + 5, host)
    assert not done(cell, waiting, step, attempt, "host9")
    assert everything(cell) == before
    assert done(cell, waiting, step, attempt, host)
    before = everything(cell)
    assert not done(cell, waiting, step, attempt, host), "a repeat changes nothing"
    assert not failed(cell, waiting, step, attempt, host)
    assert everything(cell) == before


def test_the_switch_is_one_statement(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "transfer")
    before = server(cell)
    assert (before.host, before.attempt, before.task) == (HOST, 1, Task.RESIZE_MIGRATING)
    assert done(cell, waiting, "transfer", waiting.attempt, OTHER)
    after = server(cell)
    assert (after.host, after.attempt, after.task) == (OTHER, waiting.attempt, Task.RESIZE_FINISH)
    assert given_up(cell) == [], "the source keeps its disks"


def test_reports_of_the_target_count_whatever_the_source_had_done(cell: sa.Connection) -> None:
    waiting = begin(cell)
    cell.execute(cell_tables.instances.update().values(acted_id="req-start"))
    up_to(cell, waiting, "rests")
    [known] = guests.known(cell, OTHER, [ONE])
    found = correction(known, GuestSeen(ONE, waiting.attempt, PowerState.SHUTDOWN))
    assert found is not None
    assert (found.state, found.power_state) == (State.RESIZED, PowerState.SHUTDOWN)


def test_a_permission_is_for_the_step_and_its_host_alone(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "put_aside")
    uuid = waiting.move.uuid
    assert move_steps.may(cell, uuid, "put_aside", 1, HOST, NOW)[0]
    for step, attempt, host in (("put_aside", 2, OTHER), ("take_back", 1, HOST), ("take_up", 2, OTHER)):
        assert not move_steps.may(cell, uuid, step, attempt, host, NOW)[0]
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert not move_steps.may(cell, uuid, "put_aside", 1, HOST, NOW)[0]


def test_a_target_that_refuses_is_undone_and_another_is_tried(cell: sa.Connection) -> None:
    waiting = begin(cell)
    assert failed(cell, waiting, "prepare", waiting.attempt, OTHER)
    assert given_up(cell) == [waiting.attempt]
    for number in (3, 4):
        [again] = cold_moves.take(cell, ME, NOW, 5)
        assert again.attempt > waiting.attempt
        assert {f"node-{HOST}", f"node-{OTHER}"} <= set(again.ignore)
        assert cold_moves.placed(cell, again, placed(f"host{number}"), NOW)
        assert failed(cell, again, "prepare", again.attempt, f"host{number}")
    assert cold_moves.take(cell, ME, NOW, 5) == [], "three hosts are enough"
    after = server(cell)
    assert (after.state, after.task, after.attempt, after.host) == (State.ACTIVE, None, 1, HOST)
    assert after.fault is not None
    assert status(cell) == "error"


@pytest.mark.parametrize("step", ["put_aside", "transfer"])
def test_what_fails_before_the_switch_is_taken_back(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    assert failed(cell, waiting, step, *place(waiting, step))
    assert given_up(cell) == [waiting.attempt]
    assert not done(cell, waiting, "transfer", waiting.attempt, OTHER), "after a failure nothing switches"
    assert failed(cell, waiting, "take_back", 1, HOST)
    assert state_of(cell) is State.ERROR
    assert done(cell, waiting, "take_back", 1, HOST)
    after = server(cell)
    assert (after.state, after.task, after.attempt) == (State.ACTIVE, None, 1)
    assert (status(cell), after.fault is not None) == ("error", True)


@pytest.mark.parametrize("step", [*STEPS, "rests"])
def test_a_delete_takes_the_server_away_from_its_move(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    for name in STEPS:
        assert not done(cell, waiting, name, *place(waiting, name))
    number, over = move_steps.abandon(cell, NOW, 5)
    assert number == 1
    assert [one.error is not None for one, _ in over] == ([] if step == "rests" else [True])
    assert status(cell) == ("confirmed" if step == "rests" else "error")
    assert move_steps.abandon(cell, NOW, 5) == (0, [])
    assert given_up(cell) == [1, waiting.attempt]


def test_a_mark_of_the_source_leaves_the_disks_that_it_keeps(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    assert fence(cell, HOST, effect=False).released == ()
    assert [one.open for one in attempts.history(cell, ONE)] == [True, True]


def test_a_fence_of_the_source_before_the_switch_ends_the_move(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "transfer")
    assert fence(cell, HOST, effect=True).lost == 1
    assert move_steps.abandon(cell, NOW, 5)[0] == 1
    assert state_of(cell) is State.ERROR
    assert given_up(cell) == [waiting.attempt]
    assert not done(cell, waiting, "transfer", waiting.attempt, OTHER)


def test_a_fence_of_the_target_keeps_the_source(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    assert fence(cell, OTHER, effect=True).lost == 1
    move_steps.abandon(cell, NOW, 5)
    assert [(one.attempt, one.open) for one in attempts.history(cell, ONE)] == [(1, True), (waiting.attempt, False)]


def test_a_revert_needs_the_disks_of_the_source(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    fence(cell, HOST, effect=True)
    assert state_of(cell) is State.RESIZED
    with pytest.raises(Conflict, match=f"host {HOST}, which it left, is lost"):
        revert(cell)


def test_a_revert_gives_the_server_to_another_attempt(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    revert(cell)
    assert done(cell, waiting, "revert_put_aside", waiting.attempt, OTHER)
    assert done(cell, waiting, "revert_receive", 3, HOST)
    assert done(cell, waiting, "revert_take_up", 3, HOST)
    after = server(cell)
    assert (after.state, after.task, after.attempt, after.host) == (State.ACTIVE, None, 3, HOST)
    assert given_up(cell) == [1, 2]
    assert status(cell) == "reverted"


@pytest.mark.parametrize("step", ["revert_put_aside", "revert_receive"])
def test_a_revert_that_fails_leaves_the_server_where_it_was_moved_to(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    revert(cell)
    if step == "revert_receive":
        assert done(cell, waiting, "revert_put_aside", waiting.attempt, OTHER)
    where = (waiting.attempt, OTHER) if step == "revert_put_aside" else (3, HOST)
    assert failed(cell, waiting, step, *where)
    assert given_up(cell) == [3]
    assert done(cell, waiting, "revert_take_back", waiting.attempt, OTHER)
    after = server(cell)
    assert (after.state, after.task, after.attempt, after.host) == (State.RESIZED, None, waiting.attempt, OTHER)
    assert status(cell) == "finished"


def test_silent_hosts(cell: sa.Connection) -> None:
    waiting = begin(cell)
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.attempt, order.assignment.host, order.move.row.order) == (waiting.attempt, OTHER, "prepare")
    assert [one.step for one in move_steps.overdue(cell, NOW + 5, 5)] == ["prepare"]
    up_to(cell, waiting, "put_aside")
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert move_steps.may(cell, waiting.move.uuid, "put_aside", 1, HOST, NOW)[0]
    assert move_steps.overdue(cell, NOW + 5, 5) == [], "only the host knows what it did"


def test_the_room_of_a_target_is_asserted_until_its_host_counts_it(cell: sa.Connection) -> None:
    waiting = begin(cell)
    [claim] = assertions.read(cell).claims
    assert (claim.attempt, claim.node, claim.role) == (waiting.attempt, f"node-{OTHER}", "move_target")
    assert claim.resources == FLAVOR.resources()
    up_to(cell, waiting, "rests")
    assert assertions.read(cell).claims == ()


def test_a_move_is_confirmed_by_itself_after_the_window(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    assert cold_moves.to_confirm(cell, NOW, 5) == []
    assert cold_moves.to_confirm(cell, NOW + 1, 5) == [ONE]
    cell.execute(cell_tables.instances.update().values(task="resize_reverting"))
    assert cold_moves.to_confirm(cell, NOW + 1, 5) == []
