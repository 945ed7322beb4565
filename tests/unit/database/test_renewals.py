"""A build whose last host keeps its interfaces waits with the choice of its next host until its ports are new."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from skep.database.cell import agents, instances, interfaces, renewals, reschedules
from skep.database.cell.renewals import Renewal
from skep.database.cell.tables import instances as rows
from skep.database.stored import dump
from skep.domain.clock import SECOND
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import Shelved, State
from skep.domain.vifs import Vif
from tests.support.rows import FAULT, HOST, ME, ONE, bring_to

NOW = 100 * SECOND
SECONDS = 5.0
OLD = Vif(id="old", mac_address="fa:16:3e:00:00:01", network_id="net", network_name="private", mtu=1500)
NEW = Vif(id="new", mac_address="fa:16:3e:00:00:02", network_id="net", network_name="private", mtu=1500)


def failed(cell: sa.Connection, *capabilities: str, ports: bool = True) -> None:
    """Have a build fail on a host whose driver says this of itself."""
    bring_to(cell, State.RESCHEDULING)
    node = NodeUuid(str(cell.scalar(sa.select(rows.c.node))))
    run = AgentIdentity(node=node, host=HOST, process=Incarnation("run"))
    agents.register(cell, run, NOW, ["BuildInstance"], capabilities)
    if ports:
        interfaces.tell(cell, {ONE: (OLD,)}, 5)
        interfaces.note_bound(cell, {ONE: HOST})


def bound_to(cell: sa.Connection) -> str | None:
    found: str | None = cell.scalar(sa.select(rows.c.bound_to))
    return found


def take(cell: sa.Connection, at: int = NOW) -> Renewal:
    """Take the build, as a process that makes its ports anew."""
    found = instances.get(cell, ONE)
    assert found is not None
    mine = Renewal(instance=ONE, attempt=found.attempt, taken_at=at)
    assert renewals.take(cell, mine, SECONDS)
    return mine


def test_a_build_waits_for_new_ports(cell: sa.Connection) -> None:
    failed(cell, "host_interfaces")
    assert not renewals.are_noted(cell)
    assert renewals.note(cell) == 1
    assert renewals.note(cell) == 0, "it is noted"
    assert reschedules.take(cell, ME, NOW, 5) == []
    assert interfaces.misbound(cell, 5) == {}
    assert renewals.are_noted(cell)
    [work] = renewals.waiting(cell, NOW, 5)
    assert (work.instance.uuid, work.instance.vifs) == (ONE, (OLD,))
    mine = take(cell)
    another = replace(mine, attempt=mine.attempt + 1)
    assert not renewals.renewed(cell, another, (NEW,), NOW), "of another attempt"
    assert renewals.renewed(cell, mine, (NEW,), NOW)
    assert not renewals.renewed(cell, mine, (OLD,), NOW), "another has done it"
    assert (bound_to(cell), renewals.are_noted(cell)) == ("", False)
    [taken] = reschedules.take(cell, ME, NOW, 5)
    assert taken.instance.vifs == (NEW,)
    assert renewals.note(cell) == 0, "no host has failed since"


def test_one_process_at_a_time_makes_them(cell: sa.Connection) -> None:
    failed(cell, "host_interfaces")
    renewals.note(cell)
    mine = take(cell)
    soon = replace(mine, taken_at=NOW + 4 * SECOND)
    assert not renewals.take(cell, soon, SECONDS), "another process makes them"
    assert renewals.take_again(cell, mine, NOW + 4 * SECOND)
    later = replace(mine, taken_at=NOW + 6 * SECOND)
    assert not renewals.take(cell, later, SECONDS), "it was taken anew"
    latest = take(cell, NOW + 10 * SECOND)
    assert not renewals.take_again(cell, soon, NOW + 11 * SECOND), "it was silent for too long"
    renewals.leave(cell, soon)
    assert not renewals.renewed(cell, soon, (NEW,), NOW)
    assert not renewals.refused(cell, soon, FAULT, NOW)
    assert not renewals.take(cell, replace(latest, taken_at=NOW + 11 * SECOND), SECONDS), "what it left is another's"
    renewals.leave(cell, latest)
    assert renewals.renewed(cell, take(cell, NOW + 11 * SECOND), (NEW,), NOW)
    assert len(reschedules.take(cell, ME, NOW, 5)) == 1, "it waits for nothing any more"


def test_what_was_taken_by_a_clock_that_was_set_back_is_taken_anew(cell: sa.Connection) -> None:
    failed(cell, "host_interfaces")
    renewals.note(cell)
    take(cell, NOW + 3600 * SECOND)
    take(cell, NOW)


def test_what_is_found_of_its_bindings_meanwhile_is_not_written(cell: sa.Connection) -> None:
    """By those who bound its ports to the host before."""
    failed(cell, "host_interfaces")
    renewals.note(cell)
    interfaces.note_bound(cell, {ONE: HOST})
    assert interfaces.doubt_bindings(cell, [ONE]) == 0
    interfaces.tell_bound(cell, {ONE: HOST}, {ONE: (OLD, NEW)}, interfaces.stored(cell, [ONE]), 8)
    assert renewals.are_noted(cell)


def test_which_ports_are_old_is_said_until_they_are_new(cell: sa.Connection) -> None:
    """A process that dies once the new ones are made would else have them deleted by the next one."""
    failed(cell, "host_interfaces")
    assert interfaces.told(cell, [ONE]) == {ONE: (OLD,)}
    renewals.note(cell)
    interfaces.tell(cell, {ONE: (NEW,)}, 6)
    left = interfaces.tell_unchanged(cell, {ONE: (NEW,)}, interfaces.stored(cell, [ONE]), 7)
    assert left == [ONE], "it is told later"
    [work] = renewals.waiting(cell, NOW, 5)
    assert work.instance.vifs == (OLD,)
    assert interfaces.told(cell, [ONE]) == {}, "no audit compares it meanwhile"
    assert renewals.renewed(cell, take(cell), (NEW,), NOW)
    assert interfaces.told(cell, [ONE]) == {ONE: (NEW,)}


@pytest.mark.parametrize("said", [(), ("power",)])
def test_a_host_that_does_not_say_so_keeps_nothing(cell: sa.Connection, said: tuple[str, ...]) -> None:
    failed(cell, *said)
    assert renewals.note(cell) == 0
    assert len(reschedules.take(cell, ME, NOW, 5)) == 1
    assert bound_to(cell) == HOST


def test_a_server_without_ports_waits_for_none(cell: sa.Connection) -> None:
    failed(cell, "host_interfaces", ports=False)
    assert renewals.note(cell) == 0
    assert len(reschedules.take(cell, ME, NOW, 5)) == 1


def test_an_unshelve_keeps_its_ports(cell: sa.Connection) -> None:
    """Its user knows their addresses."""
    failed(cell, "host_interfaces")
    cell.execute(rows.update().values(shelved=dump(Shelved(image_id="image", shelved_at=NOW))))
    assert renewals.note(cell) == 0


def test_a_build_that_ends_while_it_waits_has_its_ports_bound_to_no_host(cell: sa.Connection) -> None:
    failed(cell, "host_interfaces")
    renewals.note(cell)
    mine = take(cell)
    assert renewals.refused(cell, mine, FAULT, NOW)
    assert not renewals.are_noted(cell)
    assert not renewals.renewed(cell, mine, (NEW,), NOW)
    assert interfaces.misbound(cell, 5) == {ONE: ""}
    interfaces.note_bound(cell, {ONE: ""})
    assert bound_to(cell) == ""
