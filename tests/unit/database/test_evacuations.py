"""The writes of evacuations: the switch gives the lost host's attempt up, and a fence does not take the server away."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import (
    abandoned_moves,
    agents,
    attempts,
    cold_moves,
    evacuations,
    fences,
    guest_secrets,
    host_keys,
    instances,
    move_steps,
    server_migrations,
    sessions,
    silent_moves,
)
from skep.database.cell import tables as cell_tables
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.fences import FencedHost
from skep.database.cell.guest_secrets import GuestSecrets
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.actions import ACTIONS, EvacuateTo
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from tests.support.rows import CELL, HOST, ME, ONE, bring_to, context, everything, placed

NOW = 100
OTHER = "host2"
BROKE = BuildFailure(kind=FailureKind.RESCHEDULE, error="SpawnFailed", message="it broke")
STEPS = ("evacuate_prepare", "evacuate_release", "evacuate_spawn")
KEY = b"x" * 32


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def status(cell: sa.Connection) -> str:
    return server_migrations.listed(cell, MigrationQuery())[0].status


def ask(cell: sa.Connection, to: EvacuateTo | None = None, request: str = "req-move") -> bool:
    action, row = ACTIONS["evacuate"], server(cell)
    begun = evacuations.begin(
        cell, row, action, context(request), NOW, to=to or EvacuateTo(), secrets=b"of the evacuation"
    )
    return begun is not None


def choose(cell: sa.Connection, host: str = OTHER) -> WaitingMove:
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, waiting, placed(host), NOW)
    return waiting


def begin(cell: sa.Connection) -> WaitingMove:
    """Begin to evacuate a server that ran, and choose its host."""
    bring_to(cell, State.ACTIVE)
    assert ask(cell)
    return choose(cell)


def done(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    uuid, task_id = waiting.move.uuid, waiting.move.context.request_id
    found = move_steps.done(cell, uuid, step, attempt, host, PowerState.RUNNING, NOW, 3, task_id=task_id)
    return found is not None


def failed(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    uuid, task_id = waiting.move.uuid, waiting.move.context.request_id
    return move_steps.failed(cell, uuid, step, attempt, host, BROKE, NOW, 3, task_id=task_id) is not None


def may(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    uuid, task_id = waiting.move.uuid, waiting.move.context.request_id
    return move_steps.may(cell, uuid, step, attempt, host, NOW, task_id=task_id)[0]


def place(waiting: WaitingMove, step: str) -> tuple[int, str]:
    return (1, HOST) if step == "evacuate_release" else (waiting.attempt, OTHER)


def up_to(cell: sa.Connection, waiting: WaitingMove, last: str) -> None:
    """Let the hosts take all steps before `last`."""
    for step in STEPS:
        if step == last:
            return
        assert done(cell, waiting, step, *place(waiting, step))


def given_up(cell: sa.Connection) -> list[int]:
    return sorted(one.attempt for one in attempts.stale_due(cell, NOW + 10, NOW + 9, 10))


def fence(cell: sa.Connection, host: str) -> fences.Closed:
    node = NodeUuid(f"node-{host}")
    agents.register(cell, AgentIdentity(node=node, host=host, process=Incarnation(host)), NOW)
    assert fences.mark(cell, node, NOW, NOW)
    assert fences.take_effect(cell, node, NOW)
    return fences.close(cell, FencedHost(node=node, host=host), NOW, 10)


@pytest.mark.parametrize("step", STEPS)
def test_only_the_host_of_the_step_ends_it(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    attempt, host = place(waiting, step)
    before = everything(cell)
    for other in (*(one for one in STEPS if one != step), "evacuate_take_back"):
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


def test_the_switch_gives_the_lost_attempt_up(cell: sa.Connection) -> None:
    waiting = begin(cell)
    assert status(cell) == "pre-migrating"
    up_to(cell, waiting, "evacuate_release")
    before = server(cell)
    assert (before.host, before.attempt, before.task) == (HOST, 1, Task.EVACUATING)
    assert [one.uuid for one in evacuations.awaiting_release(cell, 5)] == [waiting.move.uuid]
    assert given_up(cell) == []
    assert done(cell, waiting, "evacuate_release", 1, HOST)
    after = server(cell)
    assert (after.host, after.attempt, after.task) == (OTHER, waiting.attempt, Task.EVACUATE_SPAWNING)
    assert given_up(cell) == [1]
    assert not may(cell, waiting, "evacuate_release", 1, HOST)
    assert may(cell, waiting, "evacuate_spawn", waiting.attempt, OTHER)
    assert done(cell, waiting, "evacuate_spawn", waiting.attempt, OTHER)
    after = server(cell)
    assert (after.state, after.task, after.power_state) == (State.ACTIVE, None, PowerState.RUNNING)
    assert status(cell) == "done"

    evacuations.source_cleared(cell, ONE, HOST, NOW)
    assert status(cell) == "done", "its attempt is open"
    attempts.close(cell, ONE, HOST, 1, NOW)
    evacuations.source_cleared(cell, ONE, OTHER, NOW)
    assert status(cell) == "done", "another host has nothing to say of it"
    evacuations.source_cleared(cell, ONE, HOST, NOW)
    assert status(cell) == "completed"


@pytest.mark.parametrize("fenced", [False, True])
def test_a_source_that_cleared_before_the_end_is_told(cell: sa.Connection, fenced: bool) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_spawn")
    if fenced:
        fence(cell, HOST)
    else:
        attempts.close(cell, ONE, HOST, 1, NOW)
    assert done(cell, waiting, "evacuate_spawn", waiting.attempt, OTHER)
    assert status(cell) == ("done" if fenced else "completed"), "a fenced host has said nothing"


def test_what_it_is_told_goes_to_the_target_alone(cell: sa.Connection) -> None:
    node = NodeUuid(f"node-{OTHER}")
    run = AgentIdentity(node=node, host=OTHER, process=Incarnation("run"))
    host_keys.bind(cell, node, OTHER, b"k" * 32, 1)
    agents.register(cell, run, 1)
    sessions.begin(cell, run, 1, KEY)
    waiting = begin(cell)
    cell.execute(cell_tables.instances.update().values(secrets=None))
    mine = waiting.attempt
    assert guest_secrets.exchange_key_of_builder(cell, ONE, mine, OTHER) == KEY, "a ticket for its image"
    for attempt, host in ((mine + 1, OTHER), (mine, "host9"), (1, HOST)):
        assert guest_secrets.exchange_key_of_builder(cell, ONE, attempt, host) is None
    assert guest_secrets.for_host(cell, ONE, mine, OTHER, "req-move") is None, "it is not the target's yet"
    up_to(cell, waiting, "evacuate_spawn")
    found = guest_secrets.for_host(cell, ONE, mine, OTHER, "req-move")
    assert found == GuestSecrets(sealed=b"of the evacuation", exchange_key=KEY)
    assert guest_secrets.sealed(cell) == [b"of the evacuation"]
    assert done(cell, waiting, "evacuate_spawn", mine, OTHER)
    assert guest_secrets.sealed(cell) == []
    assert guest_secrets.exchange_key_of_builder(cell, ONE, mine, OTHER) is None


@pytest.mark.parametrize("step", ["evacuate_prepare", "evacuate_release"])
def test_a_fence_before_the_switch_lets_it_choose_anew(cell: sa.Connection, step: str) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, step)
    assert fence(cell, HOST).lost == 1
    assert abandoned_moves.abandon(cell, NOW, 5)[0] == 0, "it still has its server"
    after = server(cell)
    assert (after.state, after.task) == (State.ERROR, Task.EVACUATING)
    assert not done(cell, waiting, step, *place(waiting, step))
    assert given_up(cell) == [waiting.attempt]
    again = choose(cell)
    assert again.attempt > after.attempt > waiting.attempt
    assert done(cell, waiting, "evacuate_prepare", again.attempt, OTHER)
    assert done(cell, waiting, "evacuate_release", after.attempt, HOST)
    assert done(cell, waiting, "evacuate_spawn", again.attempt, OTHER)
    assert (server(cell).state, server(cell).host) == (State.ACTIVE, OTHER)
    node = NodeUuid(f"node-{HOST}")
    assert fences.came_back(cell, node) == 1
    assert 1 in given_up(cell)


def test_a_fence_after_the_switch_closes_what_was_given_up(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_spawn")
    closed = fence(cell, HOST)
    assert (closed.lost, [key.attempt for key in closed.released]) == (0, [1])
    assert done(cell, waiting, "evacuate_spawn", waiting.attempt, OTHER)
    assert server(cell).state is State.ACTIVE


def test_a_fence_of_the_target_ends_it(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_spawn")
    assert fence(cell, OTHER).lost == 1
    assert abandoned_moves.abandon(cell, NOW, 5)[0] == 1
    assert (server(cell).state, server(cell).task) == (State.ERROR, None)
    assert ask(cell, request="req-again")


def test_three_targets_are_enough(cell: sa.Connection) -> None:
    bring_to(cell, State.STOPPED)
    assert ask(cell)
    for number in range(3):
        [waiting] = cold_moves.take(cell, ME, NOW, 5)
        assert NodeUuid(f"node-{HOST}") in waiting.ignore
        assert cold_moves.placed(cell, waiting, placed(f"target{number}"), NOW)
        assert failed(cell, waiting, "evacuate_prepare", waiting.attempt, f"target{number}")
    assert cold_moves.take(cell, ME, NOW, 5) == []
    after = server(cell)
    assert (after.state, after.task, after.host, after.attempt) == (State.STOPPED, None, HOST, 1)
    assert after.fault is not None
    assert status(cell) == "error"


def test_a_source_that_cannot_release_takes_back(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_release")
    assert failed(cell, waiting, "evacuate_release", 1, HOST)
    assert given_up(cell) == [waiting.attempt]
    [order] = move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert (order.move.row.order, order.attempt, order.start) == ("take_back", 1, True)
    assert done(cell, waiting, "evacuate_take_back", 1, HOST)
    after = server(cell)
    assert (after.state, after.task, after.attempt) == (State.ACTIVE, None, 1)


def test_only_a_target_is_given_up_for_its_silence(cell: sa.Connection) -> None:
    waiting = begin(cell)
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert [one.step for one in silent_moves.overdue(cell, NOW + 5, 5)] == ["evacuate_prepare"]
    assert done(cell, waiting, "evacuate_prepare", waiting.attempt, OTHER)
    assert move_steps.due(cell, CELL, NOW, NOW, 5, 0)
    assert silent_moves.overdue(cell, NOW + 5, 5) == []


def test_another_begins_where_the_target_is_lost_too(cell: sa.Connection) -> None:
    waiting = begin(cell)
    before = everything(cell)
    assert not ask(cell, request="req-again"), "the first is under way"
    assert everything(cell) == before
    up_to(cell, waiting, "evacuate_spawn")
    assert ask(cell, request="req-again")
    assert not done(cell, waiting, "evacuate_spawn", waiting.attempt, OTHER), "the first is over"
    again = choose(cell, "host3")
    assert again.move.source_host == OTHER
    assert again.attempt > waiting.attempt
    assert sorted(one.status for one in server_migrations.listed(cell, MigrationQuery())) == ["error", "pre-migrating"]


def lose_target(cell: sa.Connection, *, granted: bool) -> WaitingMove:
    """Bring an evacuation before its switch, and fence its target."""
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_release")
    if granted:
        assert may(cell, waiting, "evacuate_release", 1, HOST)
    fence(cell, OTHER)
    [known] = evacuations.awaiting_release(cell, 5)
    assert move_steps.released(cell, known, NOW, 3) is not None
    after = server(cell)
    assert (after.host, after.attempt, after.task) == (HOST, 1, Task.EVACUATING), "there is no switch"
    return waiting


def test_nothing_goes_to_a_target_that_is_lost(cell: sa.Connection) -> None:
    waiting = lose_target(cell, granted=False)
    [again] = cold_moves.take(cell, ME, NOW, 5)
    assert NodeUuid(f"node-{OTHER}") in again.ignore
    assert again.attempt > waiting.attempt


def test_a_source_that_may_have_put_its_guest_aside_makes_it_again(cell: sa.Connection) -> None:
    waiting = lose_target(cell, granted=True)
    assert cold_moves.take(cell, ME, NOW, 5) == []
    assert done(cell, waiting, "evacuate_take_back", 1, HOST)
    assert server(cell).state is State.ACTIVE


def test_a_source_that_has_released_its_guest_takes_it_back_where_the_target_is_lost(cell: sa.Connection) -> None:
    waiting = begin(cell)
    up_to(cell, waiting, "evacuate_release")
    fence(cell, OTHER)
    assert done(cell, waiting, "evacuate_release", 1, HOST)
    assert server(cell).attempt == 1
    assert done(cell, waiting, "evacuate_take_back", 1, HOST)
    assert (server(cell).state, server(cell).host) == (State.ACTIVE, HOST)


@pytest.mark.parametrize(("understands", "ends"), [((), True), (("RunAction",), True), (("MoveStep",), False)])
def test_a_heard_host_whose_agent_takes_no_steps_ends_it(
    cell: sa.Connection, understands: tuple[str, ...], ends: bool
) -> None:
    waiting = begin(cell)
    assert done(cell, waiting, "evacuate_prepare", waiting.attempt, OTHER)
    [known] = evacuations.awaiting_release(cell, 5)
    assert known.source_node is not None
    run = AgentIdentity(node=known.source_node, host=HOST, process=Incarnation("old"))
    agents.register(cell, run, NOW, understands=understands)
    assert (move_steps.not_released(cell, known, NOW) is not None) == ends
    if ends:
        assert (server(cell).state, server(cell).task, server(cell).attempt) == (State.ACTIVE, None, 1)
        assert [one.attempt for one in attempts.stale_due(cell, NOW, NOW, 5)] == [waiting.attempt]
        assert status(cell) == "error"
    else:
        assert server(cell).task is not None


def test_a_release_that_was_allowed_is_waited_for(cell: sa.Connection) -> None:
    waiting = begin(cell)
    assert done(cell, waiting, "evacuate_prepare", waiting.attempt, OTHER)
    assert may(cell, waiting, "evacuate_release", 1, HOST)
    [known] = evacuations.awaiting_release(cell, 5)
    assert known.source_node is not None
    agents.register(cell, AgentIdentity(node=known.source_node, host=HOST, process=Incarnation("old")), NOW)
    assert move_steps.not_released(cell, known, NOW) is None
