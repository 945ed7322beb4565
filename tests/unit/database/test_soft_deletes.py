"""Soft-deleted servers as rows of a cell: deleted, restored, reclaimed, and what the level above is told of them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import actions, attempts, fences, guests, instances, owed, row_actions, soft_deletes, tasks
from skep.database.cell import tables as cell_tables
from skep.database.cell.fences import FencedHost
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.capabilities import Capability
from skep.domain.guests import GuestSeen, correction
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.quotas import NOTHING
from tests.support.rows import HOST, ONE, bring_to, context, everything, state_of

NOW = 100
RESTORE, SOFT_DELETE = ACTIONS["restore"], ACTIONS["soft_delete"]


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def acted(cell: sa.Connection, name: str, power_state: PowerState, error: str | None = None) -> None:
    """Have the host carry out an action that was begun."""
    task = ACTIONS[name].task
    assert task is not None
    assert tasks.may_act(cell, ONE, 1, HOST, task, f"req-{name}", NOW)
    assert tasks.done(cell, ONE, 1, f"req-{name}", power_state, error, NOW)


def begin(cell: sa.Connection, name: str) -> bool:
    return tasks.begin(cell, ONE, ACTIONS[name], context(f"req-{name}"), NOW)


@pytest.mark.parametrize("state", [State.ACTIVE, State.STOPPED, State.PAUSED, State.SUSPENDED, State.ERROR])
def test_a_server_is_soft_deleted_and_restored(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    if state is State.ERROR:
        running = {"power_state": int(PowerState.RUNNING)}
        cell.execute(cell_tables.instances.update().values(host=HOST, launched_at=5, **running))
    assert begin(cell, "soft_delete")
    acted(cell, "soft_delete", PowerState.SHUTDOWN)
    after = server(cell)
    assert (after.state, after.task, after.power_state) == (State.SOFT_DELETED, None, PowerState.SHUTDOWN)
    assert (after.deleted_at, after.attempt, after.host) == (None, 1, HOST)
    assert begin(cell, "restore")
    assert server(cell).task is Task.RESTORING
    acted(cell, "restore", PowerState.RUNNING)
    after = server(cell)
    assert (after.state, after.task, after.fault) == (State.ACTIVE, None, None)
    [event] = actions.events_of(cell, ONE, "req-restore")
    assert (event.event, event.result) == ("compute_restore_instance", "Success")
    [event] = actions.events_of(cell, ONE, "req-soft_delete")
    assert (event.event, event.result) == ("compute_soft_delete_instance", "Success")


@pytest.mark.parametrize(
    ("power_state", "state"), [(PowerState.RUNNING, State.ACTIVE), (PowerState.SHUTDOWN, State.STOPPED)]
)
def test_a_soft_delete_that_fails_leaves_the_server_as_its_guest_is(
    cell: sa.Connection, power_state: PowerState, state: State
) -> None:
    bring_to(cell, State.ACTIVE)
    assert begin(cell, "soft_delete")
    acted(cell, "soft_delete", power_state, "it broke")
    assert state_of(cell) is state


@pytest.mark.parametrize("power_state", [PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.NOSTATE])
def test_a_restore_that_fails_leaves_the_server_deleted(cell: sa.Connection, power_state: PowerState) -> None:
    bring_to(cell, State.SOFT_DELETED)
    assert begin(cell, "restore")
    acted(cell, "restore", power_state, "it broke")
    assert (state_of(cell), server(cell).task) == (State.SOFT_DELETED, None)


def test_a_restore_in_doubt_is_settled_by_the_guest(cell: sa.Connection) -> None:
    for power_state, state in ((PowerState.SHUTDOWN, State.SOFT_DELETED), (PowerState.RUNNING, State.ACTIVE)):
        with cell.begin_nested() as savepoint:
            bring_to(cell, State.SOFT_DELETED)
            assert begin(cell, "restore")
            assert tasks.may_act(cell, ONE, 1, HOST, Task.RESTORING, "req-restore", NOW)
            [task] = tasks.of(cell, cell_tables.instances.c.uuid == ONE)
            assert tasks.give_up(cell, task, NOW) is not None
            [known] = guests.known(cell, HOST, [ONE])
            found = correction(known, GuestSeen(ONE, 1, power_state, ("req-restore",)))
            assert found is not None
            assert tasks.correct(cell, known, found, HOST, NOW) is not None
            assert (state_of(cell), server(cell).task) == (state, None)
            savepoint.rollback()


def test_a_late_soft_delete_is_a_stop(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert begin(cell, "soft_delete")
    [task] = tasks.of(cell, cell_tables.instances.c.uuid == ONE)
    assert tasks.give_up(cell, task, NOW) is not None
    assert tasks.done(cell, ONE, 1, "req-soft_delete", PowerState.SHUTDOWN, None, NOW)
    assert state_of(cell) is State.STOPPED, "what was given up may have been told above already"


def test_a_guest_that_runs_under_a_soft_deleted_server_is_stopped(cell: sa.Connection) -> None:
    bring_to(cell, State.SOFT_DELETED)
    assert tasks.stop_running(cell, ONE, State.SOFT_DELETED, NOW)
    found = server(cell)
    assert (found.state, found.task) == (State.SOFT_DELETED, Task.SOFT_DELETING)
    [task] = tasks.of(cell, cell_tables.instances.c.uuid == ONE)
    assert tasks.done(cell, ONE, 1, task.task_id, PowerState.SHUTDOWN, None, NOW)
    assert (state_of(cell), server(cell).task) == (State.SOFT_DELETED, None)


def test_what_settles_a_charge(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)

    def settle(task_id: str, *, give_up: bool = False) -> bool | None:
        """Tell whether nothing is owed; None: the task may not be over."""
        told = owed.settle(cell, ONE, task_id, give_up=give_up)
        here = [(ONE, task_id)]
        over = owed.all_over(cell, [] if give_up else here, given_up=here if give_up else [])
        assert over == (set() if told is None else {ONE})
        return None if told is None else told.charge == NOTHING

    assert settle("req-soft_delete") is None, "its task may be written the next moment"
    assert begin(cell, "soft_delete")
    assert settle("req-soft_delete", give_up=True) is None, "it is under way"
    acted(cell, "soft_delete", PowerState.SHUTDOWN)
    assert settle("req-soft_delete") is True
    assert settle("req-soft_delete") is True, "it says so again"
    assert settle("req-restore") is None
    assert settle("req-restore", give_up=True) is True
    assert not begin(cell, "restore"), "what was given up does not begin any more"
    assert tasks.begin(cell, ONE, RESTORE, context("req-again"), NOW)
    assert settle("req-restore", give_up=True) is None, "another task is under way"
    assert tasks.done(cell, ONE, 1, "req-again", PowerState.RUNNING, None, NOW)
    assert settle("req-again") is False
    assert owed.settle(cell, InstanceUuid("another"), "req-again", give_up=True) is None


def test_what_was_given_up_is_not_written_either(cell: sa.Connection) -> None:
    bring_to(cell, State.SOFT_DELETED)
    told = owed.settle(cell, ONE, "req-reset", give_up=True)
    assert told is not None
    assert told.charge == NOTHING
    before = everything(cell)
    request = ActionRequest(action="reset_state", context=context("req-reset"), arguments={"state": "active"})
    reset = ACTIONS["reset_state"]
    assert row_actions.carry_out(cell, ONE, reset, request, lambda _server: None, "api-1", NOW) is None
    assert everything(cell) == before


def test_what_is_older_is_reclaimed_once(cell: sa.Connection) -> None:
    bring_to(cell, State.SOFT_DELETED, now=50)
    assert not soft_deletes.any_due(cell, 50)
    assert soft_deletes.reclaim(cell, 50, 5, NOW) == (0, [])
    assert soft_deletes.any_due(cell, 51)
    assert soft_deletes.reclaim(cell, 51, 5, NOW) == (1, [])
    found = server(cell)
    assert (found.task, found.attempt) == (Task.DELETING, 2)
    assert not begin(cell, "restore")
    assert soft_deletes.reclaim(cell, 51, 5, NOW) == (0, [])
    [stale] = attempts.stale_due(cell, NOW, NOW, 5)
    assert (stale.attempt, stale.host, stale.deleted) == (1, HOST, True)


def test_what_is_restored_is_not_reclaimed(cell: sa.Connection) -> None:
    bring_to(cell, State.SOFT_DELETED, now=50)
    assert begin(cell, "restore")
    assert soft_deletes.reclaim(cell, NOW, 5, NOW) == (0, [])
    acted(cell, "restore", PowerState.RUNNING)
    assert soft_deletes.reclaim(cell, NOW + 1, 5, NOW) == (0, [])


def at(cell: sa.Connection, name: str, request: str, now: int, power_state: PowerState, error: str | None) -> None:
    """Have an action done at a time."""
    action = ACTIONS[name]
    assert action.task is not None
    assert tasks.begin(cell, ONE, action, context(request), now)
    assert tasks.may_act(cell, ONE, 1, HOST, action.task, request, now)
    assert tasks.done(cell, ONE, 1, request, power_state, error, now)


def test_what_fails_or_is_stopped_again_does_not_begin_the_time_of_reclaim_anew(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE, now=10)
    off, on = PowerState.SHUTDOWN, PowerState.RUNNING
    at(cell, "soft_delete", "req-1", 20, off, None)
    at(cell, "restore", "req-2", 30, off, "it broke")
    assert tasks.begin(cell, ONE, RESTORE, context("req-3"), 40)
    [task] = tasks.of(cell, cell_tables.instances.c.uuid == ONE)
    assert tasks.give_up(cell, task, 45) is not None
    assert tasks.stop_running(cell, ONE, State.SOFT_DELETED, 50)
    [task] = tasks.of(cell, cell_tables.instances.c.uuid == ONE)
    assert tasks.done(cell, ONE, 1, task.task_id, off, None, 55)
    assert soft_deletes.any_due(cell, 21)
    assert not soft_deletes.any_due(cell, 20)
    at(cell, "restore", "req-4", 60, on, None)
    at(cell, "soft_delete", "req-5", 70, off, None)
    at(cell, "restore", "req-6", 80, off, "it broke")
    assert not soft_deletes.any_due(cell, 70), "it was restored since"
    assert soft_deletes.any_due(cell, 71)


def test_what_can_be_kept(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert soft_deletes.can_be_kept(cell, server(cell))
    values = {"node": f"node-{HOST}", "host": HOST, "incarnation": 1, "process": "p", "registered_at": 1}
    able = {"understands": "[]", "understood_of": "p"}
    cell.execute(cell_tables.agents.insert().values(**values, **able, mapped=True, capabilities='["image"]'))
    assert not soft_deletes.can_be_kept(cell, server(cell)), "its driver cannot stop it"
    cell.execute(cell_tables.agents.update().values(capabilities=f'["{Capability.POWER}"]'))
    assert soft_deletes.can_be_kept(cell, server(cell))
    lost = {"state": State.ERROR.value, "power_state": int(PowerState.NOSTATE)}
    cell.execute(cell_tables.instances.update().values(**lost))
    assert not soft_deletes.can_be_kept(cell, server(cell)), "its guest is gone"
    cell.execute(cell_tables.instances.update().values(state=State.ACTIVE.value))
    cell.execute(cell_tables.attempts.update().values(open=False))
    assert not soft_deletes.can_be_kept(cell, server(cell)), "its host is lost"


@pytest.mark.parametrize("state", [State.SCHEDULED, State.SPAWNING, State.RESCHEDULING, State.ERROR])
def test_what_was_not_built_is_not_kept(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    assert not soft_deletes.can_be_kept(cell, server(cell))


def test_a_fence_deletes_what_was_soft_deleted(cell: sa.Connection) -> None:
    bring_to(cell, State.SOFT_DELETED)
    values = {"node": f"node-{HOST}", "host": HOST, "incarnation": 1, "process": "p", "registered_at": 1}
    cell.execute(cell_tables.agents.insert().values(**values, mapped=True, fenced_at=NOW, fence_marked_at=NOW))
    closed = fences.close(cell, FencedHost(node=NodeUuid(f"node-{HOST}"), host=HOST), NOW, 5)
    assert (closed.deleted, closed.lost) == (1, 0)
    assert state_of(cell) is State.DELETED
