"""Rows of a cell are told of interfaces, and say to which host the ports of their servers are bound."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database.cell import instances, interfaces, tasks
from skep.database.cell.instances import UNBOUND, UNKNOWN
from skep.database.cell.tables import instances as rows
from skep.domain.actions import ACTIONS, PLUG_INTERFACE, UNPLUG_INTERFACE
from skep.domain.instances import PowerState, State
from skep.domain.vifs import PlugInterface, Unwired, Vif, Wiring
from tests.support.rows import HOST, ONE, bring_to, context

VIF = Vif(id="port", mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)
OTHER = "other-host"


def host_is(cell: sa.Connection, host: str | None) -> None:
    cell.execute(rows.update().values(host=host))


def bound_to(cell: sa.Connection) -> str | None:
    found: str | None = cell.execute(sa.select(rows.c.bound_to)).scalar_one()
    return found


def test_a_server_that_gets_a_port_is_to_be_bound(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert interfaces.misbound(cell, 10) == {}, "it has no port"
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    found = instances.get(cell, ONE)
    assert found is not None
    assert found.vifs == (VIF,)
    assert interfaces.misbound(cell, 10) == {ONE: HOST}
    interfaces.note_bound(cell, {ONE: HOST})
    assert interfaces.misbound(cell, 10) == {}
    interfaces.tell(cell, {ONE: (VIF,)}, 6)
    assert interfaces.misbound(cell, 10) == {}, "it is bound already"
    interfaces.tell(cell, {ONE: ()}, 7)
    assert (bound_to(cell), interfaces.misbound(cell, 10)) == (None, {})


@pytest.mark.parametrize("host", [OTHER, None])
def test_ports_follow_the_host(cell: sa.Connection, host: str | None) -> None:
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    interfaces.note_bound(cell, {ONE: HOST})
    host_is(cell, host)
    assert interfaces.misbound(cell, 10) == {ONE: host or UNBOUND}
    interfaces.note_bound(cell, {ONE: host or UNBOUND})
    assert interfaces.misbound(cell, 10) == {}


def test_what_was_bound_for_a_host_before_is_bound_once_more(cell: sa.Connection) -> None:
    """A conductor that binds for the host before may do so after another has bound for the host of now."""
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    host_is(cell, OTHER)
    interfaces.note_bound(cell, {ONE: OTHER})
    interfaces.note_bound(cell, {ONE: HOST})
    assert bound_to(cell) == UNKNOWN
    assert interfaces.misbound(cell, 10) == {ONE: OTHER}


def test_what_was_bound_for_a_host_is_given_up_where_the_server_has_none_by_now(cell: sa.Connection) -> None:
    """It is not known to be bound to none only because the server is on none."""
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    host_is(cell, None)
    interfaces.note_bound(cell, {ONE: HOST})
    assert interfaces.misbound(cell, 10) == {ONE: UNBOUND}


def test_a_server_that_gets_one_more_port_has_all_of_them_bound(cell: sa.Connection) -> None:
    """It may have been made for the host before."""
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    interfaces.note_bound(cell, {ONE: HOST})
    interfaces.tell(cell, {ONE: (VIF, msgspec.structs.replace(VIF, id="another"))}, 6)
    assert interfaces.misbound(cell, 10) == {ONE: HOST}


def test_a_row_of_a_server_that_may_be_elsewhere_is_left_alone(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    for state in (State.MOVED, State.STAGED, State.AWAY, State.LEAVING):
        cell.execute(rows.update().values(state=state.value))
        assert interfaces.misbound(cell, 10) == {}, state


def test_a_row_that_says_so_already_does_not_change(cell: sa.Connection) -> None:
    """Lists of what changed since a time are not to show it."""
    bring_to(cell, State.ACTIVE)
    for vifs in ((VIF,), ()):
        interfaces.tell(cell, {ONE: vifs}, 5)
        known = interfaces.stored(cell, [ONE])
        assert interfaces.tell_unchanged(cell, {ONE: vifs}, known, 6) == []
        assert cell.execute(sa.select(rows.c.changed_at)).scalar_one() == 5


def test_a_row_that_was_written_meanwhile_is_told_later(cell: sa.Connection) -> None:
    """What was looked up before it may be older."""
    bring_to(cell, State.ACTIVE)
    for before, meanwhile in (((), (VIF,)), ((VIF,), ())):
        interfaces.tell(cell, {ONE: before}, 5)
        known = interfaces.stored(cell, [ONE, "another"])
        assert set(known) == {ONE}
        assert interfaces.tell_unchanged(cell, {ONE: before}, known, 6) == []
        interfaces.tell(cell, {ONE: meanwhile}, 7)
        assert interfaces.tell_unchanged(cell, {ONE: before}, known, 8) == [ONE]
        found = instances.get(cell, ONE)
        assert found is not None
        assert found.vifs == meanwhile


def test_a_server_that_is_back_before_the_answer_is_bound_once_more(cell: sa.Connection) -> None:
    """Its ports were to follow it to another host, and nothing is known of that."""
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    interfaces.note_bound(cell, {ONE: HOST})
    host_is(cell, OTHER)
    interfaces.doubt_bindings(cell, [ONE])
    host_is(cell, HOST)
    assert interfaces.misbound(cell, 10) == {ONE: HOST}
    interfaces.tell(cell, {ONE: ()}, 7)
    interfaces.doubt_bindings(cell, [ONE])
    assert bound_to(cell) is None, "it has no port"


def wired(wiring: Wiring, of: Vif = VIF) -> Vif:
    return msgspec.structs.replace(of, wiring=wiring)


def told_unchanged(cell: sa.Connection, *vifs: Vif) -> None:
    known = interfaces.stored(cell, [ONE])
    assert interfaces.tell_unchanged(cell, {ONE: vifs}, known, 9) == []


def test_a_change_that_brings_no_port_leaves_the_bindings(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (wired("awaited"),)}, 5)
    interfaces.note_bound(cell, {ONE: HOST})
    told_unchanged(cell, wired("done"))
    assert bound_to(cell) == HOST
    told_unchanged(cell, wired("done"), msgspec.structs.replace(VIF, id="second"))
    assert bound_to(cell) == UNKNOWN


def unwired_of(cell: sa.Connection, host: str = HOST) -> Unwired | None:
    found = instances.get(cell, ONE)
    assert found is not None
    return interfaces.unwired_of(cell, ONE, found.attempt, host)


def test_wires_are_those_of_the_host_that_ports_are_bound_to(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    assert unwired_of(cell) == Unwired()
    interfaces.tell(cell, {ONE: (wired("done"), VIF)}, 5)
    assert unwired_of(cell) == Unwired(awaited=("port",)), "it is not known where it is bound"
    interfaces.note_bound(cell, {ONE: HOST})
    assert unwired_of(cell) == Unwired()
    assert unwired_of(cell, OTHER) is None, "that host does not build it"
    host_is(cell, OTHER)
    assert unwired_of(cell, OTHER) == Unwired(awaited=("port",))


def test_ports_that_are_bound_are_told_with_it(cell: sa.Connection) -> None:
    bring_to(cell, State.BUILDING)
    interfaces.tell(cell, {ONE: (wired("done"),)}, 5)
    known = interfaces.stored(cell, [ONE])
    interfaces.tell_bound(cell, {ONE: HOST}, {ONE: (wired("awaited"),)}, known, 6)
    assert bound_to(cell) == HOST
    assert unwired_of(cell) == Unwired(awaited=("port",))


def test_a_port_that_came_while_others_were_bound_is_bound_with_the_next_try(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,)}, 5)
    both = (VIF, msgspec.structs.replace(VIF, id="second"))
    interfaces.tell_bound(cell, {ONE: HOST}, {ONE: both}, interfaces.stored(cell, [ONE]), 6)
    assert interfaces.told(cell, [ONE]) == {ONE: both}
    assert interfaces.misbound(cell, 10) == {ONE: HOST}
    interfaces.tell_bound(cell, {ONE: HOST}, {ONE: both}, interfaces.stored(cell, [ONE]), 7)
    assert interfaces.misbound(cell, 10) == {}


def test_ports_of_which_others_told_meanwhile_are_bound_once_more(cell: sa.Connection) -> None:
    """What they told may have been true on the host before."""
    bring_to(cell, State.BUILDING)
    interfaces.tell(cell, {ONE: (wired("awaited"),)}, 5)
    known = interfaces.stored(cell, [ONE])
    interfaces.tell(cell, {ONE: (wired("done"),)}, 6)
    interfaces.tell_bound(cell, {ONE: HOST}, {ONE: (wired("awaited"),)}, known, 7)
    assert interfaces.misbound(cell, 10) == {ONE: HOST}
    assert unwired_of(cell) == Unwired(awaited=("port",))


PLUGGED = msgspec.structs.replace(VIF, id="plugged")


def begin(cell: sa.Connection, action: str) -> None:
    """Have a host give an interface to a guest that has one already, or take one of two away."""
    bring_to(cell, State.ACTIVE)
    interfaces.tell(cell, {ONE: (VIF,) if action == PLUG_INTERFACE else (VIF, PLUGGED)}, 5)
    interfaces.note_bound(cell, {ONE: HOST})
    arguments = PlugInterface(vif=PLUGGED)
    assert tasks.begin(cell, ONE, ACTIONS[action], context("req-plug"), 6, arguments=arguments)
    assert interfaces.plug(cell, ONE, PLUGGED) if action == PLUG_INTERFACE else interfaces.has(cell, ONE, "plugged")


def vifs_of(cell: sa.Connection) -> list[str]:
    server = instances.get(cell, ONE)
    assert server is not None
    return [one.id for one in server.vifs]


@pytest.mark.parametrize(
    ("action", "error", "leaves"),
    [
        (PLUG_INTERFACE, None, False),
        (PLUG_INTERFACE, "InterfaceAttachFailed: no place is left", True),
        (UNPLUG_INTERFACE, None, True),
        (UNPLUG_INTERFACE, "InterfaceInUse: the guest uses it", False),
    ],
)
def test_what_the_guest_has_not_leaves_the_server(
    cell: sa.Connection, action: str, error: str | None, leaves: bool
) -> None:
    """Its users see it no more at once. The row keeps it until its port is released, whoever tells the row."""
    begin(cell, action)
    assert vifs_of(cell) == ["port", "plugged"]
    assert tasks.done(cell, ONE, 1, "req-plug", PowerState.RUNNING, error, 7) is not None
    assert vifs_of(cell) == (["port"] if leaves else ["port", "plugged"])
    interfaces.tell(cell, {ONE: (VIF, PLUGGED)}, 8)
    told_unchanged(cell, msgspec.structs.replace(VIF, mtu=1400), PLUGGED)
    interfaces.note_bound(cell, {ONE: HOST})
    assert interfaces.leaving(cell, [ONE]) == ({ONE: ("plugged",)} if leaves else {})
    assert interfaces.misbound(cell, 10) == ({ONE: HOST} if leaves else {}), "a super conductor finds it"
    assert [one.id for one in interfaces.told(cell, [ONE])[ONE]] == ["port", "plugged"], "as its ports are"
    if leaves:
        interfaces.lose(cell, ONE, "plugged", 9)
        interfaces.note_bound(cell, {ONE: HOST})
        assert (interfaces.leaving(cell, [ONE]), interfaces.misbound(cell, 10)) == ({}, {})
    assert vifs_of(cell) == (["port"] if leaves else ["port", "plugged"])


def test_an_interface_that_the_host_never_began_to_give_leaves(cell: sa.Connection) -> None:
    begin(cell, PLUG_INTERFACE)
    [task] = tasks.of(cell, rows.c.uuid == ONE)
    assert tasks.give_up(cell, task, 7) is not None
    assert interfaces.leaving(cell, [ONE]) == {ONE: ("plugged",)}


def test_a_port_that_went_by_another_way_meanwhile_is_forgotten(cell: sa.Connection) -> None:
    begin(cell, UNPLUG_INTERFACE)
    interfaces.tell(cell, {ONE: (VIF,)}, 7)
    assert tasks.done(cell, ONE, 1, "req-plug", PowerState.RUNNING, None, 8) is not None
    assert (vifs_of(cell), interfaces.leaving(cell, [ONE])) == (["port"], {})


def test_a_server_that_has_left_its_row_gets_no_interface(cell: sa.Connection) -> None:
    begin(cell, PLUG_INTERFACE)
    cell.execute(rows.update().values(state=State.MOVED.value))
    assert not interfaces.plug(cell, ONE, VIF)
    assert not interfaces.has(cell, ONE, "port")
