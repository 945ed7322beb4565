"""The copying of a guest waits until the ports of its server are bound to the target, too; or goes on without."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.cell import cold_moves, instances, interfaces, live_moves, move_steps, second_bindings
from skep.database.cell.cold_moves import WaitingMove
from skep.database.cell.move_steps import DueStep
from skep.database.cell.tables import attempts, migrations
from skep.database.cell.tables import instances as rows
from skep.database.stored import dump
from skep.domain.actions import ACTIONS
from skep.domain.builds import BuildFailure, FailureKind, Placed
from skep.domain.clock import SECOND
from skep.domain.ids import CellUuid
from skep.domain.instances import Instance, PowerState, State
from skep.domain.providers import Allocation
from skep.domain.vifs import Vif, VifBeside, VifDetails
from tests.support.rows import HOST, ME, ONE, bring_to, context, placed

NOW = 100
OTHER = "host2"
VIF = Vif(id="port", mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)
THERE = VifBeside(host=OTHER, type="bridge", details=VifDetails(bridge_name="brq-there"))


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


def ready(cell: sa.Connection, *, ports: bool = True, target: Placed | None = None) -> WaitingMove:
    """Begin a live migration, up to where its target is chosen."""
    bring_to(cell, State.ACTIVE)
    if ports:
        interfaces.tell(cell, {ONE: (VIF,)}, 5)
        interfaces.note_bound(cell, {ONE: HOST})
    assert live_moves.begin(cell, server(cell), ACTIONS["live_migrate"], context("req-move"), NOW) is not None
    [waiting] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, waiting, target or placed(OTHER), NOW)
    live_moves.begin_queued(cell, NOW, 0)
    return waiting


def prepared(cell: sa.Connection, waiting: WaitingMove) -> None:
    """Have the ports bound to both hosts, and the target be ready."""
    second_bindings.take(cell, 5)
    second_bindings.made(cell, [waiting.move.uuid], {ONE: {VIF.id: THERE}})
    assert ends(cell, waiting, "live_prepare", waiting.attempt, OTHER)


def ends(cell: sa.Connection, waiting: WaitingMove, step: str, attempt: int, host: str) -> bool:
    power, task_id = PowerState.RUNNING, waiting.move.context.request_id
    moved = move_steps.done(cell, waiting.move.uuid, step, attempt, host, power, NOW, 3, task_id=task_id)
    return moved is not None


def orders(cell: sa.Connection) -> list[DueStep]:
    return move_steps.due(cell, CellUuid("cell"), NOW, NOW, 5, NOW)


def told(cell: sa.Connection) -> list[str | None]:
    """Return the steps of which hosts are told now."""
    return [one.move.step for one in orders(cell)]


def said(cell: sa.Connection) -> str | None:
    found: str | None = cell.scalar(sa.select(migrations.c.dest_binding))
    return found


def test_a_server_without_ports_waits_for_nothing(cell: sa.Connection) -> None:
    waiting = ready(cell, ports=False)
    assert not second_bindings.are_noted(cell)
    assert told(cell) == ["live_prepare"]
    assert ends(cell, waiting, "live_prepare", waiting.attempt, OTHER)
    assert told(cell) == ["live_copy"]


def test_no_host_is_told_before_the_bindings_are_there(cell: sa.Connection) -> None:
    waiting = ready(cell)
    assert told(cell) == []
    for _ in range(2):
        [one] = second_bindings.take(cell, 5)
        assert (one.move, one.instance, one.host) == (waiting.move.uuid, ONE, OTHER), "another may have died with it"
        assert told(cell) == []
    assert interfaces.misbound(cell, 5) == {}
    assert second_bindings.beside(cell, [ONE]) == {ONE: OTHER}
    second_bindings.made(cell, [waiting.move.uuid], {ONE: {VIF.id: THERE}})
    assert second_bindings.take(cell, 5) == []
    assert told(cell) == ["live_prepare"]
    assert second_bindings.look_again(cell, 5) == 0, "it is under way"
    assert ends(cell, waiting, "live_prepare", waiting.attempt, OTHER)
    assert told(cell) == ["live_copy"]
    assert second_bindings.beside(cell, [ONE]) == {ONE: OTHER}


def test_the_target_alone_is_told_how_ports_are_plugged_there(cell: sa.Connection) -> None:
    """What others tell of the ports meanwhile does not change it, nor is it a change of the server."""
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    before = cell.scalar(sa.select(rows.c.changed_at))
    second_bindings.made(cell, [waiting.move.uuid], {ONE: {VIF.id: THERE}})
    assert cell.scalar(sa.select(rows.c.changed_at)) == before
    assert interfaces.told(cell, [ONE]) == {ONE: (VIF,)}
    renamed = msgspec.structs.replace(VIF, network_name="other")
    interfaces.tell(cell, {ONE: (renamed,)}, NOW)
    assert interfaces.tell_unchanged(cell, {ONE: (renamed,)}, interfaces.stored(cell, [ONE]), NOW) == []
    [order] = orders(cell)
    [vif] = order.instance.vifs
    assert (vif.type, vif.details, vif.network_name) == (THERE.type, THERE.details, "other")
    assert ends(cell, waiting, "live_prepare", waiting.attempt, OTHER)
    [order] = orders(cell)
    [vif] = order.instance.vifs
    assert (vif.type, vif.details) == (VIF.type, VIF.details)
    assert ends(cell, waiting, "live_copy", 1, HOST)
    interfaces.note_bound(cell, {ONE: OTHER})
    assert ends(cell, waiting, "live_take_up", waiting.attempt, OTHER)
    assert second_bindings.look_again(cell, 5) == 1
    assert server(cell).vifs == (renamed,)


def test_a_target_that_refuses_keeps_no_binding(cell: sa.Connection) -> None:
    """The next one gets its own; what is known of the first goes."""
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    second_bindings.made(cell, [waiting.move.uuid], {ONE: {VIF.id: THERE}})
    why = BuildFailure(kind=FailureKind.RESCHEDULE, error="TooSmall", message="no room")
    task_id = waiting.move.context.request_id
    refused = (waiting.move.uuid, "live_prepare", waiting.attempt, OTHER, why, NOW, 3)
    assert move_steps.failed(cell, *refused, task_id=task_id) is not None
    assert second_bindings.beside(cell, [ONE]) == {}
    assert second_bindings.look_again(cell, 5) == 1
    assert not second_bindings.are_noted(cell)
    assert interfaces.misbound(cell, 5) == {ONE: HOST}
    assert server(cell).vifs == (VIF,)
    [again] = cold_moves.take(cell, ME, NOW, 5)
    assert cold_moves.placed(cell, again, placed("host3"), NOW)
    assert said(cell) == "wanted"


def test_what_serves_the_ports_on_the_target_is_said_with_the_binding(cell: sa.Connection) -> None:
    """It is that of the target's attempt: the row says what serves them on the host that has the server."""
    serving = placed(OTHER, Allocation(ports={"group": "there"}))
    waiting = ready(cell, target=serving)
    cell.execute(rows.update().values(allocation=dump(Allocation(ports={"group": "here"}))))
    [one] = second_bindings.take(cell, 5)
    assert one.providers == {"group": "there"}
    assert interfaces.providers_of(cell, [ONE]) == {ONE: {"group": "here"}}
    prepared(cell, waiting)
    assert ends(cell, waiting, "live_copy", 1, HOST)
    assert interfaces.providers_of(cell, [ONE]) == {ONE: {"group": "there"}}


