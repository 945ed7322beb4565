"""What a cell gives for a list of names: frozen rows as a whole, the others by their names, in one statement."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa

from skep.database.cell import builds
from skep.database.cell.listing import ListQuery, NamedServer, list_all, next_names
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, State
from tests.support.rows import ONE, PROJECT, bring_to, staged
from tests.unit.database.test_query_plans import statements

TWO = InstanceUuid("two")
QUERIES = {
    "a page": ListQuery(limit=5),
    "of a project": ListQuery(project_id=PROJECT, limit=5),
    "with a state": ListQuery(statuses=frozenset({"ACTIVE"}), limit=5),
    "on a host": ListQuery(host="host1", locked=False, limit=5),
}


def names(found: Sequence[Instance | NamedServer]) -> dict[str, tuple[str, int]]:
    return {one.uuid: (one.name, one.created_at) for one in found}


@pytest.mark.parametrize("name", QUERIES)
def test_one_statement_finds_them_where_none_is_frozen(cell: sa.Connection, name: str) -> None:
    bring_to(cell, State.ACTIVE)
    with statements(cell) as seen:
        found = next_names(cell, QUERIES[name]).found
    assert len(seen) == 1
    assert found == [NamedServer(ONE, "server", 1)]


@pytest.mark.parametrize("name", QUERIES)
def test_frozen_rows_are_read_as_a_whole(cell: sa.Connection, name: str) -> None:
    bring_to(cell, State.ACTIVE)
    builds.stage(cell, [staged(TWO)], 10)
    with statements(cell) as seen:
        found = next_names(cell, QUERIES[name]).found
    assert len(seen) == 2
    assert [one for one in found if isinstance(one, Instance)] == [
        one for one in list_all(cell, QUERIES[name]) if one.state is State.STAGED
    ]
    assert names(found) == names(list_all(cell, QUERIES[name]))
