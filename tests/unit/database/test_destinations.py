"""Cells and hosts that are being deleted or disabled take nothing more, whatever was decided before."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.api import cells, destinations, host_mappings, moves, retired_hosts
from skep.database.api import instance_mappings as mappings
from skep.database.api.build_requests import store
from skep.database.api.destinations import StagedMember
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, attempts, builds, reschedules, residents
from skep.domain.cells import Cell, HostMapping
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import CELL0, CellUuid, Incarnation, NodeUuid
from skep.domain.instances import State
from tests.support.rows import HOST, ME, ONE, bring_to, placed, request, staged, state_of

CELL, OTHER = CellUuid("cell-a"), CellUuid("cell-b")
NODE, ELSEWHERE = NodeUuid("node-1"), NodeUuid("node-2")
NOW = 100


def placement(node: NodeUuid | None = NODE, *, although_disabled: bool = False) -> StagedMember:
    return StagedMember(instance=ONE, attempt=1, revision=0, node=node, although_disabled=although_disabled)


@pytest.fixture(autouse=True)
def _rows(api: sa.Connection) -> None:
    for uuid in (CELL, OTHER):
        assert cells.add(api, Cell(uuid=uuid, name=uuid), 1)
    host_mappings.add(api, HostMapping(node=NODE, host="h1", cell=CELL))
    host_mappings.add(api, HostMapping(node=ELSEWHERE, host="h2", cell=OTHER))
    store(api, request([ONE]))
    assert mappings.take(api, ME, NOW, 10)


def test_a_server_is_mapped_where_cell_and_host_take_it(api: sa.Connection) -> None:
    assert mappings.map_to_cell(api, CELL, [placement()]) == {ONE}


@pytest.mark.parametrize(
    "shut",
    [
        pytest.param(lambda c: cells.begin_deletion(c, CELL, NOW), id="the cell is being deleted"),
        pytest.param(lambda c: cells.set_disabled(c, CELL, True), id="the cell is disabled"),
        pytest.param(lambda c: cells.remove(c, CELL), id="the cell is gone"),
        pytest.param(lambda c: host_mappings.begin_deletion(c, NODE, NOW), id="the host is being deleted"),
        pytest.param(lambda c: host_mappings.remove(c, NODE), id="the host is gone"),
        pytest.param(lambda c: host_mappings.want(c, NODE, NOW, disabled=True), id="the host is disabled"),
        pytest.param(lambda c: host_mappings.want(c, NODE, NOW, forced_down=True), id="the host is forced down"),
        pytest.param(
            lambda c: host_mappings.add(c, HostMapping(node=NODE, host="h1", cell=OTHER)), id="the host changed cells"
        ),
    ],
)
def test_nothing_is_mapped_or_moved_where_nothing_may_go(api: sa.Connection, shut: object) -> None:
    assert callable(shut)
    shut(api)
    assert mappings.map_to_cell(api, CELL, [placement()]) == set()
    assert mappings.map_to_cell(api, OTHER, [placement(ELSEWHERE)]) == {ONE}, "the build request is still there"
    attempt = moves.take(api, ME, ONE, OTHER, 1, NOW)
    assert attempt is not None
    again = StagedMember(instance=ONE, attempt=attempt, revision=0, node=NODE)
    assert not moves.move(api, again, OTHER, CELL)


def test_a_disabled_host_that_an_administrator_named_takes_servers(api: sa.Connection) -> None:
    host_mappings.want(api, NODE, NOW, disabled=True)
    assert mappings.map_to_cell(api, CELL, [placement(although_disabled=True)]) == {ONE}


def test_cell0_takes_what_has_no_host(api: sa.Connection) -> None:
    assert mappings.map_to_cell(api, CELL0, [placement(None)]) == {ONE}


def test_a_cell_goes_only_while_it_is_being_deleted_and_empty(api: sa.Connection) -> None:
    assert cells.remove_deleted(api, CELL) is None
    cells.begin_deletion(api, CELL, NOW)
    cells.begin_deletion(api, CELL, NOW + 1)
    assert cells.deleting(api) == {CELL: NOW}
    cells.set_disabled(api, CELL, False)
    assert cells.deleting(api) == {}
    assert mappings.map_to_cell(api, CELL, [placement()]) == {ONE}
    cells.begin_deletion(api, CELL, NOW)
    assert cells.remove_deleted(api, CELL) is None, "it holds a server"
    mappings.close(api, [ONE], NOW)
    assert cells.remove_deleted(api, CELL) == ["h1"]
    assert not destinations.cell_takes_hosts(api, CELL)
    assert host_mappings.get(api, NODE) is None


def register(cell: sa.Connection, host: str = HOST, process: str = "p") -> None:
    agents.register(cell, AgentIdentity(node=node(host), host=host, process=Incarnation(process)), NOW)


def node(host: str) -> NodeUuid:
    return NodeUuid(f"node-{host}")


@pytest.mark.parametrize("gone", [False, True])
def test_nothing_is_staged_or_rescheduled_to_a_host_that_is_deleted(cell: sa.Connection, gone: bool) -> None:
    register(cell)
    agents.begin_deletion(cell, node(HOST), NOW)
    if gone:
        assert agents.retire(cell, node(HOST), "p")
    assert builds.stage(cell, [staged()], NOW) == set()
    assert state_of(cell) is None
    assert builds.stage(cell, [staged(host="host2")], NOW) == {ONE}
    builds.settle(cell, [(ONE, 1)], NOW)
    assert builds.fail(cell, ONE, 1, "host2", None, NOW)
    [work] = reschedules.take(cell, ME, NOW, 10)
    attempt = work.instance.attempt
    assert not reschedules.rescheduled(cell, ONE, attempt, placed(HOST), NOW)
    assert state_of(cell) is State.RESCHEDULING
    assert reschedules.rescheduled(cell, ONE, attempt, placed("host3"), NOW)


def test_a_host_that_registers_after_it_was_deleted_takes_builds(cell: sa.Connection) -> None:
    register(cell)
    agents.begin_deletion(cell, node(HOST), NOW)
    register(cell, process="younger")
    assert agents.closed(cell, [node(HOST)]) == {node(HOST)}, "its deletion goes on"
    assert not agents.retire(cell, node(HOST), "p")
    assert agents.closed(cell, [node(HOST)]) == set()


def test_a_deletion_that_was_taken_back_is_not_begun_anew(api: sa.Connection, cell: sa.Connection) -> None:
    first = host_mappings.begin_deletion(api, NODE, NOW)
    assert first is not None
    host_mappings.begin_deletion(api, NODE, NOW + 1)
    host_mappings.take_deletion_back(api, NODE, NOW)
    assert [one.deleting_at for one in host_mappings.deleting(api)] == [NOW + 1]
    host_mappings.want(api, NODE, NOW, disabled=False)
    assert host_mappings.deleting(api) == []
    register(cell)
    agents.begin_deletion(cell, node(HOST), NOW + 1)
    agents.take_deletion_back(cell, node(HOST), NOW)
    assert [agent.deleting_at for agent in agents.deleting(cell)] == [NOW + 1]


def test_a_retired_host_leaves_its_mapping(api: sa.Connection) -> None:
    retired_hosts.add(api, RetiredHost(node=NODE, host="h1", cell=CELL, process="p", retired_at=NOW))
    assert mappings.map_to_cell(api, CELL, [placement()]) == set()


@pytest.mark.parametrize(
    ("state", "servers", "held", "is_staged"),
    [
        (State.STAGED, 0, 0, True),
        (State.SCHEDULED, 1, 0, False),
        (State.ACTIVE, 1, 0, False),
        (State.RESCHEDULING, 1, 0, False),
        (State.MOVED, 0, 1, False),
        (State.DELETED, 0, 0, False),
    ],
)
def test_what_a_host_still_has(cell: sa.Connection, state: State, servers: int, held: int, is_staged: bool) -> None:
    bring_to(cell, state)
    found = residents.on_node(cell, node(HOST))
    assert (found.servers, found.held, found.staged) == (servers, held, (ONE,) if is_staged else ())
    left = residents.in_cell(cell)
    assert left.is_empty == (state is State.DELETED)
    assert left.staged == int(is_staged)
    attempts.close(cell, ONE, HOST, 9, NOW)
    assert residents.on_node(cell, node(HOST)).held == 0