def test_once_it_is_over_the_ports_are_looked_at_again(cell: sa.Connection) -> None:
    waiting = ready(cell)
    prepared(cell, waiting)
    assert ends(cell, waiting, "live_copy", 1, HOST)
    assert second_bindings.beside(cell, [ONE]) == {}, "the source has nothing of the server any more"
    assert interfaces.misbound(cell, 5) == {ONE: OTHER}
    interfaces.note_bound(cell, {ONE: OTHER})
    assert second_bindings.look_again(cell, 5) == 0
    assert ends(cell, waiting, "live_take_up", waiting.attempt, OTHER)
    assert second_bindings.look_again(cell, 5) == 1
    assert interfaces.misbound(cell, 5) == {ONE: OTHER}
    assert not second_bindings.are_noted(cell)


def test_a_refused_binding_ends_it_with_the_server_untouched(cell: sa.Connection) -> None:
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    [_] = live_moves.refuse_binding(cell, waiting.move.uuid, "no segment reaches it", NOW)
    after = server(cell)
    assert (after.state, after.task, after.host, after.attempt) == (State.ACTIVE, None, HOST, 1)
    assert after.fault is not None
    assert after.fault.message == "no segment reaches it"
    assert cell.scalar(sa.select(migrations.c.status)) == "error"
    outcome = sa.select(attempts.c.outcome).where(attempts.c.attempt == waiting.attempt)
    assert cell.scalar(outcome) is not None, "its target is undone"
    assert second_bindings.look_again(cell, 5) == 1
    assert interfaces.misbound(cell, 5) == {ONE: HOST}, "what was made of bindings goes"


