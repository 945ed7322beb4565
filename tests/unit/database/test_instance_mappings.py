"""Servers without a cell: taken by one, mapped once, deleted once; and what repeats change."""

from __future__ import annotations

import msgspec
import pytest
import sqlalchemy as sa

from skep.database import leases as lease_rows
from skep.database.api import build_requests, cells, moves, server_groups
from skep.database.api import instance_mappings as mappings
from skep.database.api.destinations import StagedMember
from skep.database.api.server_groups import ServerGroup
from skep.database.api.tables import leases, request_specs, requests, server_group_members
from skep.domain.cells import Cell
from skep.domain.clock import SECOND
from skep.domain.ids import CELL0, CellUuid, GroupUuid, Incarnation, InstanceUuid, ProjectId, UserId
from skep.domain.instances import Instance
from tests.support.rows import ME, context, request

OTHER = Incarnation("other")
CELL = CellUuid("cell-a")
NOW = 1000
ONE, TWO, THREE = (InstanceUuid(name) for name in ("one", "two", "three"))


@pytest.fixture(autouse=True)
def _cells(api: sa.Connection) -> None:
    for uuid in (CELL, CellUuid("cell-b")):
        assert cells.add(api, Cell(uuid=uuid, name=uuid), 1)


def store(api: sa.Connection, *uuids: InstanceUuid, name: str = "req-1", now: int = 1) -> None:
    build_requests.store(api, request(uuids, name=name, now=now))


def renamed(instance: Instance) -> Instance:
    return msgspec.structs.replace(instance, name="new name")


def placement(uuid: InstanceUuid, attempt: int = 1, revision: int = 0) -> StagedMember:
    return StagedMember(instance=uuid, attempt=attempt, revision=revision, node=None)


def mapping(api: sa.Connection, uuid: InstanceUuid) -> mappings.Mapping:
    found = mappings.get(api, uuid)
    assert found is not None
    return found


def test_a_stored_server_is_taken_with_all_that_placing_it_needs(api: sa.Connection) -> None:
    store(api, ONE, TWO)
    assert mappings.any_waiting(api, ME, NOW)
    taken = mappings.take(api, ME, NOW, 10)
    assert [(one.instance.uuid, one.attempt, one.revision, one.min_count, one.met) for one in taken] == [
        (ONE, 1, 0, 1, False),
        (TWO, 1, 0, 1, False),
    ]
    assert mapping(api, ONE).owner == ME


def test_members_of_a_request_are_taken_together_beyond_the_limit(api: sa.Connection) -> None:
    members = [InstanceUuid(f"m{number}") for number in range(7)]
    store(api, *members, name="req-big", now=1)
    store(api, ONE, name="req-small", now=2)
    lease_rows.renew(api, leases, ME, "super_conductor", NOW + 10)
    assert [one.instance.uuid for one in mappings.take(api, ME, NOW, 3)] == members
    assert [one.instance.uuid for one in mappings.take(api, OTHER, NOW, 3)] == [ONE]


def test_members_stand_together_however_close_the_requests_came(api: sa.Connection) -> None:
    store(api, InstanceUuid("a"), InstanceUuid("c"), name="req-1", now=5)
    store(api, InstanceUuid("b"), InstanceUuid("d"), name="req-2", now=5)
    taken = mappings.take(api, ME, NOW, 10)
    assert [one.context.request_id for one in taken] == ["req-1", "req-1", "req-2", "req-2"]


def test_what_a_living_process_owns_is_not_taken(api: sa.Connection) -> None:
    store(api, ONE)
    lease_rows.renew(api, leases, ME, "super_conductor", NOW + 10)
    mappings.take(api, ME, NOW, 10)
    assert not mappings.any_waiting(api, OTHER, NOW)
    assert mappings.take(api, OTHER, NOW, 10) == []
    assert mapping(api, ONE).owner == ME


def test_a_lapsed_lease_lets_others_take_and_raises_the_attempt(api: sa.Connection) -> None:
    store(api, ONE)
    lease_rows.renew(api, leases, ME, "super_conductor", NOW + 10)
    mappings.take(api, ME, NOW, 10)
    assert mappings.take(api, OTHER, NOW + 9, 10) == []
    [taken] = mappings.take(api, OTHER, NOW + 10, 10)
    assert taken.attempt == 2
    assert mapping(api, ONE).owner == OTHER
    assert mappings.map_to_cell(api, CELL, [placement(ONE, attempt=1)]) == set()
    assert mappings.map_to_cell(api, CELL, [placement(ONE, attempt=2)]) == {ONE}


