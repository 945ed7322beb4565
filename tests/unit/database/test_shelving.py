"""Shelved servers as rows of a cell: shelved, offloaded, unshelved, and what ends each of these."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import (
    actions,
    attempts,
    builds,
    deletes,
    fences,
    guests,
    instances,
    listing,
    offloads,
    reschedules,
    row_actions,
    tasks,
    unshelves,
)
from skep.database.cell.fences import FencedHost
from skep.database.cell.listing import ListQuery
from skep.database.cell.tables import agents
from skep.domain.actions import ACTIONS, ActionRequest, ShelveServer, UnshelveServer
from skep.domain.errors import Conflict
from skep.domain.guests import GuestKnown, GuestSeen, correction
from skep.domain.ids import NodeUuid
from skep.domain.images import Image
from skep.domain.instances import Instance, PowerState, State, Task
from tests.support.rows import CELL, FAULT, HOST, ME, ONE, PROJECT, bring_to, context, placed, shelve

NOW = 100
IMAGE = Image(id="image", size=7)
NODE = NodeUuid(f"node-{HOST}")


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def seen(cell: sa.Connection) -> tuple[State, Task | None, str | None]:
    row = server(cell)
    return row.state, row.task, row.host


def result(cell: sa.Connection, request: str) -> list[tuple[str, str | None]]:
    return [(one.event, one.result) for one in reversed(actions.events_of(cell, ONE, request))]


def open_attempts(cell: sa.Connection) -> list[tuple[int, str | None, str]]:
    return [(one.attempt, one.outcome, one.role) for one in attempts.history(cell, ONE) if one.open]


def begin_shelve(cell: sa.Connection, was: State = State.ACTIVE) -> None:
    arguments = ShelveServer(image_id="image", disk_format="raw", was=was, project_id=PROJECT)
    assert tasks.begin(cell, ONE, ACTIONS["shelve"], context("req-shelve"), NOW, arguments=arguments)
    assert tasks.may_act(cell, ONE, 1, HOST, Task.SHELVING, "req-shelve", NOW)


def begin_unshelve(cell: sa.Connection, wanted: UnshelveServer | None = None) -> None:
    wanted = wanted or UnshelveServer()
    assert unshelves.begin(cell, server(cell), context("req-un"), IMAGE, wanted, wanted.zone, NOW)


def on_host(cell: sa.Connection, host: str = "host2") -> int:
    """Have the unshelve that waits get a host; return its attempt."""
    [work] = reschedules.take(cell, ME, NOW, 10)
    attempt = work.instance.attempt
    assert reschedules.rescheduled(cell, ONE, attempt, placed(host), NOW, "unshelve")
    return attempt


def test_a_server_is_shelved_with_its_image(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    begin_shelve(cell)
    assert seen(cell) == (State.ACTIVE, Task.SHELVING_IMAGE_PENDING_UPLOAD, HOST)
    assert tasks.done(cell, ONE, 1, "req-shelve", PowerState.SHUTDOWN, None, NOW)
    assert seen(cell) == (State.SHELVED, None, HOST)
    found = server(cell).shelved
    assert found is not None
    assert (found.image_id, found.host) == ("image", HOST)
    assert result(cell, "req-shelve") == [("compute_shelve_instance", "Success")]


@pytest.mark.parametrize("left", [PowerState.RUNNING, PowerState.SHUTDOWN])
def test_a_shelve_that_fails_has_the_server_run_again(cell: sa.Connection, left: PowerState) -> None:
    bring_to(cell, State.ACTIVE)
    begin_shelve(cell)
    assert tasks.done(cell, ONE, 1, "req-shelve", left, "it broke", NOW)
    row = server(cell)
    assert row.shelved is None
    started = (State.ACTIVE, None) if left is PowerState.RUNNING else (State.STOPPED, Task.POWERING_ON)
    assert (row.state, row.task) == started


def test_a_shelve_in_doubt_whose_guest_is_off_has_it_started(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    begin_shelve(cell)
    [task] = tasks.of(cell, sa.true())
    doubted = tasks.give_up(cell, task, NOW)
    assert doubted is not None
    assert doubted.in_doubt
    [known] = _known(cell)
    found = correction(known, GuestSeen(ONE, 1, PowerState.SHUTDOWN, ("req-shelve",)))
    assert found is not None
    assert tasks.correct(cell, known, found, HOST, NOW) is not None
    assert seen(cell) == (State.STOPPED, Task.POWERING_ON, HOST)


def _known(cell: sa.Connection) -> list[GuestKnown]:
    return guests.known(cell, HOST, [ONE])


def test_a_guest_that_runs_under_a_shelved_server_is_stopped(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED)
    [known] = _known(cell)
    found = correction(known, GuestSeen(ONE, 1, PowerState.RUNNING, ("req-shelve",)))
    assert found is not None
    assert found.stop
    tasks.correct(cell, known, found, HOST, NOW)
    row = server(cell)
    assert (row.state, row.task) == (State.SHELVED, Task.POWERING_OFF)
    [task] = tasks.of(cell, sa.true())
    assert tasks.done(cell, ONE, 1, task.task_id, PowerState.SHUTDOWN, None, NOW)
    assert seen(cell) == (State.SHELVED, None, HOST)
    assert server(cell).shelved is not None


@pytest.mark.parametrize("error", [None, "it broke"])
def test_it_is_started_where_it_is(cell: sa.Connection, error: str | None) -> None:
    bring_to(cell, State.SHELVED)
    assert tasks.begin(cell, ONE, ACTIONS["unshelve"], context("req-un"), NOW)
    assert tasks.may_act(cell, ONE, 1, HOST, Task.UNSHELVING, "req-un", NOW)
    left = PowerState.RUNNING if error is None else PowerState.SHUTDOWN
    assert tasks.done(cell, ONE, 1, "req-un", left, error, NOW)
    row = server(cell)
    assert row.state is (State.ACTIVE if error is None else State.SHELVED)
    assert (row.shelved is None) is (error is None)


def test_an_offload_gives_the_attempt_up_once(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    shelve(cell, NOW)
    assert offloads.begin(cell, ONE, context("req-off"), NOW)
    assert not offloads.begin(cell, ONE, context("req-again"), NOW)
    assert seen(cell) == (State.SHELVED, Task.SHELVING_OFFLOADING, None)
    assert open_attempts(cell) == [(1, "given_up", "build")]
    [stale] = attempts.stale_due(cell, NOW, NOW - 1, 10)
    assert (stale.attempt, stale.alone, stale.deleted) == (1, True, False)
    assert [one.action for one in offloads.start(cell, NOW, 10)] == ["shelve_offload"]
    assert offloads.start(cell, NOW, 10) == []
    assert offloads.finish(cell, NOW - 10, NOW, 10) == [], "its host has not answered"
    assert [key.attempt for key in attempts.close_one(cell, ONE, HOST, 1, NOW)] == [1]
    assert len(offloads.finish(cell, NOW - 10, NOW, 10)) == 1
    assert offloads.finish(cell, NOW - 10, NOW, 10) == []
    assert seen(cell) == (State.SHELVED_OFFLOADED, None, None)
    assert result(cell, "req-off") == [("compute_shelve_offload_instance", "Success")]
    assert not offloads.any_due(cell, NOW + 1)


def test_a_silent_host_holds_no_offload_up(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    shelve(cell, NOW)
    assert offloads.begin_due(cell, NOW, 10, NOW) == 0
    assert offloads.begin_due(cell, NOW + 1, 10, NOW) == 1
    assert offloads.any_due(cell, None)
    assert len(offloads.finish(cell, NOW + 1, NOW, 10)) == 1
    assert seen(cell) == (State.SHELVED_OFFLOADED, None, None)
    assert open_attempts(cell) == [(1, "given_up", "build")]


def test_an_unshelve_is_a_build_of_its_image(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    launched = server(cell).launched_at
    begin_unshelve(cell, UnshelveServer(zone="east", host="host2"))
    assert seen(cell) == (State.SHELVED_OFFLOADED, Task.UNSHELVING, None)
    assert attempts.tried_nodes(cell, ONE, 2) == []
    attempt = on_host(cell)
    assert attempt > 2
    [due] = builds.dispatch_due(cell, CELL, NOW, NOW, 10)
    work = due.work
    assert work.to_build().image == IMAGE
    assert work.to_build().shelved is None
    assert (work.context.request_id, work.spec.requested_host, work.spec.availability_zone) == (
        "req-un",
        "host2",
        "east",
    )
    assert builds.may_build(cell, ONE, attempt, "host2", NOW)
    assert builds.may_spawn(cell, ONE, attempt, "host2", NOW)
    assert seen(cell) == (State.SHELVED_OFFLOADED, Task.SPAWNING, "host2")
    assert open_attempts(cell) == [(attempt, None, "unshelve")]
    assert unshelves.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW) is None
    over = unshelves.built(cell, ONE, attempt, "host2", NOW, PowerState.RUNNING, NOW)
    assert over is not None
    assert over.error is None
    row = server(cell)
    assert (row.state, row.shelved, row.launched_at) == (State.ACTIVE, None, NOW)
    assert row.pinned_availability_zone == "east"
    assert launched is not None
    assert unshelves.built(cell, ONE, attempt, "host2", NOW, PowerState.RUNNING, NOW) is None, "once"
    assert builds.built(cell, ONE, attempt, "host2", NOW, PowerState.RUNNING, NOW), "a repeat is answered"
    assert result(cell, "req-un") == [("compute_unshelve_instance", "Success")]


@pytest.mark.parametrize("when", ["waiting", "scheduled", "spawning", "silent"])
def test_an_unshelve_that_comes_to_nothing_leaves_it_offloaded(cell: sa.Connection, when: str) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    before = server(cell)
    begin_unshelve(cell)
    if when == "waiting":
        [work] = reschedules.take(cell, ME, NOW, 10)
        attempt = work.instance.attempt
    else:
        attempt = on_host(cell)
    if when in ("spawning", "silent"):
        assert builds.may_build(cell, ONE, attempt, "host2", NOW)
        assert builds.may_spawn(cell, ONE, attempt, "host2", NOW)
    if when == "silent":
        assert reschedules.give_up_on_host(cell, ONE, attempt, FAULT, NOW)
        assert server(cell).state is State.ERROR
    assert unshelves.give_up(cell, ONE, attempt - 1, "no", None, NOW) is None, "another attempt's word"
    assert unshelves.give_up(cell, ONE, attempt, "no", None, NOW) is not None
    after = server(cell)
    assert (after.state, after.task, after.host, after.node) == (State.SHELVED_OFFLOADED, None, None, None)
    assert (after.shelved, after.launched_at) == (before.shelved, before.launched_at)
    assert result(cell, "req-un") == [("compute_unshelve_instance", "Error")]
    begin_unshelve_again = unshelves.begin(cell, after, context("req-2"), IMAGE, UnshelveServer(), None, NOW)
    assert begin_unshelve_again


def test_an_unshelve_of_another_row_or_image_does_not_begin(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    known = server(cell)
    other = Image(id="another")
    assert not unshelves.begin(cell, known, context("req-un"), other, UnshelveServer(), None, NOW)
    begin_unshelve(cell)
    assert not unshelves.begin(cell, known, context("req-2"), IMAGE, UnshelveServer(), None, NOW)


@pytest.mark.parametrize("state", [State.SHELVED, State.SHELVED_OFFLOADED, State.RESCHEDULING, State.SCHEDULED])
def test_a_deleted_server_names_its_image_above(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state if state is State.SHELVED else State.SHELVED_OFFLOADED)
    if state in (State.RESCHEDULING, State.SCHEDULED):
        begin_unshelve(cell)
    if state is State.SCHEDULED:
        on_host(cell)
    over = deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert over is not None
    assert server_or_none(cell) is None or server(cell).task is Task.DELETING
    for attempt, _, _ in open_attempts(cell):
        attempts.close_one(cell, ONE, HOST, attempt, NOW)
        attempts.close_one(cell, ONE, "host2", attempt, NOW)
    deletes.finish_if_closed(cell, ONE, NOW)
    [gone] = deletes.unforgotten(cell, 10)
    assert (gone.image_id, gone.project_id) == ("image", PROJECT)
    if state in (State.RESCHEDULING, State.SCHEDULED):
        assert result(cell, "req-un") == [("compute_unshelve_instance", "Error")]


def test_a_delete_ends_an_offload(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED)
    assert offloads.begin(cell, ONE, context("req-off"), NOW)
    over = deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert over is not None
    assert [(one.action, one.error) for one in over] == [("shelve_offload", tasks.OVERTAKEN)]
    assert attempts.close(cell, ONE, HOST, 1, NOW)
    assert deletes.finish_if_closed(cell, ONE, NOW) is not None
    assert offloads.finish(cell, NOW + 1, NOW, 10) == []


def server_or_none(cell: sa.Connection) -> Instance | None:
    return instances.get(cell, ONE)


def test_a_fence_offloads_what_was_shelved(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED)
    cell.execute(agents.insert().values(node=NODE, host=HOST, incarnation=1, process="p", registered_at=1))
    cell.execute(agents.update().values(fenced_at=NOW))
    closed = fences.close(cell, FencedHost(node=NODE, host=HOST), NOW, 10)
    assert (closed.lost, len(closed.released)) == (0, 1)
    row = server(cell)
    assert (row.state, row.host, row.fault) == (State.SHELVED_OFFLOADED, None, None)
    assert row.attempt == 2
    begin_unshelve(cell)


def test_a_reset_forgets_no_unshelve(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    assert reset(cell, State.ERROR)
    assert server(cell).shelved is not None
    assert reset(cell, State.ACTIVE)
    assert seen(cell) == (State.SHELVED_OFFLOADED, None, None)
    assert server(cell).launched_at is not None
    begin_unshelve(cell)
    with pytest.raises(Conflict):
        reset(cell, State.ERROR)


def reset(cell: sa.Connection, state: State) -> bool:
    request = ActionRequest(action="reset_state", context=context(f"req-{state}"), arguments={"state": state.value})
    return (
        row_actions.carry_out(cell, ONE, ACTIONS["reset_state"], request, lambda _: None, host="api", now=NOW)
        is not None
    )


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (ListQuery(statuses=frozenset({"BUILD"})), False),
        (ListQuery(statuses=frozenset({"SHELVED_OFFLOADED"})), True),
        (ListQuery(states=(State.SHELVED_OFFLOADED,)), True),
        (ListQuery(states=(State.RESCHEDULING, State.SCHEDULED)), False),
        (ListQuery(task=Task.UNSHELVING), True),
        (ListQuery(task=Task.DELETING), False),
    ],
)
def test_lists_find_it_as_users_see_it(cell: sa.Connection, query: ListQuery, found: bool) -> None:
    bring_to(cell, State.SHELVED_OFFLOADED)
    begin_unshelve(cell)
    assert bool(listing.list_all(cell, query)) is found


def test_what_leaves_its_host_is_shelved_for_its_user(cell: sa.Connection) -> None:
    bring_to(cell, State.SHELVED)
    assert offloads.begin(cell, ONE, context("req-off"), NOW)
    assert listing.list_all(cell, ListQuery(statuses=frozenset({"SHELVED"})))
    assert not listing.list_all(cell, ListQuery(statuses=frozenset({"SHELVED_OFFLOADED"})))
    assert listing.list_all(cell, ListQuery(task=Task.SHELVING_OFFLOADING))
