"""The writes of cold moves: each is fenced by its step and by the attempt that holds the server."""

from __future__ import annotations

import msgspec
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
    guests,
    instances,
    listing,
    move_steps,
    owed,
    recovery,
    row_actions,
    server_migrations,
    silent_moves,
)
from skep.database.cell import tables as cell_tables
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.fences import FencedHost
from skep.database.cell.listing import ListQuery
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS, ActionRequest
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.clock import SECOND
from skep.domain.errors import Conflict
from skep.domain.flavors import Flavor
from skep.domain.guests import GuestSeen, correction
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.moves import Size
from skep.domain.nested.wanted import DeviceRequest
from skep.domain.quotas import charge_of
from skep.domain.recovery import Adopt, FoundGuest
from skep.domain.request_specs import RequestSpec
from tests.support.rows import CELL, FLAVOR, HOST, ME, ONE, bring_to, context, everything, placed, state_of

NOW = 100
OTHER = "host2"
LATER = Incarnation("a conductor that takes over")
BROKE = BuildFailure(kind=FailureKind.RESCHEDULE, error="SpawnFailed", message="it broke")
STEPS = ("prepare", "put_aside", "transfer", "take_up")
BIG = Size(
    flavor=msgspec.structs.replace(FLAVOR, flavorid="2", name="m1.big", vcpus=4),
    disk_config="AUTO",
)
GPU = DeviceRequest(alias="gpu", count=1, matches=())


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def status(cell: sa.Connection) -> str:
    return server_migrations.listed(cell, MigrationQuery())[0].status


def begin(cell: sa.Connection, size: Size | None = None) -> WaitingMove:
    """Begin a move of a server that runs, and choose its host."""
    bring_to(cell, State.ACTIVE)
    action = ACTIONS["migrate" if size is None else "resize"]
    assert cold_moves.begin(cell, server(cell), action, context("req-move"), NOW, size=size) is not None
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, waiting, placed(OTHER), NOW)
    return waiting


def asked(cell: sa.Connection, waiting: WaitingMove) -> str:
    """Return the id of the request that the move is carrying out."""
    task_id = cell_tables.migrations.c.task_id
    return str(cell.scalar(sa.select(task_id).where(cell_tables.migrations.c.uuid == waiting.move.uuid)))


def done(
    cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str, task_id: str | None = None
) -> bool:
    told = task_id or asked(cell, waiting)
    uuid, running = waiting.move.uuid, PowerState.RUNNING
    return move_steps.done(cell, uuid, step, attempt, host, running, NOW, 3, task_id=told) is not None


def failed(
    cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str, task_id: str | None = None
) -> bool:
    told = task_id or asked(cell, waiting)
    return move_steps.failed(cell, waiting.move.uuid, step, attempt, host, BROKE, NOW, 3, task_id=told) is not None


def may(
    cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str, task_id: str | None = None
) -> bool:
    told = task_id or asked(cell, waiting)
    return move_steps.may(cell, waiting.move.uuid, step, attempt, host, NOW, task_id=told)[0]


def place(waiting: WaitingMove, step: str) -> tuple[int, str]:
    return (1, HOST) if step == "put_aside" else (waiting.attempt, OTHER)


def up_to(cell: sa.Connection, waiting: WaitingMove, last: str) -> None:
    """Let the hosts take all steps before `last`."""
    for step in STEPS:
        if step == last:
            return
        assert done(cell, waiting, step, *place(waiting, step))


def revert(cell: sa.Connection, request_id: str = "req-back") -> None:
    asked = context(request_id)
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
    assert may(cell, waiting, "put_aside", 1, HOST)
    for step, attempt, host in (("put_aside", 2, OTHER), ("take_back", 1, HOST), ("take_up", 2, OTHER)):
        assert not may(cell, waiting, step, attempt, host)
    deletes.begin(cell, ONE, context("req-delete"), NOW)
    assert not may(cell, waiting, "put_aside", 1, HOST)