def test_a_refusal_that_comes_late_ends_nothing(cell: sa.Connection) -> None:
    """Another conductor has had the bindings made by then."""
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    second_bindings.made(cell, [waiting.move.uuid], {})
    assert live_moves.refuse_binding(cell, waiting.move.uuid, "late", NOW) == []
    assert told(cell) == ["live_prepare"]


def test_an_abort_while_bindings_are_awaited_is_the_conductor_s_alone(cell: sa.Connection) -> None:
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    live_moves.abort(cell, ONE, waiting.move.uuid, ("preparing",))
    assert told(cell) == []
    [_] = live_moves.cancel(cell, NOW, 5)
    assert cell.scalar(sa.select(migrations.c.status)) == "cancelled"
    assert server(cell).task is None
    assert second_bindings.look_again(cell, 5) == 1


@pytest.mark.parametrize("asked", [False, True])
def test_where_nobody_above_knows_of_bindings_it_goes_on_without(cell: sa.Connection, *, asked: bool) -> None:
    ready(cell)
    if asked:
        second_bindings.take(cell, 5)
    assert second_bindings.go_on_without(cell, NOW, NOW) == 0, "it has just begun"
    assert second_bindings.go_on_without(cell, NOW + 60 * SECOND, NOW) == (0 if asked else 1)
    assert told(cell) == ([] if asked else ["live_prepare"])
    assert said(cell) == ("asked" if asked else None)


def test_bindings_of_which_nothing_is_heard_for_too_long_are_not_waited_for(cell: sa.Connection) -> None:
    """The super conductor that asked for them is gone, and those that run know nothing of them."""
    waiting = ready(cell)
    second_bindings.take(cell, 5)
    assert second_bindings.go_on_without(cell, NOW + 60 * SECOND, NOW + 60 * SECOND) == 1
    assert told(cell) == ["live_prepare"]
    assert live_moves.refuse_binding(cell, waiting.move.uuid, "late", NOW) == [], "the target may be ready already"
    assert ends(cell, waiting, "live_prepare", waiting.attempt, OTHER)
    assert told(cell) == ["live_copy"]
    assert ends(cell, waiting, "live_copy", 1, HOST)
    assert interfaces.misbound(cell, 5) == {ONE: OTHER}
    assert ends(cell, waiting, "live_take_up", waiting.attempt, OTHER)
    interfaces.note_bound(cell, {ONE: OTHER})
    assert second_bindings.look_again(cell, 5) == 1, "there may be some from before"
    assert interfaces.misbound(cell, 5) == {ONE: OTHER}


def test_a_server_that_is_gone_is_not_bound(cell: sa.Connection) -> None:
    ready(cell)
    second_bindings.take(cell, 5)
    cell.execute(migrations.update().values(step=None))
    cell.execute(rows.update().values(deleted_at=NOW))
    assert second_bindings.look_again(cell, 5) == 1
    assert interfaces.misbound(cell, 5) == {}
