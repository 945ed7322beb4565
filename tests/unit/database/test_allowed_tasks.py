"""A start, stop or reboot is allowed to begin, given up, in doubt or corrected; each by one fenced statement."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, deletes, guests, instances, tables, tasks
from skep.domain.actions import ACTIONS
from skep.domain.guests import Correction, GuestSeen, correction
from skep.domain.instances import Instance, PowerState, State, Task
from tests.support.rows import HOST, ONE, asking, bring_to, context

NOW = 100
OFF = PowerState.SHUTDOWN
ON = PowerState.RUNNING


def running(cell: sa.Connection, task: Task = Task.POWERING_OFF, task_id: str = "req-t") -> tasks.HostTask:
    """Have a server run whose task is under way."""
    bring_to(cell, State.ACTIVE)
    return begun(cell, task, task_id)


def begun(cell: sa.Connection, task: Task, task_id: str, at: int = NOW) -> tasks.HostTask:
    assert tasks.begin(cell, ONE, asking(task, frozenset(State)), context(task_id), at)
    [found] = tasks.due(cell, at, at, 5)
    return found


def asks(cell: sa.Connection, task: Task = Task.POWERING_OFF, task_id: str = "req-t", attempt: int = 1) -> bool:
    return tasks.may_act(cell, ONE, attempt, HOST, task, task_id, NOW)


def says(cell: sa.Connection, state: PowerState, task_id: str = "req-t", *, begun: bool = True) -> bool:
    error = None if begun else "GivenUp: it was given up"
    return tasks.done(cell, ONE, 1, task_id, state, error, NOW, begun=begun) is not None


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def results(cell: sa.Connection, task_id: str = "req-t") -> list[tuple[str | None, str | None]]:
    """The events of an action, oldest first."""
    return [(one.result, one.details) for one in reversed(actions.events_of(cell, ONE, task_id))]


def test_only_what_is_still_wanted_may_begin(cell: sa.Connection) -> None:
    running(cell)
    assert asks(cell)
    assert asks(cell), "a repeat"
    assert asks(cell, task_id="req-other") is False
    assert asks(cell, Task.POWERING_ON) is False
    assert asks(cell, attempt=2) is False
    assert tasks.may_act(cell, ONE, 1, "another", Task.POWERING_OFF, "req-t", NOW) is False
    deletes.begin(cell, ONE, context("req-d"), NOW)
    assert asks(cell) is False


def test_what_was_given_up_before_it_began_may_not_begin(cell: sa.Connection) -> None:
    task = running(cell)
    assert tasks.give_up(cell, task, NOW)
    assert tasks.give_up(cell, task, NOW) is None
    assert asks(cell) is False
    assert (server(cell).state, server(cell).task) == (State.ACTIVE, None)
    assert results(cell) == [("Error", "The host did not answer")]
    assert says(cell, ON, begun=False) is False, "the host tells that it did nothing: that is known"


def test_after_a_yes_the_deadline_leaves_the_task_in_doubt_until_the_host_has_spoken(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    assert tasks.give_up(cell, task, NOW)
    assert tasks.give_up(cell, task, NOW) is None
    assert tasks.overdue(cell, NOW + 10, 5) == []
    assert asks(cell) is False, "it was said that nothing is known: it is not begun any more"
    assert server(cell).task is Task.POWERING_OFF
    assert results(cell) == [("Error", "The host did not answer: whether it was done is unknown")]
    assert says(cell, OFF)
    assert (server(cell).state, server(cell).task) == (State.STOPPED, None)
    assert results(cell)[1:] == [("Success", None)]
    [action] = [one for one in actions.list_of(cell, ONE, limit=9) if one.action == "stop"]
    assert action.message is None, "in the end it was done"


def test_a_host_that_had_not_begun_settles_a_doubt_too(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    tasks.give_up(cell, task, NOW)
    assert says(cell, ON, begun=False)
    assert (server(cell).state, server(cell).task, server(cell).fault) == (State.ACTIVE, None, None)
    assert results(cell)[1:] == [("Error", "GivenUp: it was given up")]
    acted = cell.execute(sa.select(tasks.row.acted_id)).scalar_one()
    assert acted is None, "its reports never name the task, and count"


def test_only_what_no_host_may_have_begun_is_refused(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    assert tasks.refuse(cell, task, NOW, "unknown to the agent") is None
    assert server(cell).task is Task.POWERING_OFF
    assert says(cell, OFF)
    task = begun(cell, Task.POWERING_ON, "req-u", NOW + 1)
    assert tasks.refuse(cell, task, NOW + 1, "unknown to the agent") is not None
    assert (server(cell).state, server(cell).task) == (State.STOPPED, None)


def test_an_agent_that_does_not_ask_and_carries_out_late_says_how_the_guest_is(cell: sa.Connection) -> None:
    task = running(cell)
    assert tasks.give_up(cell, task, NOW)
    assert says(cell, OFF)
    assert (server(cell).state, server(cell).power_state) == (State.STOPPED, OFF)


def test_what_it_carried_out_before_a_later_action_says_nothing(cell: sa.Connection) -> None:
    assert tasks.give_up(cell, running(cell), NOW)
    begun(cell, Task.REBOOTING, "req-u", NOW + 1)
    assert tasks.done(cell, ONE, 1, "req-u", ON, None, NOW + 2)
    assert says(cell, OFF) is False
    assert server(cell).state is State.ACTIVE


def look(cell: sa.Connection, state: PowerState, *begun_tasks: str) -> Correction | None:
    """Take a report of the guest, as a conductor does."""
    [known] = guests.known(cell, HOST, [ONE])
    found = correction(known, GuestSeen(ONE, 1, state, begun_tasks))
    if found is not None:
        tasks.correct(cell, known, found, HOST, NOW)
    return found


def test_a_guest_that_stopped_by_itself_stops_its_server(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert look(cell, OFF) is not None
    assert (server(cell).state, server(cell).power_state) == (State.STOPPED, OFF)
    assert look(cell, OFF) is None


def test_a_guest_that_runs_under_a_stopped_server_is_stopped(cell: sa.Connection) -> None:
    assert asks_and_stops(cell)
    assert look(cell, ON, "req-t") is not None
    assert (server(cell).state, server(cell).power_state, server(cell).task) == (State.STOPPED, ON, Task.POWERING_OFF)
    [stop] = tasks.due(cell, NOW, NOW, 5)
    assert stop.task_id != "req-t"
    assert [one.action for one in actions.list_of(cell, ONE, limit=9)].count("stop") == 2


def asks_and_stops(cell: sa.Connection) -> bool:
    running(cell)
    return asks(cell) and says(cell, OFF)


def test_a_look_that_is_older_than_the_last_action_changes_nothing(cell: sa.Connection) -> None:
    assert asks_and_stops(cell)
    assert look(cell, ON) is None
    assert server(cell).state is State.STOPPED


def test_a_report_settles_a_doubt(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    tasks.give_up(cell, task, NOW)
    assert look(cell, OFF) is None, "the host has not heard the yes, as far as it says"
    assert look(cell, OFF, "req-t") is not None
    assert (server(cell).state, server(cell).task) == (State.STOPPED, None)
    assert asks(cell) is False


def test_a_row_that_changed_after_it_was_compared_stays(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    [known] = guests.known(cell, HOST, [ONE])
    found = correction(known, GuestSeen(ONE, 1, OFF))
    assert found is not None
    begun(cell, Task.REBOOTING, "req-t")
    before = cell.execute(sa.select(tables.instances)).all()
    tasks.correct(cell, known, found, HOST, NOW)
    assert cell.execute(sa.select(tables.instances)).all() == before


def test_an_action_ends_a_task_that_it_overrides_and_no_other(cell: sa.Connection) -> None:
    running(cell, Task.REBOOTING, "req-t")
    hard = ACTIONS["reboot_hard"]
    for other in (
        msgspec.structs.replace(hard, overrides=frozenset({Task.PAUSING})),
        msgspec.structs.replace(hard, begins_in=frozenset({State.STOPPED})),
    ):
        assert tasks.begin_over(cell, ONE, other, context("req-u"), NOW) is None
    assert (server(cell).task, results(cell)) == (Task.REBOOTING, [])
    over = tasks.begin_over(cell, ONE, hard, context("req-u"), NOW)
    assert over is not None
    assert [(one.action, one.error) for one, _ in over] == [("reboot_soft", tasks.OVERTAKEN)]
    assert server(cell).task is Task.REBOOTING_HARD
    assert results(cell) == [("Error", tasks.OVERTAKEN)]
    assert asks(cell, Task.REBOOTING) is False
    assert asks(cell, Task.REBOOTING_HARD, "req-u")


def test_a_delete_ends_what_is_under_way(cell: sa.Connection) -> None:
    running(cell)
    assert asks(cell)
    over = deletes.begin(cell, ONE, context("req-d"), NOW)
    assert over is not None
    assert [(one.action, one.error, one.context.request_id) for one in over] == [("stop", tasks.OVERTAKEN, "req-t")]
    assert server(cell).task is Task.DELETING
    assert results(cell) == [("Error", tasks.OVERTAKEN)]
    assert says(cell, OFF) is False


def test_a_server_whose_guest_is_gone_is_in_error_and_says_why(cell: sa.Connection) -> None:
    running(cell)
    assert asks(cell)
    error = f"InstanceNotFound: there is no guest of {ONE} on host {HOST}"
    assert tasks.done(cell, ONE, 1, "req-t", PowerState.NOSTATE, error, NOW, gone=True)
    found = server(cell)
    assert (found.state, found.task, found.power_state) == (State.ERROR, None, PowerState.NOSTATE)
    assert found.fault is not None
    assert (found.fault.message, found.fault.details) == (tasks.GONE, error)
    assert HOST not in found.fault.message, "its owner does not read the names of hosts"
    assert results(cell) == [("Error", error)]


def test_a_guest_that_is_gone_after_a_task_that_was_not_begun_changes_nothing(cell: sa.Connection) -> None:
    running(cell)
    assert tasks.done(cell, ONE, 1, "req-t", PowerState.NOSTATE, "GivenUp: ...", NOW, begun=False, gone=True)
    assert (server(cell).state, server(cell).fault) == (State.ACTIVE, None)
