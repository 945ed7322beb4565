"""Actions of one write, in every state of a server."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import attempts, instances, interfaces, recovery, row_actions, tasks
from skep.database.cell.tables import recovering_hosts, recovering_instances
from skep.domain.actions import ACTIONS, ActionRequest, Over
from skep.domain.errors import Conflict, NotFound
from skep.domain.ids import NodeUuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.states import BUILD_STATES, FROZEN
from skep.domain.vifs import Vif
from tests.support.rows import HOST, ONE, bring_to, context, everything, give_up

NOW = 100
WRITABLE = [state for state in State if state not in FROZEN | {State.DELETED, State.MOVED}]


def anything(_server: Instance) -> None:
    """Let every server pass."""


def carry_out(cell: sa.Connection, name: str, **arguments: object) -> list[Over] | None:
    request = ActionRequest(action=name, context=context(f"req-{name}"), arguments=arguments)
    return row_actions.carry_out(cell, ONE, ACTIONS[name], request, anything, "api-1", NOW)


def server(cell: sa.Connection) -> Instance:
    found = instances.get(cell, ONE)
    assert found is not None
    return found


@pytest.mark.parametrize("state", WRITABLE)
def test_a_reset_to_error(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    attempt = server(cell).attempt
    over = carry_out(cell, "reset_state", state="error")
    assert over is not None
    assert [one.action for one, _ in over] == ["reset_state"]
    after = server(cell)
    assert (after.state, after.task) == (State.ERROR, None)
    built = state not in BUILD_STATES
    assert after.attempt == (attempt if built else attempt + 1)
    if state in (State.SCHEDULED, State.BUILDING, State.SPAWNING):
        assert after.fault is not None
        [stale] = attempts.stale_due(cell, NOW, NOW, 5)
        assert (stale.attempt, stale.host, stale.deleted) == (1, HOST, False), "its host undoes it"


def test_a_late_report_does_not_write_over_a_reset(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, ACTIONS["stop"], context("req-stop"), NOW - 1)
    assert tasks.may_act(cell, ONE, 1, HOST, Task.POWERING_OFF, "req-stop", NOW - 1)
    over = carry_out(cell, "reset_state", state="error")
    assert over is not None
    assert [one.action for one, _ in over] == ["stop", "reset_state"]
    before = everything(cell)
    assert tasks.done(cell, ONE, 1, "req-stop", PowerState.SHUTDOWN, None, NOW + 1) is None
    assert everything(cell) == before


ON_A_HOST = [State.SCHEDULED, State.BUILDING, State.SPAWNING]


def refuse_a_reset(cell: sa.Connection) -> None:
    """Try to reset server `ONE` to error: it is refused, and nothing changes."""
    before = everything(cell)
    with pytest.raises(Conflict, match="skep recovery"):
        carry_out(cell, "reset_state", state="error")
    assert everything(cell) == before


@pytest.mark.parametrize("state", ON_A_HOST)
def test_a_build_that_a_recovery_holds_is_not_given_up(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    recovery.begin(cell, None, "restored", 50)
    refuse_a_reset(cell)
    cell.execute(recovering_instances.update().values(doubt="two hosts have it"))
    refuse_a_reset(cell)


@pytest.mark.parametrize("state", ON_A_HOST)
def test_a_build_on_a_host_that_is_waited_for_is_not_given_up(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    recovery.expect(cell, NodeUuid(f"node-{HOST}"), HOST)
    refuse_a_reset(cell)
    cell.execute(recovering_hosts.update().values(reported_at=60))
    assert carry_out(cell, "reset_state", state="error")
    assert server(cell).state is State.ERROR


def test_a_recovery_does_not_keep_a_built_server_from_a_reset(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    recovery.begin(cell, None, "restored", 50)
    assert carry_out(cell, "reset_state", state="error")
    assert server(cell).attempt == 1


@pytest.mark.parametrize("state", WRITABLE)
def test_a_reset_to_active_is_for_servers_with_a_guest(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    before = everything(cell)
    if state in BUILD_STATES | {State.ERROR}:
        with pytest.raises(Conflict, match="Cannot 'resetState'"):
            carry_out(cell, "reset_state", state="active")
        assert everything(cell) == before
    else:
        assert carry_out(cell, "reset_state", state="active")
        # What is in its image alone stays there.
        assert server(cell).state is (state if state is State.SHELVED_OFFLOADED else State.ACTIVE)


def test_a_server_whose_host_fell_silent_is_not_active(cell: sa.Connection) -> None:
    give_up(cell)
    with pytest.raises(Conflict):
        carry_out(cell, "reset_state", state="active")


@pytest.mark.parametrize("name", ["lock", "unlock", "reset_state"])
@pytest.mark.parametrize("state", [State.STAGED, State.LEAVING, State.DELETED])
def test_a_row_that_is_frozen_or_gone_is_not_written(cell: sa.Connection, name: str, state: State) -> None:
    bring_to(cell, state)
    before = everything(cell)
    assert carry_out(cell, name, state="error") is None
    assert everything(cell) == before


@pytest.mark.parametrize("state", WRITABLE)
def test_a_lock_needs_no_state(cell: sa.Connection, state: State) -> None:
    bring_to(cell, state)
    assert carry_out(cell, "lock", locked_reason="audit")
    found = server(cell)
    assert (found.state, found.locked, found.locked_reason) == (state, True, "audit")


def test_interfaces_that_leave_stay_in_the_row_while_others_come_and_go(cell: sa.Connection) -> None:
    """Their ports are not released yet: a row that forgot them would be told of them again."""
    stays, leaves, comes = (
        Vif(id=name, mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)
        for name in ("stays", "leaves", "comes")
    )
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (stays, leaves)}, NOW)
    interfaces.leave(cell, ONE, "leaves")
    carry_out(cell, "attach_interface", vif=comes)
    carry_out(cell, "detach_interface", port_id="stays")
    assert [one.id for one in server(cell).vifs] == ["comes"]
    assert interfaces.leaving(cell, [ONE]) == {ONE: ("leaves",)}
    with pytest.raises(NotFound):
        carry_out(cell, "detach_interface", port_id="leaves")
    carry_out(cell, "attach_interface", vif=leaves)
    assert interfaces.leaving(cell, [ONE]) == {}, "the server has got it again"
