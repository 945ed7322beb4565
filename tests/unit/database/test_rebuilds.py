"""The writes of rebuilds: fenced as those of moves, and the server is what it was until its new guest is there."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import (
    abandoned_moves,
    agents,
    assertions,
    attempts,
    builds,
    cold_moves,
    deletes,
    fences,
    guest_secrets,
    instances,
    move_steps,
    rebuilds,
    row_actions,
    server_migrations,
    silent_moves,
)
from skep.database.cell import tables as cell_tables
from skep.database.cell.cold_moves import Move
from skep.database.cell.fences import FencedHost
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS, ActionRequest, Rebuild
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.errors import Conflict
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from tests.support.rows import CELL, HOST, ONE, bring_to, context, everything, state_of

NOW = 100
STEPS = ("rebuild_prepare", "rebuild_put_aside", "rebuild_spawn")
PLACES = {"rebuild_put_aside": 1, "rebuild_take_back": 1}
"""The attempt of a step; of the others it is the new one."""
BROKE = BuildFailure(kind=FailureKind.RESCHEDULE, error="SpawnFailed", message="it broke")
LOST = BuildFailure(kind=FailureKind.RESCHEDULE, error="InstanceNotFound", message="it is gone")
ANEW = Rebuild(changes={"name": "new", "metadata": {"k": "v"}, "image": {"id": "image-2"}, "user_data": "aGk="})


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def begin(cell: sa.Connection, state: State = State.ACTIVE) -> Move:
    if state is State.ERROR:
        bring_to(cell, State.ACTIVE)
        cell.execute(cell_tables.instances.update().values(state=State.ERROR.value))
    else:
        bring_to(cell, state)
    return again(cell)


def again(cell: sa.Connection, request: str = "req-anew") -> Move:
    assert rebuilds.begin(cell, server(cell), context(request), NOW, ANEW, b"sealed anew") is not None
    rows = cell.execute(sa.select(*cold_moves.COLUMNS).order_by(cell_tables.migrations.c.id))
    return cold_moves.move_of(rows.all()[-1])


def place(known: Move, step: str) -> int:
    return PLACES.get(step) or known.dest_attempt or 0


def done(cell: sa.Connection, known: Move, step: str, power_state: PowerState = PowerState.RUNNING) -> bool:
    found = move_steps.done(
        cell, known.uuid, step, place(known, step), HOST, power_state, NOW, 3, task_id=known.task_id or ""
    )
    return found is not None


def failed(cell: sa.Connection, known: Move, step: str, why: BuildFailure = BROKE) -> bool:
    found = move_steps.failed(
        cell, known.uuid, step, place(known, step), HOST, why, NOW, 3, task_id=known.task_id or ""
    )
    return found is not None


def may(cell: sa.Connection, known: Move, step: str) -> bool:
    attempt = place(known, step)
    return move_steps.may(cell, known.uuid, step, attempt, HOST, NOW, task_id=known.task_id or "")[0]


def up_to(cell: sa.Connection, known: Move, last: str) -> None:
    for step in STEPS:
        if step == last:
            return
        assert done(cell, known, step)


def open_attempts(cell: sa.Connection) -> list[int]:
    return [one.attempt for one in attempts.history(cell, ONE) if one.open]


def given_up(cell: sa.Connection) -> list[int]:
    return sorted(one.attempt for one in attempts.stale_due(cell, NOW + 10, NOW + 9, 10))


def secrets(cell: sa.Connection) -> bytes | None:
    work = builds.work(cell, ONE)
    assert work is not None
    return work.secrets


@pytest.mark.parametrize("step", STEPS)
def test_only_the_host_of_the_step_ends_it(cell: sa.Connection, step: str) -> None:
    known = begin(cell)
    up_to(cell, known, step)
    before = everything(cell)
    for other in (*(one for one in STEPS if one != step), "rebuild_take_back"):
        assert not done(cell, known, other)
        assert not failed(cell, known, other)
    for attempt, task_id in ((9, "req-anew"), (place(known, step), "req-before")):
        late = move_steps.done(cell, known.uuid, step, attempt, HOST, PowerState.RUNNING, NOW, 3, task_id=task_id)
        assert late is None
    assert everything(cell) == before
    assert done(cell, known, step)
    before = everything(cell)
    assert not done(cell, known, step), "a repeat changes nothing"
    assert not failed(cell, known, step)
    assert everything(cell) == before


def test_the_server_is_what_it_was_until_the_guest_is_there(cell: sa.Connection) -> None:
    known = begin(cell)
    before = server(cell)
    for step, task in zip(
        STEPS, (Task.REBUILDING, Task.REBUILD_BLOCK_DEVICE_MAPPING, Task.REBUILD_SPAWNING), strict=True
    ):
        now = server(cell)
        assert (now.task, now.name, now.image, now.state) == (task, "server", None, State.ACTIVE)
        assert now.attempt == (known.dest_attempt if step == "rebuild_spawn" else 1)
        assert given_up(cell) == []
        [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
        new = step != "rebuild_put_aside"
        assert (order.instance.name, order.secrets) == (("new", b"sealed anew") if new else ("server", None))
        assert (order.attempt, order.kept) == ((known.dest_attempt, 1) if new else (1, 0))
        assert done(cell, known, step)
    after = server(cell)
    assert after.image is not None
    assert (after.task, after.name, after.image.id, after.user_data) == (None, "new", "image-2", "aGk=")
    assert (after.host, after.node, after.flavor, after.created_at) == (
        before.host,
        before.node,
        before.flavor,
        before.created_at,
    )
    assert given_up(cell) == [1]
    assert secrets(cell) is None
    assert server_migrations.listed(cell, MigrationQuery()) == []
    assert server_migrations.get(cell, known.uuid) is None
    assert again(cell, "req-again").dest_attempt == 3


@pytest.mark.parametrize(
    ("state", "starts", "comes_back_running"),
    [(State.ACTIVE, True, True), (State.STOPPED, False, False), (State.ERROR, True, True)],
)
def test_what_is_started(cell: sa.Connection, state: State, starts: bool, comes_back_running: bool) -> None:
    known = begin(cell, state)
    up_to(cell, known, "rebuild_spawn")
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert order.start is starts
    assert failed(cell, known, "rebuild_spawn")
    [back] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (back.start, back.attempt, back.move.row.order) == (comes_back_running, 1, "take_back")
    left = PowerState.RUNNING if comes_back_running else PowerState.SHUTDOWN
    assert done(cell, known, "rebuild_take_back", left)
    assert (server(cell).state, server(cell).task, server(cell).power_state) == (state, None, left)


@pytest.mark.parametrize("step", STEPS)
def test_what_fails_leaves_the_server_with_its_attempt(cell: sa.Connection, step: str) -> None:
    known = begin(cell)
    up_to(cell, known, step)
    assert failed(cell, known, step)
    assert given_up(cell) == [known.dest_attempt]
    assert server(cell).attempt == 1
    if step != "rebuild_prepare":
        assert not done(cell, known, "rebuild_spawn"), "after a failure nothing switches"
        assert failed(cell, known, "rebuild_take_back")
        assert state_of(cell) is State.ERROR
        assert done(cell, known, "rebuild_take_back")
    after = server(cell)
    assert (after.state, after.task, after.attempt, after.name) == (State.ACTIVE, None, 1, "server")
    assert after.fault is not None
    assert secrets(cell) is None
    assert again(cell, "req-again").dest_attempt == 3, "no number is given twice"


def test_a_guest_of_which_nothing_is_left_ends_in_error(cell: sa.Connection) -> None:
    known = begin(cell)
    up_to(cell, known, "rebuild_put_aside")
    assert failed(cell, known, "rebuild_put_aside", LOST)
    assert failed(cell, known, "rebuild_take_back", LOST)
    after = server(cell)
    assert (after.state, after.task, after.attempt) == (State.ERROR, None, 1)
    assert after.fault is not None
    assert again(cell, "req-again").step == "rebuild_prepare"


@pytest.mark.parametrize("step", [*STEPS, "over"])
def test_a_delete_takes_the_server_away(cell: sa.Connection, step: str) -> None:
    known = begin(cell)
    up_to(cell, known, step)
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    for name in STEPS:
        assert not done(cell, known, name)
        assert not may(cell, known, name)
    number, over = abandoned_moves.abandon(cell, NOW, 5)
    assert number == int(step != "over")
    assert [one.action for one, _ in over] == ([] if step == "over" else ["rebuild"])
    assert given_up(cell) == [1, known.dest_attempt]
    assert secrets(cell) is None


@pytest.mark.parametrize("step", STEPS)
def test_a_fence_ends_it(cell: sa.Connection, step: str) -> None:
    known = begin(cell)
    up_to(cell, known, step)
    node = NodeUuid(f"node-{HOST}")
    agents.register(cell, AgentIdentity(node=node, host=HOST, process=Incarnation(HOST)), NOW)
    assert fences.mark(cell, node, NOW, NOW)
    assert fences.take_effect(cell, node, NOW)
    assert fences.close(cell, FencedHost(node=node, host=HOST), NOW, 10).lost == 1
    assert abandoned_moves.abandon(cell, NOW, 5)[0] == 1
    assert (server(cell).state, server(cell).task, open_attempts(cell)) == (State.ERROR, None, [])
    with pytest.raises(Conflict, match="its host has lost it"):
        again(cell, "req-again")


@pytest.mark.parametrize("state", [State.PAUSED, State.SUSPENDED, State.SOFT_DELETED, State.RESIZED])
def test_other_states_do_not_begin(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    before = everything(cell)
    assert rebuilds.begin(cell, server(cell), context("req-anew"), NOW, ANEW, None) is None
    assert everything(cell) == before


def test_one_at_a_time_and_no_reset_beside_it(cell: sa.Connection) -> None:
    begin(cell)
    assert rebuilds.begin(cell, server(cell), context("req-2"), NOW, ANEW, None) is None
    reset = ActionRequest(action="reset_state", context=context("req-3"), arguments={"state": "error"})
    with pytest.raises(Conflict):
        row_actions.carry_out(cell, ONE, ACTIONS["reset_state"], reset, lambda _: None, "api", NOW)


@pytest.mark.parametrize("step", [*STEPS, "over"])
def test_secrets_are_for_the_host_of_the_new_attempt_while_it_is_made(cell: sa.Connection, step: str) -> None:
    known = begin(cell)
    assert known.dest_attempt is not None
    up_to(cell, known, step)
    found = guest_secrets.for_host(cell, ONE, known.dest_attempt, HOST)
    given = step in ("rebuild_prepare", "rebuild_spawn")
    assert (found is not None and found.sealed == b"sealed anew") == given
    assert guest_secrets.for_host(cell, ONE, 1, HOST) is None
    assert guest_secrets.for_host(cell, ONE, known.dest_attempt, "host9") is None
    assert guest_secrets.needless(cell) == []
    assert guest_secrets.sealed(cell) == ([] if step == "over" else [b"sealed anew"])


def test_a_silent_host(cell: sa.Connection) -> None:
    known = begin(cell)
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert may(cell, known, "rebuild_prepare")
    assert [one.step for one in silent_moves.overdue(cell, NOW + 5, 5)] == ["rebuild_prepare"]
    up_to(cell, known, "rebuild_spawn")
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert [one.step for one in silent_moves.overdue(cell, NOW + 5, 5)] == ["rebuild_spawn"], "it was not begun"
    assert may(cell, known, "rebuild_spawn")
    assert silent_moves.overdue(cell, NOW + 5, 5) == [], "only the host knows what it did"


def test_no_claim_is_asserted_for_room_that_the_host_counts(cell: sa.Connection) -> None:
    begin(cell)
    assert assertions.read(cell).claims == ()
