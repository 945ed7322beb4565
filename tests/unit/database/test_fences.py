"""What becomes of everything on a host that is declared dead, and should it come back after all."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import actions, agents, attempts, builds, deletes, fences, instances, moves, tables, tasks
from skep.domain.actions import REPEATED
from skep.domain.claims import ClaimKey
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import PowerState, State, Task
from tests.support.rows import FAULT, HOST, ONE, asking, bring_to, context, everything, give_up, state_of

NOW = 100
NODE = NodeUuid(f"node-{HOST}")
DEAD = fences.FencedHost(node=NODE, host=HOST, due_at=NOW)
MARKED = fences.FencedHost(node=NODE, host=HOST, in_effect=False, due_at=NOW + 50)
CLAIM = ClaimKey(ONE, 1, NODE)


def register(cell: sa.Connection) -> None:
    agents.register(cell, AgentIdentity(node=NODE, host=HOST, process=Incarnation("a")), 1)


def fence(cell: sa.Connection) -> fences.Closed:
    mark(cell)
    assert fences.take_effect(cell, NODE, NOW)
    return fences.close(cell, DEAD, NOW, 10)


def mark(cell: sa.Connection, due_at: int = NOW) -> None:
    register(cell)
    assert fences.mark(cell, NODE, NOW, due_at)


def outcomes(cell: sa.Connection) -> list[tuple[int, bool, str | None]]:
    return [(one.attempt, one.open, one.outcome) for one in attempts.history(cell, ONE)]


@pytest.mark.parametrize("state", [State.SCHEDULED, State.BUILDING, State.SPAWNING])
def test_builds_go_to_another_host(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    assert fence(cell) == fences.Closed(released=(CLAIM,), rescheduled=1)
    assert state_of(cell) is State.RESCHEDULING
    assert outcomes(cell) == [(1, False, "fenced")]
    assert builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW) is None
    assert fences.close(cell, DEAD, NOW, 10) == fences.Closed()


@pytest.mark.parametrize("state", [State.ACTIVE, State.STOPPED])
def test_servers_that_ran_there_are_error_and_keep_their_host(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    assert fence(cell) == fences.Closed(released=(CLAIM,), lost=1)
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.host, server.attempt, server.task) == (State.ERROR, HOST, 2, None)
    assert server.fault is not None
    assert HOST not in server.fault.message
    assert server.fault.details == "host host1 was fenced"


def test_a_server_that_was_given_up_there_stays_in_error(cell: sa.Connection) -> None:
    give_up(cell)
    assert fence(cell).lost == 1
    assert builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW) is None
    assert state_of(cell) is State.ERROR


def test_what_a_failed_clean_up_left_there_is_closed_and_the_fault_stays(cell: sa.Connection) -> None:
    bring_to(cell, State.ERROR)
    assert fence(cell) == fences.Closed(released=(CLAIM,))
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.fault, server.attempt) == (FAULT, 2)


def test_a_row_that_moved_away_stays_so_and_what_its_host_brings_back_is_undone(cell: sa.Connection) -> None:
    """As after a restore: the row is of before the move, and its host still had an attempt."""
    give_up(cell)
    assert moves.left(cell, ONE, NOW)
    assert fence(cell) == fences.Closed(released=(CLAIM,))
    assert state_of(cell) is State.MOVED
    assert fences.came_back(cell, NODE) == 1
    assert [one.attempt for one in attempts.stale_due(cell, NOW, NOW, 10)] == [1]


def test_a_task_ends_with_an_error(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    tasks.begin(cell, ONE, asking(Task.REBOOTING, frozenset({State.ACTIVE})), context("req-r"), NOW)
    fence(cell)
    [event] = actions.events_of(cell, ONE, "req-r")
    assert event.result == "Error"
    assert tasks.done(cell, ONE, 1, "req-r", PowerState.RUNNING, None, NOW) is None


def test_a_delete_ends(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    deletes.begin(cell, ONE, context("req-d"), NOW)
    closed = fence(cell)
    assert (closed.released, closed.deleted) == ((CLAIM,), 1)
    assert state_of(cell) is State.DELETED


def test_other_hosts_keep_what_they_have(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    before = everything(cell)
    assert fences.close(cell, fences.FencedHost(node=NodeUuid("n2"), host="host2"), NOW, 10) == fences.Closed()
    assert everything(cell) == before


@pytest.mark.parametrize("deleted", [False, True])
def test_a_host_that_comes_back_is_told_to_undo_all_that_it_had(cell: sa.Connection, deleted: bool) -> None:
    register(cell)
    bring_to(cell, State.ACTIVE)
    if deleted:
        deletes.begin(cell, ONE, context("req-d"), NOW)
    assert fences.mark(cell, NODE, NOW, NOW)
    assert fences.mark(cell, NODE, NOW + 5, NOW + 5), "it may be repeated"
    assert fences.mark(cell, NodeUuid("unknown"), NOW, NOW) is False
    assert fences.take_effect(cell, NODE, NOW)
    assert fences.fenced(cell) == [DEAD]
    found = agents.get(cell, NODE)
    assert found is not None
    assert (found.fenced_at, found.fence_due_at, found.fence_in_effect) == (NOW, NOW, True)
    fences.close(cell, DEAD, NOW, 10)
    state = state_of(cell)
    assert fences.came_back(cell, NODE) == 1
    assert fences.fenced(cell) == []
    [stale] = attempts.stale_due(cell, NOW, NOW, 5)
    assert (stale.instance, stale.attempt, stale.host) == (ONE, 1, HOST)
    deletes.mark_forgotten(cell, [ONE])
    assert deletes.purge(cell, NOW + 1, 5) == 0, "the row stays until its host has undone it"
    assert attempts.close(cell, ONE, HOST, 1, NOW) == [CLAIM]
    assert outcomes(cell) == [(1, False, "fenced")]
    assert state_of(cell) is state


def test_what_a_host_that_came_back_has_to_undo_is_not_closed_by_who_still_takes_it_for_dead(
    cell: sa.Connection,
) -> None:
    bring_to(cell, State.ACTIVE)
    deletes.begin(cell, ONE, context("req-d"), NOW)
    closed = fence(cell)
    assert (closed.released, closed.deleted) == ((CLAIM,), 1)
    assert fences.came_back(cell, NODE) == 1
    before = everything(cell)
    assert fences.close(cell, DEAD, NOW, 10) == fences.Closed()
    assert everything(cell) == before


@pytest.mark.parametrize(
    "state", [State.SCHEDULED, State.BUILDING, State.SPAWNING, State.ACTIVE, State.STOPPED, State.ERROR]
)
def test_a_mark_changes_nothing_of_what_is_still_there(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    register(cell)
    before = everything(cell)
    mark(cell, NOW + 50)
    assert fences.fenced(cell) == [MARKED]
    assert fences.take_effect(cell, NODE, NOW + 49) is False
    assert fences.settle(cell, MARKED, NOW, 10) == fences.Closed()
    assert fences.close(cell, MARKED, NOW, 10) == fences.Closed(), "it is not in effect"
    assert fences.take_back(cell, NODE)
    assert everything(cell) == before
    assert fences.take_effect(cell, NODE, NOW + 60) is False
    assert fences.take_back(cell, NODE) is False


def test_a_delete_does_not_wait_for_a_marked_host_and_stays_done_when_the_mark_is_taken_back(
    cell: sa.Connection,
) -> None:
    bring_to(cell, State.ACTIVE)
    mark(cell, NOW + 50)
    deletes.begin(cell, ONE, context("req-d"), NOW)
    closed = fences.settle(cell, MARKED, NOW, 10)
    assert (closed.released, closed.deleted) == ((CLAIM,), 1)
    assert fences.take_back(cell, NODE)
    assert state_of(cell) is State.DELETED
    [stale] = attempts.stale_due(cell, NOW, NOW, 5)
    assert (stale.instance, stale.attempt, stale.host) == (ONE, 1, HOST)


def test_a_task_on_a_marked_host_ends_and_the_server_stays(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    tasks.begin(cell, ONE, asking(Task.POWERING_OFF, frozenset({State.ACTIVE})), context("req-s"), NOW)
    mark(cell, NOW + 50)
    fences.settle(cell, MARKED, NOW, 10)
    [event] = actions.events_of(cell, ONE, "req-s")
    assert event.result == "Error"
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.task, server.attempt) == (State.ACTIVE, None, 1)


def begun_by_host(cell: sa.Connection, task: Task) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, asking(task, frozenset({State.ACTIVE})), context("req-v"), NOW)
    assert tasks.may_act(cell, ONE, 1, HOST, task, "req-v", NOW)


@pytest.mark.parametrize("task", sorted(REPEATED))
def test_what_a_guest_gets_or_loses_stays_with_a_marked_host_that_has_begun_it(cell: sa.Connection, task: Task) -> None:
    """It may come back with the guest, and says then what the guest has."""
    begun_by_host(cell, task)
    mark(cell, NOW + 50)
    before = everything(cell)
    assert fences.settle(cell, MARKED, NOW, 10) == fences.Closed()
    assert everything(cell) == before
    assert fences.came_back(cell, NODE) == 0
    ended = tasks.done(cell, ONE, 1, "req-v", PowerState.RUNNING, None, NOW)
    assert ended is not None
    assert ended.error is None


@pytest.mark.parametrize("task", sorted(REPEATED))
def test_what_a_guest_gets_or_loses_ends_once_the_fence_takes_effect(cell: sa.Connection, task: Task) -> None:
    begun_by_host(cell, task)
    mark(cell, NOW + 50)
    assert fences.take_effect(cell, NODE, NOW + 50)
    closed = fences.close(cell, DEAD, NOW + 50, 10)
    assert (closed.lost, [one.context.request_id for one in closed.ended]) == (1, ["req-v"])
    server = instances.get(cell, ONE)
    assert server is not None
    assert (server.state, server.task) == (State.ERROR, None)
    assert tasks.done(cell, ONE, 1, "req-v", PowerState.RUNNING, None, NOW + 60) is None


def test_what_a_guest_gets_ends_on_a_marked_host_that_has_not_begun_it(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    tasks.begin(cell, ONE, asking(Task.ATTACHING_VOLUME, frozenset({State.ACTIVE})), context("req-v"), NOW)
    mark(cell, NOW + 50)
    assert len(fences.settle(cell, MARKED, NOW, 10).ended) == 1
    assert tasks.may_act(cell, ONE, 1, HOST, Task.ATTACHING_VOLUME, "req-v", NOW) is False


def test_a_fence_that_has_taken_effect_is_not_taken_back(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    fence(cell)
    assert fences.take_back(cell, NODE) is False
    assert state_of(cell) is State.ERROR


def test_a_fence_that_an_older_release_wrote_is_in_effect_at_once(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    register(cell)
    cell.execute(tables.agents.update().values(fenced_at=NOW))
    [found] = fences.fenced(cell)
    assert found.in_effect
    assert fences.close(cell, found, NOW, 10).lost == 1