def test_what_is_claimed_for_a_choice_that_was_taken_over_is_anothers(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert cold_moves.begin(cell, server(cell), ACTIONS["migrate"], context("req-move"), NOW) is not None
    [late] = cold_moves.take(cell, ME, NOW, 5)
    assert not cold_moves.is_anothers(cell, late, placed(OTHER), ME), "its host may be closed: it chooses anew"
    [second] = cold_moves.take(cell, LATER, NOW, 5)
    assert second.attempt == late.attempt
    assert cold_moves.is_anothers(cell, late, placed(OTHER), ME), "not written yet"
    assert cold_moves.placed(cell, second, placed(OTHER), NOW)
    assert not cold_moves.placed(cell, late, placed(OTHER), NOW)
    assert cold_moves.is_anothers(cell, late, placed(OTHER), ME)
    assert not cold_moves.is_anothers(cell, late, placed("host3"), ME), "another host is claimed for nothing"
    up_to(cell, second, "take_up")
    assert cold_moves.is_anothers(cell, late, placed(OTHER), ME), "the server is there"


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
    number, over = abandoned_moves.abandon(cell, NOW, 5)
    assert number == 1
    assert [one.error is not None for one, _ in over] == ([] if step == "rests" else [True])
    assert status(cell) == ("confirmed" if step == "rests" else "error")
    assert abandoned_moves.abandon(cell, NOW, 5) == (0, [])
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
    assert abandoned_moves.abandon(cell, NOW, 5)[0] == 1
    assert state_of(cell) is State.ERROR
    assert given_up(cell) == [waiting.attempt]
    assert not done(cell, waiting, "transfer", waiting.attempt, OTHER)


@pytest.mark.parametrize(("step", "follows"), [("prepare", None), ("transfer", "take_back")])
@pytest.mark.parametrize("back", [False, True])
def test_a_server_does_not_go_to_a_target_that_was_fenced(
    cell: sa.Connection, step: str, follows: str | None, *, back: bool
) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    fence(cell, OTHER, effect=True)
    if back:
        assert fences.came_back(cell, NodeUuid(f"node-{OTHER}")) == 1
    assert done(cell, waiting, step, waiting.attempt, OTHER), "what it says is late"
    assert (server(cell).host, server(cell).attempt, state_of(cell)) == (HOST, 1, State.ACTIVE)
    if follows is None:
        [again] = cold_moves.take(cell, ME, NOW, 5)
        assert again.attempt > waiting.attempt
    else:
        assert done(cell, waiting, follows, 1, HOST)
        assert (server(cell).host, server(cell).task, status(cell)) == (HOST, None, "error")
    assert given_up(cell) == ([waiting.attempt] if back else [])


def test_nobody_waits_for_a_target_that_was_fenced(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "transfer")
    assert silent_moves.overdue(cell, NOW, 5) == []
    fence(cell, OTHER, effect=False)
    assert silent_moves.overdue(cell, NOW, 5) == [], "a mark can be taken back"
    fence(cell, OTHER, effect=True)
    assert [one.step for one in silent_moves.overdue(cell, NOW, 5)] == ["transfer"]
    assert failed(cell, waiting, "transfer", waiting.attempt, OTHER)
    assert silent_moves.overdue(cell, NOW, 5) == []


def test_a_server_does_not_go_back_to_a_source_that_was_fenced(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    revert(cell)
    assert done(cell, waiting, "revert_put_aside", waiting.attempt, OTHER)
    fence(cell, HOST, effect=True)
    assert done(cell, waiting, "revert_receive", 3, HOST)
    assert (server(cell).host, server(cell).attempt) == (OTHER, waiting.attempt)
    assert done(cell, waiting, "revert_take_back", waiting.attempt, OTHER)
    assert (state_of(cell), status(cell)) == (State.RESIZED, "finished")


def test_a_fence_of_the_target_keeps_the_source(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    assert fence(cell, OTHER, effect=True).lost == 1
    abandoned_moves.abandon(cell, NOW, 5)
    assert [(one.attempt, one.open) for one in attempts.history(cell, ONE)] == [(1, True), (waiting.attempt, False)]


def test_a_revert_needs_the_disks_of_the_source(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    fence(cell, HOST, effect=True)
    assert state_of(cell) is State.RESIZED
    with pytest.raises(Conflict, match="the host that it left is lost"):
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


def test_what_is_late_of_one_revert_says_nothing_of_the_next(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    revert(cell, "req-back-1")
    aside = ("revert_put_aside", waiting.attempt, OTHER)
    assert may(cell, waiting, *aside)
    assert done(cell, waiting, *aside)
    assert failed(cell, waiting, "revert_receive", 3, HOST)
    assert done(cell, waiting, "revert_take_back", waiting.attempt, OTHER)
    revert(cell, "req-back-2")
    before = everything(cell)
    assert not may(cell, waiting, *aside, "req-back-1")
    assert not failed(cell, waiting, *aside, "req-back-1")
    assert not done(cell, waiting, *aside, "req-back-1"), "its guest runs, and would run beside that of the source"
    assert everything(cell) == before
    assert done(cell, waiting, *aside, "req-back-2")


def test_silent_hosts(cell: sa.Connection) -> None:
    waiting = begin(cell)
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.attempt, order.assignment.host, order.move.row.order) == (waiting.attempt, OTHER, "prepare")
    assert [one.step for one in silent_moves.overdue(cell, NOW + 5, 5)] == ["prepare"]
    up_to(cell, waiting, "put_aside")
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert may(cell, waiting, "put_aside", 1, HOST)
    assert silent_moves.overdue(cell, NOW + 5, 5) == [], "only the host knows what it did"


def test_a_step_that_may_not_fail_is_told_again_soon_and_then_less_often(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "take_up")
    now, pauses, task_id, mine = NOW, [], asked(cell, waiting), (waiting.move.uuid, "take_up", waiting.attempt, OTHER)

    def is_told(at: int) -> bool:
        return bool(move_steps.due(cell, CELL, at, at - SECOND, 5, at - 15 * SECOND))

    assert is_told(now)
    for _ in range(8):
        now += SECOND // 10
        assert move_steps.may(cell, *mine, now, task_id=task_id)[0]
        now += SECOND // 10
        assert move_steps.failed(cell, *mine, BROKE, now, 3, task_id=task_id)
        assert not is_told(now + SECOND // 2)
        pauses.append(next(pause for pause in range(1, 100) if is_told(now + pause * SECOND + 1)))
        now += pauses[-1] * SECOND + 1
    assert pauses == [1, 2, 4, 8, 15, 15, 15, 15]
    now += SECOND // 10
    assert move_steps.may(cell, *mine, now, task_id=task_id)[0]
    assert not is_told(now + 15 * SECOND), "its host says that it has it in hand"


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


def test_the_window_of_a_move_that_was_forgotten_confirms_no_other(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "rests")
    cell.execute(cell_tables.instances.update().values(attempt=waiting.attempt + 5))
    assert cold_moves.to_confirm(cell, NOW + 1, 5) == []


def spec(cell: sa.Connection) -> RequestSpec:
    work = builds.work(cell, ONE)
    assert work is not None
    return work.spec


def settled(cell: sa.Connection, *, give_up: bool = False) -> str:
    """Return the flavor for which is charged now that the resize is over; empty: it may not be over."""
    told = owed.settle(cell, ONE, "req-move", give_up=give_up)
    if told is None:
        return ""
    [flavor] = [one for one in (FLAVOR, BIG.flavor) if charge_of(one) == told.charge]
    assert told.spec.flavor == flavor
    return flavor.name


def confirm(cell: sa.Connection) -> None:
    request = ActionRequest(action="confirm_resize", context=context("req-confirm"))
    action = ACTIONS["confirm_resize"]
    assert row_actions.carry_out(cell, ONE, action, request, lambda _server: None, "api", NOW) is not None


def test_the_switch_gives_a_server_its_new_size_and_a_revert_the_old_one(cell: sa.Connection) -> None:
    waiting = begin(cell, msgspec.structs.replace(BIG, devices=(GPU,)))
    old = spec(cell)
    assert (waiting.work.spec.flavor, waiting.work.spec.devices) == (BIG.flavor, (GPU,))
    up_to(cell, waiting, "transfer")
    assert (server(cell).flavor, spec(cell)) == (FLAVOR, old)
    for step in ("transfer", "take_up"):
        assert done(cell, waiting, step, waiting.attempt, OTHER)
    after = server(cell)
    assert (after.state, after.flavor, after.disk_config) == (State.RESIZED, BIG.flavor, "AUTO")
    assert (spec(cell).flavor, spec(cell).devices) == (BIG.flavor, (GPU,))
    assert [one.uuid for one in listing.list_all(cell, ListQuery(flavorid="2"))] == [ONE]
    [known] = server_migrations.listed(cell, MigrationQuery())
    assert (known.type, known.old_flavor, known.new_flavor) == ("resize", "1", "2")
    revert(cell)
    assert done(cell, waiting, "revert_put_aside", waiting.attempt, OTHER)
    assert server(cell).flavor == BIG.flavor
    assert done(cell, waiting, "revert_receive", 3, HOST)
    assert done(cell, waiting, "revert_take_up", 3, HOST)
    after = server(cell)
    assert (after.state, after.flavor, after.disk_config) == (State.ACTIVE, FLAVOR, "MANUAL")
    assert spec(cell) == old
    assert listing.list_all(cell, ListQuery(flavorid="2")) == []


def test_each_host_is_told_of_the_size_of_its_attempt(cell: sa.Connection) -> None:
    waiting = begin(cell, BIG)

    def told(of: tuple[int, str], flavor: Flavor) -> None:
        [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
        assert (order.attempt, order.assignment.host) == of
        assert order.instance.flavor == flavor
        assert order.assignment.resources == flavor.resources()

    sizes = {"put_aside": FLAVOR}
    for step in STEPS:
        told(place(waiting, step), sizes.get(step, BIG.flavor))
        assert done(cell, waiting, step, *place(waiting, step))
    revert(cell)
    for step, of, flavor in (
        ("revert_put_aside", (waiting.attempt, OTHER), BIG.flavor),
        ("revert_receive", (3, HOST), FLAVOR),
        ("revert_take_up", (3, HOST), FLAVOR),
    ):
        told(of, flavor)
        assert done(cell, waiting, step, *of)


def test_a_source_that_takes_its_guest_back_is_told_of_the_old_size(cell: sa.Connection) -> None:
    waiting = begin(cell, BIG)
    up_to(cell, waiting, "transfer")
    assert failed(cell, waiting, "transfer", waiting.attempt, OTHER)
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.attempt, order.instance.flavor, order.assignment.resources) == (1, FLAVOR, FLAVOR.resources())
    assert settled(cell, give_up=True) == ""
    assert done(cell, waiting, "take_back", 1, HOST)
    assert settled(cell) == FLAVOR.name


def test_the_room_of_the_new_size_is_asserted(cell: sa.Connection) -> None:
    waiting = begin(cell, BIG)
    [claim] = assertions.read(cell).claims
    assert (claim.attempt, claim.resources) == (waiting.attempt, BIG.flavor.resources())


def test_a_resize_stays_on_its_host_where_that_is_allowed(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    source = server(cell).node
    for size, allowed, stays in ((BIG, True, True), (BIG, False, False), (None, True, False)):
        with cell.begin_nested() as savepoint:
            action = ACTIONS["migrate" if size is None else "resize"]
            assert cold_moves.begin(cell, server(cell), action, context("req-move"), NOW, size=size) is not None
            [waiting] = cold_moves.take(cell, ME, NOW, 5, same_host=allowed)
            assert (source not in waiting.ignore) == stays
            if stays:
                assert cold_moves.placed(cell, waiting, placed(HOST), NOW)
                assert failed(cell, waiting, "prepare", waiting.attempt, HOST)
                assert given_up(cell) == [waiting.attempt], "the attempt that holds the server stays"
                [again] = cold_moves.take(cell, ME, NOW, 5, same_host=allowed)
                assert source in again.ignore, "it has refused"
            savepoint.rollback()


def test_what_is_charged_for_a_resize_is_settled_when_it_is_over(cell: sa.Connection) -> None:
    waiting = begin(cell, BIG)
    for step in STEPS:
        assert settled(cell, give_up=True) == "", step
        assert done(cell, waiting, step, *place(waiting, step))
    assert settled(cell, give_up=True) == "", "its hosts hold both sizes"
    with cell.begin_nested() as savepoint:
        confirm(cell)
        assert settled(cell) == BIG.flavor.name
        savepoint.rollback()
    revert(cell)
    for step, of in (
        ("revert_put_aside", (waiting.attempt, OTHER)),
        ("revert_receive", (3, HOST)),
        ("revert_take_up", (3, HOST)),
    ):
        assert settled(cell, give_up=True) == "", step
        assert done(cell, waiting, step, *of)
    assert settled(cell) == FLAVOR.name


def test_a_resize_that_was_given_up_above_does_not_begin(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert settled(cell) == "", "it may be written the next moment"
    assert settled(cell, give_up=True) == FLAVOR.name
    asked = context("req-move")
    assert cold_moves.begin(cell, server(cell), ACTIONS["resize"], asked, NOW, size=BIG) is None
    assert server_migrations.listed(cell, MigrationQuery()) == []


def test_a_row_that_went_back_before_a_resize_follows_its_guest(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    guest = FoundGuest(
        node=NodeUuid(f"node-{OTHER}"),
        host=OTHER,
        instance=ONE,
        attempt=2,
        highest=2,
        phase="whole",
        power_state=PowerState.RUNNING,
        launched_at=NOW,
        described=BIG.instance(server(cell)),
    )
    recovery.adopt(cell, ONE, Adopt(guest), NOW)
    after = server(cell)
    assert (after.attempt, after.host, after.flavor, after.disk_config) == (2, OTHER, BIG.flavor, "AUTO")
    assert spec(cell).flavor == BIG.flavor
    assert settled(cell, give_up=True) == BIG.flavor.name
