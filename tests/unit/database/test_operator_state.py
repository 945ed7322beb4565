"""What a change is about is told, all of it and nothing else."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.contracts.databases import new_in_memory
from skep.database.api import aggregates, host_mappings, operator_state
from skep.database.api.operator_state import PAGE_MEMBERS, Concerned
from skep.domain.cells import HostMapping
from skep.domain.ids import CellUuid, NodeUuid
from skep.messages.to_scheduler import aggregate_name

CELL = CellUuid("c")


def api() -> sa.Connection:
    connection = new_in_memory("api").connect()
    for number in range(3):
        mapping = HostMapping(node=NodeUuid(f"n{number}"), host=f"h{number}", cell=CELL, created_at=number)
        host_mappings.add(connection, mapping)
    return connection


def told(connection: sa.Connection, **changed: Any) -> list[Any]:
    return operator_state.concerning(connection, Concerned(**changed))


def test_a_host_is_told_by_its_name_there_or_gone() -> None:
    connection = api()
    there, gone = told(connection, nodes=(NodeUuid("n1"), NodeUuid("n9")))
    assert [wish.host for wish in there.hosts] == ["h1"]
    assert there.part.names == ("n1",)
    assert (gone.hosts, gone.part.names) == ((), ("n9",))
    assert (there.aggregates, there.cells) == ((), ())


def test_an_aggregate_is_told_with_all_its_pages_there_or_gone() -> None:
    connection = api()
    new = aggregates.add(connection, uuid="u", name="large", metadata={}, now=1)
    assert new is not None
    for number in range(PAGE_MEMBERS + 1):
        aggregates.add_host(connection, new.id, f"h{number:06d}")
    first, second = told(connection, aggregates=(new.id,))
    assert [wish.page for message in (first, second) for wish in message.aggregates] == [0, 1]
    assert first.part.after < aggregate_name(new.id, 0) <= first.part.until == second.part.after
    assert second.part.after < aggregate_name(new.id, 1) < aggregate_name(new.id, 5) <= second.part.until
    assert second.part.until < aggregate_name(new.id + 1, 0)
    aggregates.remove(connection, new.id)
    [gone] = told(connection, aggregates=(new.id,))
    assert gone.aggregates == ()
    assert gone.part.after < aggregate_name(new.id, 0) < aggregate_name(new.id, 1) <= gone.part.until


def test_cells_are_told_together() -> None:
    connection = api()
    [message] = told(connection, cells=True)
    assert message.part.kind == "cells"
    assert (message.hosts, message.aggregates) == ((), ())
