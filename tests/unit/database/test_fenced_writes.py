"""Every write of a build, a delete or a task changes the row it is meant for, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
import sqlalchemy as sa

from skep.database.cell import actions, attempts, builds, deletes, instances, moves, reschedules, tables, tasks
from skep.domain.builds import Explanation
from skep.domain.claims import ClaimKey
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import PowerState, State, Task
from skep.domain.states import TABLE
from tests.support.rows import (
    CELL,
    FAULT,
    HOST,
    ME,
    ONE,
    any_open,
    asking,
    bring_to,
    context,
    everything,
    give_up,
    placed,
    staged,
    state_of,
)

NOW = 100
Write = Callable[[sa.Connection, int, str], object]
"""A write by whoever bears this attempt on this host."""


def _done(connection: sa.Connection, attempt: int, host: str) -> object:
    return tasks.done(connection, ONE, attempt, "req-r", PowerState.RUNNING, None, NOW) is not None


WRITES: dict[str, Write] = {
    "stage": lambda c, attempt, host: builds.stage(c, [staged(attempt=attempt, host=host)], NOW),
    "settle": lambda c, attempt, _host: builds.settle(c, [(ONE, attempt)], NOW),
    "unstage": lambda c, attempt, _host: builds.unstage(c, ONE, attempt),
    "may_build": lambda c, attempt, host: builds.may_build(c, ONE, attempt, host, NOW),
    "may_spawn": lambda c, attempt, host: builds.may_spawn(c, ONE, attempt, host, NOW),
    "built": lambda c, attempt, host: builds.built(c, ONE, attempt, host, NOW, PowerState.RUNNING, NOW) is not None,
    "fail": lambda c, attempt, host: builds.fail(c, ONE, attempt, host, None, NOW),
    "abort": lambda c, attempt, host: builds.fail(c, ONE, attempt, host, FAULT, NOW),
    "rescheduled": lambda c, attempt, _host: reschedules.rescheduled(c, ONE, attempt, placed("host2"), NOW),
    "exhausted": lambda c, attempt, _host: reschedules.exhausted(c, ONE, attempt, FAULT, NOW),
    "give_back": lambda c, attempt, _host: reschedules.give_back(c, ONE, attempt, NOW),
    "take_from_host": lambda c, attempt, _host: reschedules.take_from_host(c, ONE, attempt, NOW),
    "give_up_on_host": lambda c, attempt, _host: reschedules.give_up_on_host(c, ONE, attempt, FAULT, NOW),
    "hand_back": lambda c, attempt, _host: moves.hand_back(c, ONE, attempt, FAULT, NOW),
    "freeze": lambda c, attempt, _host: moves.freeze(c, ONE, attempt, 2, NOW),
    "thaw": lambda c, attempt, _host: moves.thaw(c, ONE, attempt, 2, NOW),
    "stay": lambda c, attempt, _host: moves.stay(c, ONE, attempt, 2, FAULT, NOW),
    "task done": _done,
}
OF_A_HOST = ("may_build", "may_spawn", "built", "fail", "abort")
"""Writes that a host asks for: another host with the same attempt must change nothing."""
GOOD: dict[str, set[tuple[State, State]]] = {
    "settle": {(State.STAGED, State.SCHEDULED)},
    "may_build": {(State.SCHEDULED, State.BUILDING)},
    "may_spawn": {(State.SCHEDULED, State.SPAWNING), (State.BUILDING, State.SPAWNING)},
    "built": {(state, State.ACTIVE) for state in (State.SCHEDULED, State.BUILDING, State.SPAWNING)},
    "fail": {(state, State.RESCHEDULING) for state in (State.SCHEDULED, State.BUILDING, State.SPAWNING)},
    "abort": {(state, State.ERROR) for state in (State.SCHEDULED, State.BUILDING, State.SPAWNING)},
    "rescheduled": {(State.RESCHEDULING, State.SCHEDULED)},
    "exhausted": {(State.RESCHEDULING, State.ERROR)},
    "take_from_host": {(State.SCHEDULED, State.RESCHEDULING), (State.BUILDING, State.RESCHEDULING)},
    "give_up_on_host": {(State.SPAWNING, State.ERROR)},
    "hand_back": {(State.RESCHEDULING, State.HANDED_BACK)},
    "freeze": {(State.HANDED_BACK, State.LEAVING)},
    "thaw": {(State.LEAVING, State.HANDED_BACK)},
    "stay": {(State.LEAVING, State.ERROR)},
}
"""The only changes of state that each write may make. `unstage` removes the row."""


def tried_on(cell: sa.Connection, names: Iterable[str] = WRITES) -> Iterator[str]:
    """Name each write in turn; whatever it changed is undone before the next."""
    for name in names:
        undone = cell.begin_nested()
        yield name
        undone.rollback()


@pytest.mark.parametrize("state", State)
def test_each_write_changes_the_states_that_it_is_for(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    raised = 2 if state is State.DELETED else 1
    for name in tried_on(cell):
        WRITES[name](cell, raised, HOST)
        after = state_of(cell)
        if name == "unstage" and state is State.STAGED:
            assert after is None
            continue
        expected = [to for before, to in GOOD.get(name, ()) if before is state]
        assert after is (expected[0] if expected else state), name
        assert after is state or after in TABLE[state].followers, name


def test_every_change_that_writes_make_is_allowed() -> None:
    assert {pair for pairs in GOOD.values() for pair in pairs} <= {
        (before, after) for before, row in TABLE.items() for after in row.followers
    }


@pytest.mark.parametrize("state", State)
def test_another_attempt_changes_nothing(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    before = everything(cell)
    for name in tried_on(cell):
        WRITES[name](cell, 0, HOST)
        if name != "stage" or state is not State.STAGED:
            WRITES[name](cell, 7, HOST)
        assert everything(cell) == before, name


@pytest.mark.parametrize("state", State)
def test_another_host_changes_nothing(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    before = everything(cell)
    for name in tried_on(cell, OF_A_HOST):
        assert WRITES[name](cell, 1, "host2") is False, name
        assert everything(cell) == before, name


@pytest.mark.parametrize("state", [state for state in State if state not in (State.DELETED, State.MOVED)])
def test_what_is_being_deleted_is_not_built(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    before = everything(cell)
    for attempt in (1, 2, 3):
        for name in tried_on(cell):
            # A staged row that is wanted gone is still settled or removed by who staged it; its attempt is another by
            # now.
            if name in ("settle", "unstage", "stage") and state is State.STAGED and attempt >= 2:
                continue
            WRITES[name](cell, attempt, HOST)
            assert everything(cell) == before, (name, attempt)


@pytest.mark.parametrize("state", State)
def test_a_repeat_is_harmless(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    for name in tried_on(cell):
        first = WRITES[name](cell, 1, HOST)
        before = everything(cell)
        second = WRITES[name](cell, 1, HOST)
        assert everything(cell) == before, name
        if name in ("may_build", "may_spawn", "built"):
            assert second is first, f"a repeat of what was granted is granted: {name}"


def test_permissions_are_repeated_after_later_steps(cell: sa.Connection) -> None:
    bring_to(cell, State.SPAWNING)
    assert builds.may_build(cell, ONE, 1, HOST, NOW)
    assert builds.may_spawn(cell, ONE, 1, HOST, NOW)


def test_a_host_that_was_given_up_comes_back_with_a_whole_guest(cell: sa.Connection) -> None:
    give_up(cell)
    found = instances.get(cell, ONE)
    assert found is not None
    assert (found.state, found.host, found.fault) == (State.ERROR, HOST, FAULT)
    assert any_open(cell)
    assert builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW)
    found = instances.get(cell, ONE)
    assert found is not None
    assert (found.state, found.fault, found.launched_at) == (State.ACTIVE, None, NOW)
    assert any_open(cell)


def test_an_active_server_in_error_is_not_made_active_by_an_old_report(cell: sa.Connection) -> None:
    """`built` clears the fault of a silent host once; an error of later life is not its business."""
    bring_to(cell, State.ACTIVE)
    before = everything(cell)
    assert builds.built(cell, ONE, 1, HOST, NOW, PowerState.RUNNING, NOW)
    assert everything(cell) == before


@pytest.mark.parametrize("state", [State.ACTIVE, State.ERROR])
def test_secrets_are_erased_when_the_build_is_over(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    work = builds.work(cell, ONE)
    assert work is not None
    assert work.secrets is None


def test_secrets_are_erased_in_cell0_and_when_the_host_is_given_up_and_by_a_delete(cell: sa.Connection) -> None:
    two, three = InstanceUuid("two"), InstanceUuid("three")
    builds.stage(cell, [staged(two, host=None), staged(three)], 10)
    builds.settle(cell, [(two, 1), (three, 1)], 10)
    give_up(cell)
    deletes.begin(cell, three, context("req-delete"), NOW)
    found = [builds.work(cell, uuid) for uuid in (ONE, two, three)]
    assert [work.secrets if work else b"" for work in found] == [None, None, None]


def test_a_server_without_a_host_settles_in_error(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(host=None)], 10)
    assert builds.settle(cell, [(ONE, 1)], 10) == 1
    assert state_of(cell) is State.ERROR
    assert not any_open(cell)


def test_staging_again_writes_over_a_lower_attempt_only(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(attempt=2, host="host2")], 10)
    builds.stage(cell, [staged(attempt=1)], 11)
    assert [one.host for one in attempts.history(cell, ONE)] == ["host2"]
    builds.stage(cell, [staged(attempt=3, host="host3")], 12)
    found = instances.get(cell, ONE)
    assert found is not None
    assert (found.attempt, found.host) == (3, "host3")
    assert [(one.attempt, one.open) for one in attempts.history(cell, ONE)] == [(2, True), (3, True)]


def test_removing_a_staged_row_gives_up_the_claims_of_all_its_attempts(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(attempt=1)], 10)
    builds.stage(cell, [staged(attempt=2, host="host2")], 11)
    assert set(builds.unstage(cell, ONE, 2)) == {
        ClaimKey(ONE, 1, NodeUuid("node-host1")),
        ClaimKey(ONE, 2, NodeUuid("node-host2")),
    }
    left = {name for name, rows in everything(cell).items() if rows}
    assert left == {"event_facts"}, "what happened is told all the same"


def test_a_closed_attempt_keeps_what_came_of_it(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    attempts.finish(cell, ONE, 1, HOST, NOW, "failed", keep_open=True, error="SpawnFailed", message="no")
    assert attempts.close(cell, ONE, HOST, 1, NOW) == [ClaimKey(ONE, 1, NodeUuid("node-host1"))]
    assert attempts.close(cell, ONE, HOST, 1, NOW + 1) == [ClaimKey(ONE, 1, NodeUuid("node-host1"))], "a repeat too"
    attempts.finish(cell, ONE, 1, HOST, NOW + 1, "undone", keep_open=False, error="Later", message="later")
    [record] = attempts.history(cell, ONE)
    assert (record.open, record.outcome, record.error, record.message) == (False, "failed", "SpawnFailed", "no")


def test_closing_touches_one_host_up_to_one_attempt(cell: sa.Connection) -> None:
    attempts.begin(
        cell,
        [
            attempts.NewAttempt(instance=ONE, attempt=number, node=NodeUuid(host), host=host, now=1)
            for number, host in ((1, "a"), (2, "b"), (3, "a"))
        ],
    )
    attempts.close(cell, ONE, "a", 2, NOW)
    assert [(one.attempt, one.open) for one in attempts.history(cell, ONE)] == [(1, False), (2, True), (3, True)]


def test_a_decision_without_a_host_is_an_attempt_that_never_opened(cell: sa.Connection) -> None:
    why = Explanation(considered=3)
    attempts.begin(cell, [attempts.NewAttempt(instance=ONE, attempt=1, node=None, host=None, now=1, explanation=why)])
    [record] = attempts.history(cell, ONE)
    assert (record.open, record.outcome, record.explanation) == (False, "no_valid_host", why)
    assert attempts.tried_nodes(cell, ONE) == []


def test_a_reschedule_is_taken_by_one_owner_and_each_take_raises_the_attempt(cell: sa.Connection) -> None:
    bring_to(cell, State.RESCHEDULING)
    [work] = reschedules.take(cell, ME, NOW, 5)
    assert (work.instance.attempt, work.instance.host) == (2, None)
    [again] = reschedules.take(cell, ME, NOW, 5)
    assert again.instance.attempt == 3
    assert reschedules.rescheduled(cell, ONE, 2, placed("host2"), NOW) is False
    assert reschedules.rescheduled(cell, ONE, 3, placed("host2"), NOW) is True
    assert reschedules.take(cell, ME, NOW, 5) == []


def test_what_was_given_back_waits_for_its_time(cell: sa.Connection) -> None:
    bring_to(cell, State.RESCHEDULING)
    reschedules.take(cell, ME, NOW, 5)
    reschedules.give_back(cell, ONE, 2, NOW + 10)
    assert reschedules.take(cell, ME, NOW + 9, 5) == []
    assert len(reschedules.take(cell, ME, NOW + 10, 5)) == 1


def test_dispatch_tells_each_host_once_until_it_is_due_again(cell: sa.Connection) -> None:
    bring_to(cell, State.SCHEDULED)
    assert [one.work.instance.uuid for one in builds.dispatch_due(cell, CELL, NOW, NOW - 5, 5)] == [ONE]
    assert builds.dispatch_due(cell, CELL, NOW + 5, NOW, 5) == []
    assert len(builds.dispatch_due(cell, CELL, NOW + 6, NOW + 1, 5)) == 1


def test_stale_attempts_are_told_in_turns_so_that_no_host_waits_behind_a_silent_one(cell: sa.Connection) -> None:
    uuids = [InstanceUuid(f"i{number}") for number in range(5)]
    builds.stage(cell, [staged(uuid) for uuid in uuids], 10)
    builds.settle(cell, [(uuid, 1) for uuid in uuids], 10)
    for uuid in uuids:
        deletes.begin(cell, uuid, context(f"req-{uuid}"), NOW)
    told = [attempts.stale_due(cell, NOW + turn, NOW - 50, 2) for turn in range(4)]
    assert [len(batch) for batch in told] == [2, 2, 1, 0]
    assert {one.instance for batch in told for one in batch} == set(uuids)
    assert len(attempts.stale_due(cell, NOW + 60, NOW + 10, 9)) == 5


@pytest.mark.parametrize("outcome", [None, "built"])
def test_attempts_are_stale_only_below_their_row(cell: sa.Connection, outcome: str | None) -> None:
    bring_to(cell, State.ACTIVE if outcome else State.BUILDING)
    assert attempts.stale_due(cell, NOW, NOW, 9) == []
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    [stale] = attempts.stale_due(cell, NOW, NOW, 9)
    assert (stale.instance, stale.attempt, stale.host) == (ONE, 1, HOST)


def test_a_replaced_build_is_stale_while_its_row_lives_on_elsewhere(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    assert reschedules.take_from_host(cell, ONE, 1, NOW)
    [work] = reschedules.take(cell, ME, NOW, 5)
    reschedules.rescheduled(cell, ONE, work.instance.attempt, placed("host2"), NOW)
    builds.may_build(cell, ONE, 3, "host2", NOW)
    builds.may_spawn(cell, ONE, 3, "host2", NOW)
    builds.built(cell, ONE, 3, "host2", NOW, PowerState.RUNNING, NOW)
    assert [(one.attempt, one.host) for one in attempts.stale_due(cell, NOW, NOW, 9)] == [(1, HOST)]


def test_a_delete_waits_for_every_open_attempt(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    reschedules.take_from_host(cell, ONE, 1, NOW)
    reschedules.take(cell, ME, NOW, 5)
    reschedules.rescheduled(cell, ONE, 3, placed("host2"), NOW)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    assert deletes.deleting(cell, 5) == []
    attempts.close(cell, ONE, "host2", 4, NOW)
    assert deletes.finish_if_closed(cell, ONE, NOW) is None
    attempts.close(cell, ONE, HOST, 4, NOW)
    assert deletes.deleting(cell, 5) == [ONE]
    assert deletes.finish_if_closed(cell, ONE, NOW) is not None
    assert deletes.finish_if_closed(cell, ONE, NOW) is None
    assert [gone.instance for gone in deletes.unforgotten(cell, 5)] == [ONE]
    deletes.mark_forgotten(cell, [ONE])
    assert deletes.unforgotten(cell, 5) == []


def test_a_server_that_no_host_has_is_deleted_at_once(cell: sa.Connection) -> None:
    builds.stage(cell, [staged(host=None)], 10)
    builds.settle(cell, [(ONE, 1)], 10)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    assert state_of(cell) is State.DELETED


def test_a_repeated_delete_raises_the_attempt_once(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    before = everything(cell)
    assert deletes.begin(cell, ONE, context("req-again"), NOW + 1) is None
    assert everything(cell) == before


def test_a_lock_refuses_a_delete_once_and_not_one_that_has_begun(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert deletes.refuse_if_locked(cell, ONE, context("req-delete"), NOW) is None
    cell.execute(tables.instances.update().values(locked=True))
    refused = deletes.refuse_if_locked(cell, ONE, context("req-delete"), NOW)
    assert refused is not None
    assert (refused.action, refused.error) == ("delete", f"Instance {ONE} is locked")
    before = everything(cell)
    assert deletes.refuse_if_locked(cell, ONE, context("req-delete"), NOW + 1) is not None
    assert everything(cell) == before, "a repeat writes nothing"
    assert deletes.begin(cell, ONE, context("req-admin"), NOW) is not None
    assert deletes.refuse_if_locked(cell, ONE, context("req-delete"), NOW) is None


def test_a_delete_replaces_a_task_and_its_late_end_changes_nothing(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, asking(Task.REBOOTING, frozenset({State.ACTIVE})), context("req-r"), NOW)
    assert deletes.begin(cell, ONE, context("req-delete"), NOW) is not None
    assert _done(cell, 1, HOST) is False
    assert _done(cell, 2, HOST) is False


@pytest.mark.parametrize("state", State)
def test_a_task_begins_in_its_states_only_and_only_one_at_a_time(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    allowed = frozenset({State.ACTIVE})
    assert tasks.begin(cell, ONE, asking(Task.REBOOTING, allowed), context("req-r"), NOW) is (state is State.ACTIVE)
    assert tasks.begin(cell, ONE, asking(Task.POWERING_OFF, allowed), context("req-s"), NOW) is False


@pytest.mark.parametrize(
    ("power", "error", "after"),
    [
        (PowerState.SHUTDOWN, None, State.STOPPED),
        (PowerState.RUNNING, None, State.ACTIVE),
        (PowerState.NOSTATE, "no answer", State.ACTIVE),
    ],
)
def test_a_task_ends_in_the_state_that_the_guest_has(
    cell: sa.Connection, power: PowerState, error: str | None, after: State
) -> None:
    bring_to(cell, State.ACTIVE)
    tasks.begin(cell, ONE, asking(Task.POWERING_OFF, frozenset({State.ACTIVE})), context("req-s"), NOW)
    assert [work.task_id for work in tasks.due(cell, NOW, NOW - 5, 5)] == ["req-s"]
    assert tasks.due(cell, NOW + 1, NOW - 5, 5) == []
    assert tasks.done(cell, ONE, 1, "req-other", power, error, NOW) is None
    assert tasks.done(cell, ONE, 1, "req-s", power, error, NOW)
    assert tasks.done(cell, ONE, 1, "req-s", power, error, NOW) is None
    assert state_of(cell) is after
    [event] = actions.events_of(cell, ONE, "req-s")
    assert (event.result, event.details) == ("Error" if error else "Success", error)


def test_purging_takes_batches_and_leaves_what_is_young_open_or_not_told_above(cell: sa.Connection) -> None:
    uuids = [InstanceUuid(f"i{number}") for number in range(6)]
    builds.stage(cell, [staged(uuid, host=None) for uuid in uuids], 10)
    builds.settle(cell, [(uuid, 1) for uuid in uuids], 10)
    for uuid in uuids[:5]:
        deletes.begin(cell, uuid, context(f"req-{uuid}"), 50 if uuid != uuids[4] else 99)
    deletes.mark_forgotten(cell, [uuids[0], uuids[1], uuids[2], uuids[4]])
    opened = attempts.NewAttempt(instance=uuids[2], attempt=1, node=NodeUuid("n"), host=HOST, now=1)
    attempts.remove(cell, uuids[2])
    attempts.begin(cell, [opened])
    assert [deletes.purge(cell, 60, 1) for _ in range(4)] == [1, 1, 0, 0]
    assert {instance.uuid for instance in instances.get_many(cell, uuids)} == set(uuids[2:])
    assert actions.list_of(cell, uuids[0], limit=9) == []
    assert attempts.history(cell, uuids[0]) == []


@pytest.mark.parametrize("state", State)
def test_a_row_whose_mapping_names_another_cell_leaves_whatever_became_of_it(cell: sa.Connection, state: State) -> None:
    """A conductor that found no cell may thaw a row, or let it stay, while another one moves the mapping."""
    bring_to(cell, state)
    leaves = state in (State.HANDED_BACK, State.LEAVING, State.ERROR)
    assert moves.left(cell, ONE, NOW) is leaves
    assert state_of(cell) is (State.MOVED if leaves else state)
