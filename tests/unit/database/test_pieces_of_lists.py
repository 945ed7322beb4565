"""A list that is read piece by piece, each at a moment of its own, has every row that was there all the time."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import builds, listing, moves
from skep.database.cell.listing import ListQuery, list_all, next_names, next_servers
from skep.database.cell.tables import instances
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State
from skep.domain.patterns import Pattern
from tests.support.rows import FAULT, staged

SETTLED = tuple(InstanceUuid(f"server-{number}") for number in range(5))
FROZEN = InstanceUuid("server-2-frozen")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "CHUNK", 2)


def make(connection: sa.Connection) -> None:
    """Make servers that were all created at once, so that their ids decide their order, and one that is staged."""
    builds.stage(connection, [staged(one) for one in SETTLED], 10)
    builds.settle(connection, [(one, 1) for one in SETTLED], 10)
    builds.stage(connection, [staged(FROZEN)], 10)


def pieces(connection: sa.Connection, query: ListQuery) -> list[list[InstanceUuid]]:
    found = []
    rest: ListQuery | None = query
    while rest is not None:
        piece = next_servers(connection, rest)
        found.append([one.uuid for one in piece.found])
        rest = piece.rest
    return found


def test_a_piece_has_its_own_rows_and_the_frozen_ones_behind_its_beginning(cell: sa.Connection) -> None:
    make(cell)
    first, second, third, fourth, fifth = SETTLED
    assert pieces(cell, ListQuery()) == [[FROZEN, fifth, fourth], [FROZEN, third, second], [first]]


def test_pieces_end_with_as_many_as_are_wanted(cell: sa.Connection) -> None:
    make(cell)
    odd = cell.execute(instances.update().where(instances.c.uuid.in_(SETTLED[1::2])).values(name="odd"))
    assert odd.rowcount == 2
    query = ListQuery(name=Pattern("odd"), limit=2)
    assert pieces(cell, query) == [[SETTLED[3]], [SETTLED[1]]]
    assert pieces(cell, ListQuery(name=Pattern("odd"), limit=1)) == [[SETTLED[3]]]
    assert [one.uuid for one in list_all(cell, query)] == [SETTLED[3], SETTLED[1]]
    assert next_names(cell, query) == next_servers(cell, query)


@pytest.mark.parametrize("limit", [None, 3])
def test_a_list_at_one_moment_has_each_row_once(cell: sa.Connection, limit: int | None) -> None:
    make(cell)
    found = [one.uuid for one in list_all(cell, ListQuery(limit=limit))]
    assert found == [FROZEN, *SETTLED[::-1][:limit]]


def test_a_row_that_is_frozen_or_settled_between_two_pieces_is_in_the_later_one(cell: sa.Connection) -> None:
    make(cell)
    rest = next_servers(cell, ListQuery()).rest
    assert rest is not None
    assert builds.fail(cell, SETTLED[0], 1, "host1", None, 11)
    assert moves.hand_back(cell, SETTLED[0], 1, FAULT, 11)
    assert moves.freeze(cell, SETTLED[0], 1, 2, 11)
    builds.settle(cell, [(FROZEN, 1)], 11)
    later = next_servers(cell, rest).found
    assert {one.uuid: one.state for one in later} == {
        SETTLED[0]: State.LEAVING,
        SETTLED[2]: State.SCHEDULED,
        FROZEN: State.SCHEDULED,
    }