def test_a_dropped_lease_lets_others_take_at_once(api: sa.Connection) -> None:
    store(api, ONE)
    lease_rows.renew(api, leases, ME, "super_conductor", NOW + 10)
    mappings.take(api, ME, NOW, 10)
    lease_rows.drop(api, leases, ME)
    assert len(mappings.take(api, OTHER, NOW, 10)) == 1


def test_leases_that_lapsed_long_ago_are_removed(api: sa.Connection) -> None:
    lease_rows.renew(api, leases, ME, "super_conductor", 10)
    lease_rows.renew(api, leases, OTHER, "super_conductor", 20)
    assert lease_rows.remove_lapsed(api, leases, 15) == 1
    assert api.scalars(sa.select(leases.c.owner)).all() == [OTHER]


def test_renewing_moves_the_end_of_the_one_lease(api: sa.Connection) -> None:
    lease_rows.renew(api, leases, ME, "super_conductor", 10)
    lease_rows.renew(api, leases, ME, "super_conductor", 20)
    assert api.execute(sa.select(leases.c.owner, leases.c.lapses_at)).all() == [(ME, 20)]


def test_giving_back_frees_only_what_i_own_and_until_its_time(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    mappings.give_back(api, OTHER, [(ONE, 1)], 0)
    mappings.give_back(api, ME, [(ONE, 2)], 0)
    assert mapping(api, ONE).owner == ME
    mappings.give_back(api, ME, [(ONE, 1)], NOW + 5)
    assert mapping(api, ONE).owner is None
    assert mappings.take(api, ME, NOW + 4, 10) == []
    assert len(mappings.take(api, OTHER, NOW + 5, 10)) == 1


def test_a_mapped_server_is_given_back_by_nobody(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    mappings.map_to_cell(api, CELL, [placement(ONE)])
    mappings.give_back(api, ME, [(ONE, 1)], 0)
    assert mappings.take(api, ME, NOW, 10) == []
    assert mapping(api, ONE).cell == CELL


def test_mapping_moves_a_server_out_of_its_build_request_in_one_piece(api: sa.Connection) -> None:
    store(api, ONE, TWO)
    mappings.take(api, ME, NOW, 10)
    assert mappings.map_to_cell(api, CELL, [placement(ONE), placement(TWO)]) == {ONE, TWO}
    assert build_requests.count(api) == 0
    assert [(mapping(api, uuid).cell, mapping(api, uuid).owner) for uuid in (ONE, TWO)] == [(CELL, None)] * 2
    assert build_requests.spec_of(api, ONE) is not None, "the wish is kept for later moves"


@pytest.mark.parametrize("wrong", [placement(ONE, attempt=0), placement(ONE, attempt=2), placement(ONE, revision=1)])
def test_a_wrong_attempt_or_revision_maps_nothing(api: sa.Connection, wrong: StagedMember) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    assert mappings.map_to_cell(api, CELL, [wrong]) == set()
    assert mapping(api, ONE).cell is None
    assert build_requests.get(api, ONE) is not None


def test_a_change_by_the_user_meanwhile_is_not_lost(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    build_requests.change(api, ONE, renamed, NOW)
    assert mappings.map_to_cell(api, CELL, [placement(ONE)]) == set()
    [again] = mappings.take(api, ME, NOW, 10)
    assert (again.instance.name, again.attempt, again.revision) == ("new name", 2, 1)
    assert mappings.map_to_cell(api, CELL, [placement(ONE, 2, 1)]) == {ONE}


def test_mapping_twice_is_once(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    assert mappings.map_to_cell(api, CELL, [placement(ONE)]) == {ONE}
    assert mappings.map_to_cell(api, CellUuid("cell-b"), [placement(ONE)]) == set()
    assert mapping(api, ONE).cell == CELL


def test_one_member_that_cannot_be_mapped_does_not_hold_the_others(api: sa.Connection) -> None:
    store(api, ONE, TWO, THREE)
    mappings.take(api, ME, NOW, 10)
    mappings.delete_unplaced(api, TWO, NOW)
    assert mappings.map_to_cell(api, CELL, [placement(one) for one in (ONE, TWO, THREE)]) == {ONE, THREE}


def test_a_delete_before_the_mapping_wins_and_one_after_it_becomes_an_intent(api: sa.Connection) -> None:
    """Exactly one of build request and cell row says what is true, whichever comes first (I2, I3)."""
    store(api, ONE, TWO)
    mappings.take(api, ME, NOW, 10)
    assert mappings.delete_unplaced(api, ONE, NOW) is True
    assert mappings.map_to_cell(api, CELL, [placement(ONE)]) == set()
    assert mappings.map_to_cell(api, CELL, [placement(TWO)]) == {TWO}
    assert mappings.delete_unplaced(api, TWO, NOW) is False
    first, second = mapping(api, ONE), mapping(api, TWO)
    assert (first.cell, first.deleted_at, first.attempt) == (None, NOW, 2)
    assert (second.cell, second.deleted_at) == (CELL, None)
    assert build_requests.get(api, ONE) is None
    assert build_requests.spec_of(api, ONE) is None
    assert mappings.take(api, ME, NOW, 10) == []


def test_a_repeated_delete_without_a_cell_changes_nothing(api: sa.Connection) -> None:
    store(api, ONE)
    assert mappings.delete_unplaced(api, ONE, NOW) is True
    assert mappings.delete_unplaced(api, ONE, NOW + 1) is False
    assert (mapping(api, ONE).attempt, mapping(api, ONE).deleted_at) == (1, NOW)


def intents(api: sa.Connection) -> list[tuple[str, bool]]:
    due = mappings.deletes_due(api, NOW + 99, NOW, 10)
    return [(intent.context.request_id, intent.unless_locked) for intent in due]


def mapped(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    mappings.map_to_cell(api, CELL, [placement(ONE)])


def test_a_delete_that_no_lock_refuses_takes_the_place_of_one_that_a_lock_may_refuse(api: sa.Connection) -> None:
    mapped(api)
    mappings.intend_delete(api, ONE, context("req-owner"), NOW, unless_locked=True)
    assert intents(api) == [("req-owner", True)]
    mappings.intend_delete(api, ONE, context("req-again"), NOW, unless_locked=True)
    assert intents(api) == [("req-owner", True)]
    mappings.intend_delete(api, ONE, context("req-admin"), NOW)
    assert intents(api) == [("req-admin", False)]
    mappings.intend_delete(api, ONE, context("req-last"), NOW, unless_locked=True)
    mappings.withdraw_deletes(api, [ONE])
    assert intents(api) == [("req-admin", False)]


def test_a_delete_that_a_lock_refused_is_withdrawn(api: sa.Connection) -> None:
    mapped(api)
    mappings.intend_delete(api, ONE, context("req-owner"), NOW, unless_locked=True)
    for _ in range(2):
        mappings.withdraw_deletes(api, [ONE])
        assert intents(api) == []
        assert mapping(api, ONE).delete_intent_at is None
    assert mappings.deleting(api) == set()
    mappings.intend_delete(api, ONE, context("req-later"), NOW + 5, unless_locked=True)
    assert intents(api) == [("req-later", True)]


def test_an_intent_comes_again_until_the_server_is_gone(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    mappings.map_to_cell(api, CELL, [placement(ONE)])
    mappings.intend_delete(api, ONE, context("req-delete"), NOW)
    mappings.intend_delete(api, ONE, context("req-again"), NOW + 1)
    [due] = mappings.deletes_due(api, NOW, NOW + 2, 10)
    assert (due.instance, due.cell, due.context.request_id) == (ONE, CELL, "req-delete")
    assert mappings.deletes_due(api, NOW + 1, NOW + 3, 10) == []
    assert mappings.deletes_due(api, NOW + 2, NOW + 4, 10, without=(CELL,)) == []
    assert len(mappings.deletes_due(api, NOW + 2, NOW + 4, 10)) == 1
    assert mappings.deleting(api) == {ONE}
    mappings.close(api, [ONE], NOW + 5)
    mappings.close(api, [ONE], NOW + 9)
    assert mappings.deletes_due(api, NOW + 99, NOW + 100, 10) == []
    assert mapping(api, ONE).deleted_at == NOW + 5
    assert mappings.deleting(api) == set()


def test_a_server_that_is_gone_is_owned_by_nobody_though_its_mover_died(api: sa.Connection) -> None:
    store(api, ONE)
    mappings.take(api, ME, NOW, 10)
    assert mappings.map_to_cell(api, CELL, [placement(ONE)]) == {ONE}
    assert moves.take(api, OTHER, ONE, CELL, 1, NOW) == 2
    assert mapping(api, ONE).owner == OTHER
    mappings.close(api, [ONE], NOW)
    assert mapping(api, ONE).owner is None
    moves.give_back(api, OTHER, ONE)
    assert moves.take(api, OTHER, ONE, CELL, 2, NOW) is None


def test_the_cells_of_a_group_are_those_that_hold_others(api: sa.Connection) -> None:
    group = GroupUuid("group")
    new = ServerGroup(
        uuid=group, name="g", policy="affinity", project_id=ProjectId("p"), user_id=UserId("u"), created_at=1
    )
    server_groups.add(api, new, most=-1)
    for number, (uuid, cell) in enumerate(((ONE, CELL), (TWO, CellUuid("cell-b")), (THREE, CELL0))):
        store(api, uuid, name=f"req-{number}")
        [taken] = mappings.take(api, ME, NOW, 10)
        mappings.map_to_cell(api, cell, [placement(uuid, taken.attempt)])
    four = InstanceUuid("four")
    store(api, four, name="req-4")
    for uuid in (ONE, TWO, THREE, four):
        api.execute(server_group_members.insert().values(group_uuid=group, instance=uuid))
    assert server_groups.cells_of(api, group) == (CELL, "cell-b")
    assert server_groups.cells_of(api, group, without=[ONE, four]) == ("cell-b",)
    mappings.close(api, [TWO], NOW)
    assert server_groups.cells_of(api, group) == (CELL,)


def test_a_request_is_met_once_and_its_members_stand_alone(api: sa.Connection) -> None:
    store(api, ONE, TWO)
    mappings.mark_met(api, [context().request_id])
    assert [one.met for one in mappings.take(api, ME, NOW, 10)] == [True, True]


def test_purging_removes_old_mappings_in_batches_and_a_request_with_its_last_member(api: sa.Connection) -> None:
    store(api, ONE, TWO, name="req-1")
    store(api, THREE, name="req-2")
    for uuid, at in ((ONE, 10), (TWO, 20), (THREE, 90)):
        mappings.delete_unplaced(api, uuid, at)
    assert mappings.purge(api, 50, 1) == 1
    assert set(api.scalars(sa.select(requests.c.request_id))) == {"req-1", "req-2"}
    assert mappings.purge(api, 50, 5) == 1
    assert mappings.purge(api, 50, 5) == 0
    assert set(api.scalars(sa.select(requests.c.request_id))) == {"req-2"}
    assert mappings.get(api, THREE) is not None
    assert api.execute(sa.select(request_specs)).all() == []


def test_mappings_of_a_cell_are_listed_newest_first(api: sa.Connection) -> None:
    for number, uuid in enumerate((ONE, TWO, THREE)):
        store(api, uuid, name=f"req-{number}", now=number)
    mappings.take(api, ME, NOW, 10)
    mappings.map_to_cell(api, CELL, [placement(ONE), placement(TWO)])
    mappings.map_to_cell(api, CELL0, [placement(THREE)])
    assert [one.instance for one in mappings.in_cell(api, CELL)] == [TWO, ONE]
    assert [one.instance for one in mappings.in_cell(api, CELL, limit=1)] == [TWO]
    assert [one.instance for one in mappings.in_cell(api, CELL, after=(1, TWO))] == [ONE]


def test_how_long_nobody_could_decide_is_counted_over_the_lives_of_conductors(api: sa.Connection) -> None:
    store(api, ONE)
    at, waited = NOW, 0
    for life in range(4):
        owner = Incarnation(f"life-{life}")
        [taken] = mappings.take(api, owner, at, 10)
        assert taken.waited == waited
        mappings.give_back(api, owner, [(ONE, taken.attempt)], at + SECOND, at)
        at, waited = at + 3 * SECOND, waited + SECOND + (2 * SECOND if life else 0)


def test_a_time_in_which_nobody_asked_is_not_waited(api: sa.Connection) -> None:
    store(api, ONE)
    [taken] = mappings.take(api, ME, NOW, 10)
    mappings.give_back(api, ME, [(ONE, taken.attempt)], NOW + SECOND, NOW)
    later = NOW + 3600 * SECOND
    [taken] = mappings.take(api, OTHER, later, 10)
    mappings.give_back(api, OTHER, [(ONE, taken.attempt)], later + SECOND, later)
    [taken] = mappings.take(api, ME, later + SECOND, 10)
    assert taken.waited == 2 * SECOND + mappings.LONGEST_GAP
