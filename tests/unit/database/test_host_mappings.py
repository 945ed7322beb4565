"""Nodes are mapped many at once: each keeps its name for itself, and what the operator wants stays."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.api import host_mappings
from skep.domain.cells import HostMapping
from skep.domain.errors import Conflict
from skep.domain.ids import CellUuid, NodeUuid

ONE, OTHER = CellUuid("one"), CellUuid("other")


def mapping(number: int, *, node: str | None = None, cell: CellUuid = ONE) -> HostMapping:
    return HostMapping(node=NodeUuid(node or f"n{number}"), host=f"h{number}", cell=cell, created_at=number)


def test_many_are_mapped_and_one_whose_name_is_taken_is_not(api: sa.Connection) -> None:
    host_mappings.add(api, mapping(1))
    refused = host_mappings.add_all(api, [mapping(0), mapping(1, node="n9"), mapping(2)])
    assert refused == {"n9": "host h1 is mapped to node n1 already, not to n9"}
    assert [one.node for one in host_mappings.every(api)] == ["n0", "n1", "n2"]
    with pytest.raises(Conflict, match="h1 is mapped to node n1"):
        host_mappings.add(api, mapping(1, node="n9"))


def test_a_repeat_changes_the_cell_and_keeps_what_the_operator_wants(api: sa.Connection) -> None:
    host_mappings.add_all(api, [mapping(1), mapping(2)])
    host_mappings.want(api, NodeUuid("n1"), 5, disabled=True, disabled_reason="disk")
    assert host_mappings.add_all(api, [mapping(1, cell=OTHER), mapping(2)]) == {}
    first, second = host_mappings.every(api)
    assert (first.cell, first.disabled, first.disabled_reason) == (OTHER, True, "disk")
    assert (second.cell, second.disabled) == (ONE, False)


def test_nothing_to_map_is_no_statement(api: sa.Connection) -> None:
    assert host_mappings.add_all(api, []) == {}
