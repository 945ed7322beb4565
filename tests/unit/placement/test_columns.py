"""Columns: bits that are used again, limits, the log of changes, the names of rows, reports by the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skep.domain.hosts import HostUsage
from skep.domain.ids import CellUuid, NodeUuid
from skep.domain.resources import Inventory
from skep.placement.hosts import bounds
from skep.placement.hosts.changelog import ChangeLog
from skep.placement.hosts.columns import BitSets
from skep.placement.hosts.names import RowNames
from skep.placement.hosts.table import HostTable, Intake

CELL = CellUuid("cell-1")
EVERY = slice(0, 4)


def test_the_bit_of_a_name_that_nobody_has_goes_to_the_next_new_one() -> None:
    bits = BitSets(4, most=3)
    bits.set_row(0, ("a", "b"))
    bits.set_row(1, ("a", "c"))
    bits.set_row(0, ("a",))
    assert bits.names == 2
    bits.set_row(2, ("d",))
    assert bits.names == 3
    for name, rows in {"a": [0, 1], "b": [], "c": [1], "d": [2]}.items():
        assert np.flatnonzero(bits.having(name, EVERY)).tolist() == rows


def test_names_beyond_the_limit_are_refused_and_nothing_changes() -> None:
    bits = BitSets(4, most=2)
    bits.set_row(0, ("a", "b"))
    assert bits.new_names(("a", "c", "c")) == 1
    with pytest.raises(ValueError, match="more than 2 names"):
        bits.set_row(1, ("c",))
    assert not bits.having("c", EVERY).any()
    assert np.flatnonzero(bits.having("a", EVERY)).tolist() == [0]


def test_many_names_come_and_go_in_few_columns() -> None:
    bits = BitSets(4)
    for number in range(1000):
        bits.set_row(0, (number, number + 1))
    assert bits.names == 2
    assert len(bits._words) == 1


def test_the_log_tells_each_row_once_and_facts_apart_from_amounts() -> None:
    log = ChangeLog()
    log.facts(1)
    start = log.position
    for row in (5, 3, 5):
        log.amounts(row)
    log.all_facts(np.array([3, 9]))
    changed = log.since(start, 100)
    assert changed is not None
    assert changed.facts.tolist() == [3, 9]
    assert changed.amounts.tolist() == [3, 5]
    assert log.since(start, 4) is None, "too many"
    assert log.since(log.position + 1, 100) is None


@pytest.mark.parametrize("chunk", [1, 7, 1000, 1024])
def test_the_log_is_right_when_it_begins_again_at_its_start(chunk: int) -> None:
    log = ChangeLog()
    for first in range(0, 5000, chunk):
        start = log.position
        if chunk == 1:
            log.amounts(first)
        else:
            log.all_amounts(np.arange(first, first + chunk))
        changed = log.since(start, 2000)
        assert changed is not None
        assert changed.amounts.tolist() == list(range(first, first + chunk))
    assert log.since(0, 10_000) is None, "overwritten"
    log.all_amounts(np.arange(1025))
    assert log.since(log.position - 10, 100) is None, "more at once than the log holds"


def test_rows_are_found_by_their_names() -> None:
    names = RowNames()
    for _ in range(4):
        names.append()
    for row in (0, 1, 2):
        names.assign(row, "same")
    names.assign(3, "other")
    names.assign(1, "")
    assert names.rows("same") == {0, 2}
    names.assign(0, "other")
    assert names.rows("same") == {2}
    names.assign(2, "x")
    assert names.rows("same") == set()
    assert names.rows("other") == {0, 3}
    assert names.rows("") == set(), "nobody is found by no name"
    assert names.names == ["other", "", "x", "other"]


def test_a_report_that_cannot_be_true_touches_no_other(usage: Any) -> None:
    table = HostTable()
    intake = Intake(table)
    intake.report(NodeUuid("a"), CELL, usage("a", used={"VCPU": 1}))
    for change in (
        {"used": {"VCPU": 2**70}},
        {"used": {"VCPU": -(2**70)}},
        {"failed_builds": 2**80},
        {"inventory": {"VCPU": Inventory(total=2**60)}},
        {"inventory": {"VCPU": Inventory(total=1, allocation_ratio=float("inf"))}},
        {"inventory": {"VCPU": Inventory(total=1, allocation_ratio=float("nan"))}},
    ):
        with pytest.raises((ValueError, OverflowError)):
            intake.report(NodeUuid("b"), CELL, usage("b", **change))
    with pytest.raises(OverflowError):
        intake.used(NodeUuid("a"), usage("a", used={"VCPU": 2**70}))
    intake.report(NodeUuid("c"), CELL, usage("c", used={"VCPU": 3}))
    intake.flush()
    assert table.nodes == ["a", "c"]
    assert table.resources["VCPU"].used[:2].tolist() == [1, 3]
    assert table.reported[:2].all()


def test_a_host_that_is_told_twice_in_one_batch_is_as_it_was_told_last(usage: Any) -> None:
    table = HostTable()
    intake = Intake(table)
    node = NodeUuid("a")
    intake.report(node, CELL, usage("a", used={"VCPU": 1}, vcpus=2))
    intake.used(node, usage("a", used={"VCPU": 2}))
    intake.report(node, CELL, usage("a", used={"VCPU": 3}, vcpus=8))
    intake.flush()
    amounts = table.resources["VCPU"]
    assert (amounts.used[0], amounts.capacity[0], amounts.free[0]) == (3, 32, 29)
    intake.report(node, CELL, usage("a"))
    intake.drop(node)
    intake.flush()
    assert not table.reported[0]
    assert amounts.capacity[0] == 0


def test_a_class_that_a_host_has_no_longer_is_gone_from_its_row(usage: Any) -> None:
    table = HostTable()
    table.set_report(
        NodeUuid("a"), CELL, usage("a", inventory={"VCPU": Inventory(total=4), "VGPU": Inventory(total=2)})
    )
    table.set_report(NodeUuid("a"), CELL, usage("a", inventory={"VCPU": Inventory(total=4)}))
    assert table.resources["VGPU"].capacity[0] == 0
    assert table.resources["VCPU"].capacity[0] == 4


def test_there_is_room_for_so_many_traits_and_classes_only(usage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_TRAITS", 2)
    monkeypatch.setattr(bounds, "MOST_CLASSES", 3)
    table = HostTable()
    table.set_report(NodeUuid("a"), CELL, usage("a", traits=("T1", "T2")))
    assert bounds.no_room_for(table, usage("b", traits=("T2",))) is None
    with pytest.raises(ValueError, match=r"usage\.traits: 1 that no other host has"):
        table.set_report(NodeUuid("b"), CELL, usage("b", traits=("T3",)))
    with pytest.raises(ValueError, match=r"usage\.inventory: 1 classes that no other host has"):
        table.set_report(NodeUuid("b"), CELL, usage("b", inventory={"CUSTOM_X": Inventory(total=1)}))
    table.drop_report(NodeUuid("a"))
    assert (
        bounds.no_room_for(table, usage("b", traits=("T3", "T4"), inventory={"CUSTOM_X": Inventory(total=1)})) is None
    )
    table.set_report(NodeUuid("b"), CELL, usage("b", traits=("T3",), inventory={"CUSTOM_X": Inventory(total=1)}))
    assert list(table.resources) == ["CUSTOM_X"], "what nobody has any more made room"


def test_a_class_that_was_forgotten_can_be_left_by_a_host_that_said_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MOST_CLASSES", 2)
    table = HostTable()

    def report(node: str, **totals: int) -> None:
        inventory = {name: Inventory(total=total) for name, total in totals.items()}
        table.set_report(NodeUuid(node), CELL, HostUsage(host=node, inventory=inventory, used={}))

    report("a", VCPU=4, CUSTOM_A=0)
    report("b", VCPU=4, CUSTOM_B=1)
    assert sorted(table.resources) == ["CUSTOM_B", "VCPU"]
    report("a", VCPU=8)
    assert table.resources["VCPU"].capacity[:2].tolist() == [8, 4]
